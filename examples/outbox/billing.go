package main

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"time"

	"github.com/tickslot/tickslot/outbox"
)

// A billing service writes an invoice for each order in its own database. Here the shop calls it
// directly instead of over HTTP.
type billing struct {
	db    *sql.DB
	inbox *outbox.Inbox
}

func openBilling(ctx context.Context, folder string) (billing, error) {
	db, err := open(folder, "billing.db")
	if err != nil {
		return billing{}, err
	}
	box := outbox.SQLite(db, outbox.Options{})
	b := billing{db, box.Inbox()}
	_, err = db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS deliveries (id INTEGER PRIMARY KEY, order_id INTEGER);
		CREATE TABLE IF NOT EXISTS invoices (id INTEGER PRIMARY KEY, order_id INTEGER)`)
	return b, errors.Join(err, box.Migrate(ctx))
}

// deliver is the sink. The first statement only counts the call.
func (b billing) deliver(ctx context.Context, d outbox.Delivery) error {
	order, err := strconv.ParseInt(string(d.Payload), 10, 64)
	if err != nil {
		return outbox.Permanent(err) // another attempt would not fix it
	}
	if _, err := b.db.ExecContext(ctx, "INSERT INTO deliveries (order_id) VALUES (?)", order); err != nil {
		return err
	}
	time.Sleep(10 * time.Millisecond) // simulates a slow service
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	fresh, err := b.inbox.Once(ctx, outbox.SQLTx(tx), "billing", d.ID)
	if err != nil || !fresh {
		return err // if it is not fresh, all is done
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO invoices (order_id) VALUES (?)", order); err != nil {
		return err
	}
	return tx.Commit() // the invoice, and that billing has had the message
}
