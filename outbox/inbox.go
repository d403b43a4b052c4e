package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/tickslot/tickslot/outbox/internal/store"
)

// An Inbox records in the receiver's database which messages the receiver has processed. Its table
// is one of the outbox's tables. So Outbox.Migrate creates it in that database, and a relay there
// deletes old records. Outbox.Inbox returns an Inbox.
type Inbox struct{ outbox *Outbox }

// Inbox returns the inbox among the tables of o. To get an inbox, a receiver creates an Outbox on
// its own database, even if it sends no messages.
func (o *Outbox) Inbox() *Inbox { return &Inbox{o} }

// Once reports whether the consumer, such as "billing", gets the message for the first time, and
// records the message in the caller's transaction. If it returns false, do nothing and report
// success to the sender. Otherwise, apply the message's effect in the same transaction and commit.
// Then the record and the effect are committed together or not at all, and a second delivery has no
// second effect.
//
// If two transactions call Once for the same message, the second waits until the first has ended.
// After an error, the transaction can only be rolled back. On Postgres with REPEATABLE READ or
// SERIALIZABLE, Once fails with SQLSTATE 40001 if another transaction has recorded the message
// since this one began. Then repeat the transaction.
//
// Records are kept for RelayConfig.InboxRetention of the relay on this database, or forever if no
// relay runs there.
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
