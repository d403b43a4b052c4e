package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/tickslot/tickslot/outbox/internal/store"
)

// An Inbox records in the receiver's database which messages it has had. Its table is part of the
// outbox's tables, so Outbox.Migrate of that database makes it, and a relay there deletes old
// records. Outbox.Inbox returns it.
type Inbox struct{ outbox *Outbox }

// Inbox returns the inbox among the tables of o. A receiver makes the Outbox of its own database
// for that, also if it sends no messages.
func (o *Outbox) Inbox() *Inbox { return &Inbox{o} }

// Once reports whether the consumer, such as "billing", has the message for the first time, and
// records in the caller's transaction that it has had it. If it returns false, do nothing and tell
// the sender that all is well. Otherwise make the effect in the same transaction, and commit: then
// both are there, or neither, and a message that is delivered again has no effect again.
//
// Two transactions that ask about the same message at once do so one after the other: the second
// waits until the first has ended. After an error the transaction can only be rolled back. On
// Postgres with REPEATABLE READ or SERIALIZABLE, a message that somebody else has recorded since
// the transaction began is such an error (SQLSTATE 40001): repeat the transaction.
//
// It remembers messages for RelayConfig.InboxRetention of the relay on its database, and forever
// if there is none.
func (i *Inbox) Once(ctx context.Context, tx Tx, consumer string, id ID) (fresh bool, err error) {
	if i == nil {
		return false, errNoDatabase
	}
	if err := i.outbox.ready(ctx); err != nil {
		return false, err
	}
	if tx == nil {
		return false, errNoTx
	}
	var errs []error
	fault := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("outbox: %s: "+format, append([]any{field}, args...)...))
	}
	if consumer == "" {
		fault("consumer", "it is empty")
	}
	checkText(consumer, "consumer", fault)
	if id == (ID{}) {
		fault("ID", "it is zero")
	}
	if len(errs) > 0 {
		return false, errors.Join(errs...)
	}
	fresh, err = i.outbox.store.Once(ctx, tx, consumer, store.ID(id))
	if err != nil {
		return false, fmt.Errorf("outbox: inbox of %q: %w", consumer, err)
	}
	return fresh, nil
}
