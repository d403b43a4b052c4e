package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // any other SQLite driver works

	"github.com/tickslot/tickslot/outbox"
)

// A shop takes orders and sends each to billing.
type shop struct {
	db  *sql.DB
	box *outbox.Outbox
}

const topic = "invoice.create"

func openShop(ctx context.Context, folder string) (shop, error) {
	db, err := open(folder, "shop.db")
	if err != nil {
		return shop{}, err
	}
	s := shop{db, outbox.SQLite(db, outbox.Options{})}
	_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer TEXT NOT NULL)")
	return s, errors.Join(err, s.box.Migrate(ctx))
}

// order commits an order together with its message.
func (s shop) order(ctx context.Context, customer string) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	result, err := tx.ExecContext(ctx, "INSERT INTO orders (customer) VALUES (?)", customer)
	if err != nil {
		return err
	}
	id, err := result.LastInsertId()
	if err != nil {
		return err
	}
	if _, err := s.box.Append(ctx, outbox.SQLTx(tx), outbox.Message{
		ID:      outbox.NewID(fmt.Sprintf("order-%d", id), 1, 0),
		Topic:   topic,
		Key:     customer, // invoices for a customer are written in the order of their orders
		Payload: fmt.Append(nil, id),
	}); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	s.box.Notify()
	return nil
}

// work runs a shop with its relay until ctx ends.
func work(ctx context.Context, folder string, closed bool) error {
	s, err := openShop(ctx, folder)
	if err != nil {
		return err
	}
	defer s.db.Close()
	b, err := openBilling(ctx, folder)
	if err != nil {
		return err
	}
	defer b.db.Close()
	relay, err := outbox.NewRelay(s.box, outbox.RelayConfig{
		Sinks: map[string]outbox.Sink{topic: outbox.SinkFunc(b.deliver)},
		TTL:   3 * time.Second, // the default is 15 s; a short value makes the demonstration quick
		// The demonstration prints the events.
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	for n := 0; !closed && ctx.Err() == nil; n++ {
		if err := s.order(ctx, []string{"ann", "ben", "cleo"}[n%3]); err != nil && ctx.Err() == nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return <-ended
}

// open returns a database without opening the file.
func open(folder, name string) (*sql.DB, error) {
	path, err := filepath.Abs(filepath.Join(folder, name))
	if err != nil {
		return nil, err
	}
	path = filepath.ToSlash(path)
	if path[0] != '/' {
		path = "/" + path // C:/…
	}
	dsn := url.URL{Scheme: "file", Path: path,
		RawQuery: "_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)&_txlock=immediate"}
	db, err := sql.Open("sqlite", dsn.String())
	if err == nil {
		db.SetMaxOpenConns(4) // enough: SQLite writes one transaction at a time
	}
	return db, err
}
