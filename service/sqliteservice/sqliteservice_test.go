package sqliteservice_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/service"
	"github.com/tickslot/tickslot/service/sqliteservice"
)

func open(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(filepath.Join(t.TempDir(), "app.db"))+
		"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=synchronous(off)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(8)
	return db
}

func TestAllOfItOnSQLite(t *testing.T) {
	db := open(t)
	ran, arrived := make(chan int, 1), make(chan string, 1)
	svc, err := sqliteservice.New(db, service.Config{Name: "billing", Logger: slog.New(slog.DiscardHandler),
		Relay: outbox.RelayConfig{DefaultSink: outbox.SinkFunc(func(_ context.Context, d outbox.Delivery) error {
			arrived <- string(d.Payload)
			return nil
		})}})
	if err != nil {
		t.Fatal(err)
	}
	job := service.Handle(svc.Worker(), "invoice", func(_ context.Context, number int) error {
		ran <- number
		return nil
	}, durable.HandlerOptions{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(ctx) }()
	<-svc.Timers().Running() // the tables exist
	fault := errors.New("no")
	queue := func(tx sqliteservice.Tx) error {
		_, err := job.Trigger(t.Context(), tx, 7, durable.TriggerOptions{})
		_, err2 := tx.Append(t.Context(), outbox.Message{ID: outbox.RandomID(), Topic: "paid",
			Payload: []byte("seven")})
		return errors.Join(err, err2)
	}
	if err := svc.InTx(t.Context(), func(tx sqliteservice.Tx) error {
		return errors.Join(queue(tx), fault)
	}); !errors.Is(err, fault) {
		t.Errorf("a function that fails: %v", err)
	}
	if err := svc.InTx(t.Context(), func(tx sqliteservice.Tx) error {
		return errors.Join(queue(tx), tx.Commit())
	}); !errors.Is(err, service.ErrCommitted) {
		t.Errorf("a function that commits: %v", err)
	}
	short, end := context.WithCancel(t.Context())
	err = svc.InTx(short, func(tx sqliteservice.Tx) error { end(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a function that outlives its context: %v", err)
	}
	func() {
		defer func() {
			if p := recover(); p != "boom" {
				t.Errorf("the panic became %v", p)
			}
		}()
		_ = svc.InTx(t.Context(), func(tx sqliteservice.Tx) error { _ = queue(tx); panic("boom") })
	}()
	runs, err := svc.Runs().Runs(t.Context(), durable.RunFilter{}, 10)
	if err != nil || len(runs) != 0 {
		t.Errorf("runs of transactions that were rolled back: %v, %v", runs, err)
	}
	if err := svc.InTx(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	limit := time.After(30 * time.Second)
	for range 2 {
		select {
		case n := <-ran:
			if n != 7 {
				t.Errorf("the run has the payload %d", n)
			}
		case text := <-arrived:
			if text != "seven" {
				t.Errorf("the message is %q", text)
			}
		case <-limit:
			t.Fatal("not run, or not delivered, within 30s")
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	rows, err := db.QueryContext(t.Context(), `SELECT name FROM sqlite_schema WHERE type = 'table'`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(name, "billing_") && !strings.HasPrefix(name, "sqlite_") {
			t.Errorf("the table %s does not begin with the name of the service", name)
		}
	}
	if err := rows.Err(); err != nil {
		t.Error(err)
	}
}

func TestWrongSettings(t *testing.T) {
	if _, err := sqliteservice.New(nil, service.Config{}); err == nil {
		t.Error("no database: no error")
	}
	if _, err := sqliteservice.New(open(t), service.Config{Schema: "x"}); err == nil {
		t.Error("a schema: no error")
	}
}
