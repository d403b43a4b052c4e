package outbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tickslot/tickslot/internal/lifecycle"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// An Outbox is a set of tables in a database. Create one with MySQL, SQLite or SQLServer, or with
// pgxoutbox.New for Postgres. Its methods may be called from any goroutine, and return when their
// context ends. An error matches dlock.ErrSetup if the database answers but is not set up
// correctly: a table, a privilege or an option is missing.
type Outbox struct {
	store    store.Store
	locks    *lazyLocks
	closeOwn func() error // closes the pool of the relays; nil if they use the caller's pool
	hint     lifecycle.Hint
	fault    error // fault of the options, which every method returns
	closed   atomic.Bool

	mu     sync.Mutex
	relays map[*Relay]struct{} // relays running in this process
}

// ready returns why a call must not be made, or nil.
func (o *Outbox) ready(ctx context.Context) error {
	switch {
	case o == nil || o.store == nil && o.fault == nil:
		return errNoDatabase
	case o.fault != nil:
		return o.fault
	case o.closed.Load():
		return errClosed
	case ctx == nil:
		return errNilContext
	}
	return nil
}

// Migrate creates or upgrades the tables, including those of the relays' locks. Any number of hosts
// may call it, at the same time and at every start. If nothing is missing, the database user needs
// no privilege to create anything.
func (o *Outbox) Migrate(ctx context.Context) error {
	if err := o.ready(ctx); err != nil {
		return err
	}
	return errors.Join(o.store.Migrate(ctx), o.locks.get().Migrate(ctx))
}

// Verify returns nil if the tables have the schema that this version needs. Otherwise, it returns
// an error that matches dlock.ErrSetup. Call Verify at startup if another tool applies the schema.
func (o *Outbox) Verify(ctx context.Context) error {
	if err := o.ready(ctx); err != nil {
		return err
	}
	return errors.Join(o.store.Verify(ctx), o.locks.get().Verify(ctx))
}

// Schema returns the statements that Migrate executes on an empty database, for users who apply
// their own migrations. They include the statements that record applied migrations.
func (o *Outbox) Schema() ([]string, error) {
	if err := o.ready(context.Background()); err != nil {
		return nil, err
	}
	messages, err := o.store.Schema()
	if err != nil {
		return nil, err
	}
	locks, err := o.locks.get().Schema()
	return append(messages, locks...), err
}

// Close closes the connections that the outbox has opened for its relays, but not the pool that it
// was made from. Call it when all use of the outbox has ended. Later calls fail with an error that
// matches dlock.ErrClosed.
func (o *Outbox) Close() error {
	if o == nil || o.store == nil || o.closed.Swap(true) {
		return nil
	}
	errs := []error{o.locks.close()}
	if o.closeOwn != nil {
		errs = append(errs, o.closeOwn())
	}
	return errors.Join(errs...)
}

// A Tx is a transaction of the caller: see SQLTx and pgxoutbox.Tx.
type Tx = store.Tx

// Append adds a message to the caller's transaction and does nothing else. The message exists if
// and when the transaction commits. If a message with this ID already exists, Append compares its
// topic, key and payload. If they are the same, Append returns false. If they differ, it returns an
// error that matches ErrOtherMessage. Headers may differ, because a producer that repeats its work
// has another trace.
//
// After an error, the transaction can only be rolled back. On Postgres with REPEATABLE READ or
// SERIALIZABLE, Append fails with SQLSTATE 40001 if another transaction has committed a message
// with the same ID since this one began. Then repeat the transaction, as these levels require
// anyway.
func (o *Outbox) Append(ctx context.Context, tx Tx, m Message) (fresh bool, err error) {
	if err := o.ready(ctx); err != nil {
		return false, err
	}
	if tx == nil {
		return false, errNoTx
	}
	if err := m.check(); err != nil {
		return false, fmt.Errorf("outbox: message %s of topic %.60q: not appended: %w", m.ID, m.Topic, err)
	}
	fresh, old, err := o.store.Append(ctx, tx, m.row())
	if err != nil {
		return false, fmt.Errorf("outbox: message %s of topic %.60q: %w", m.ID, m.Topic, err)
	}
	if !fresh && (old.Topic != m.Topic || old.Key != m.Key || !bytes.Equal(old.Payload, m.Payload)) {
		return false, fmt.Errorf("%w: message %s has the topic %.60q, the key %.60q and %d bytes, and was appended "+
			"again with the topic %.60q, the key %.60q and %d bytes", ErrOtherMessage, m.ID, old.Topic, old.Key,
			len(old.Payload), m.Topic, m.Key, len(m.Payload))
	}
	return fresh, nil
}

// appendBytes bounds the payloads and headers of one statement of AppendMany, except its last
// message, because servers refuse statements that are too long.
const appendBytes = 2 << 20

// AppendMany is like Append for many messages, which keep the order of the list. It executes two
// statements for every 300 messages or 2 MB. If an ID among these already exists, it executes one
// or two statements for each of them. It returns, for each message, whether it is fresh. AppendMany
// checks every message before the first statement, and refuses two messages with the same ID. After
// such an error, the transaction can continue. At most MaxAppend messages and MaxAppendLen bytes.
// Without messages, AppendMany does nothing.
//
// On Postgres, MySQL and SQL Server, if another transaction appends one of the messages at the same
// time, the error says to repeat the transaction.
func (o *Outbox) AppendMany(ctx context.Context, tx Tx, messages ...Message) (fresh []bool, err error) {
	if err := o.ready(ctx); err != nil {
		return nil, err
	}
	if tx == nil {
		return nil, errNoTx
	}
	if err := checkMany(messages); err != nil {
		return nil, err
	}
	for len(messages) > 0 {
		var rows []store.Message
		for size := 0; len(rows) < min(len(messages), store.MaxAppendAll) && size < appendBytes; {
			m := messages[len(rows)]
			size += len(m.Payload) + m.headersLen()
			rows = append(rows, m.row())
		}
		all, err := o.store.AppendAll(ctx, tx, rows)
		if err != nil {
			return nil, fmt.Errorf("outbox: %d messages, the first is %s of topic %.60q: %w", len(rows),
				messages[0].ID, messages[0].Topic, err)
		}
		for _, m := range messages[:len(rows)] {
			one := all
			if !all {
				if one, err = o.Append(ctx, tx, m); err != nil {
					return nil, err
				}
			}
			fresh = append(fresh, one)
		}
		messages = messages[len(rows):]
	}
	return fresh, nil
}

// checkMany returns what is wrong with the first ten faulty messages.
func checkMany(messages []Message) error {
	if n := len(messages); n > MaxAppend {
		return fmt.Errorf("outbox: %w: %d messages, at most %d are allowed in one AppendMany: call it again for the "+
			"others", ErrTooLong, n, MaxAppend)
	}
	var errs []error
	size, at := 0, make(map[ID]int, len(messages))
	for i, m := range messages {
		size += len(m.Payload) + m.headersLen()
		err := m.check()
		if first, ok := at[m.ID]; ok && m.ID != (ID{}) {
			err = errors.Join(err, fmt.Errorf("ID: message %d has it, too", first))
		}
		at[m.ID] = i
		if err != nil && len(errs) < 10 {
			errs = append(errs, fmt.Errorf("outbox: message %d, %s of topic %.60q: nothing was appended: %w", i, m.ID,
				m.Topic, err))
		}
	}
	if size > MaxAppendLen {
		errs = append(errs, fmt.Errorf("outbox: %w: payloads and headers have %d bytes together, and at most %d are "+
			"allowed in one AppendMany: call it again for some of the messages", ErrTooLong, size, MaxAppendLen))
	}
	return errors.Join(errs...)
}

// Notify makes the relays of this process, and on Postgres of all processes, poll for messages
// immediately. Call it after the commit. Notify does not wait and does not fail, because without it
// a relay finds the message at its next poll. That is within RelayConfig.IdleDelay on Postgres
// while notifications certainly work, and otherwise within RelayConfig.PollInterval. Append does
// not notify, because a NOTIFY in the transaction would make all commits of the server wait for
// each other. The first Notify calls the database immediately. The calls of the next 10 ms share
// one more call to the database.
func (o *Outbox) Notify() {
	if o.ready(context.Background()) != nil {
		return
	}
	o.wake()
	o.hint.Give(o.store.Notify)
}

// tell is like Notify, but waits until the database has been called. Otherwise, a program that
// exits next would notify no relay. If the call fails, relays find the messages later.
func (o *Outbox) tell(ctx context.Context) {
	o.wake()
	ctx, cancel := context.WithTimeout(ctx, lifecycle.HintTimeout)
	defer cancel()
	_ = o.store.Notify(ctx)
}

// wake makes the relays of this process poll for messages immediately.
func (o *Outbox) wake() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for r := range o.relays {
		r.wake()
	}
}

// add makes Notify wake a relay.
func (o *Outbox) add(r *Relay) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.relays == nil {
		o.relays = map[*Relay]struct{}{}
	}
	o.relays[r] = struct{}{}
}

func (o *Outbox) remove(r *Relay) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.relays, r)
}
