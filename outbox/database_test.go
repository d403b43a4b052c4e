package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/pgxoutbox"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// A place is a real database and a way in which an application makes transactions in it.
type place struct {
	open  func() *outbox.Outbox
	begin func(t testing.TB) (tx outbox.Tx, commit, rollback func() error)
}

// onEach runs a test on each database.
func onEach(t *testing.T, test func(t *testing.T, p place)) {
	for name, open := range map[string]func(testing.TB) place{"SQLite": onSQLite, "Postgres": onPostgres,
		"Postgres, database/sql": onPostgresSQL, "MariaDB": onMariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func onSQLite(t testing.TB) place {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "outbox.db")+
		"?_pragma=synchronous(off)&_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return place{open: func() *outbox.Outbox { return outbox.SQLite(db, outbox.Options{}) }, begin: inSQL(db)}
}

func inSQL(db *sql.DB) func(t testing.TB) (outbox.Tx, func() error, func() error) {
	return func(t testing.TB) (outbox.Tx, func() error, func() error) {
		t.Helper()
		tx, err := db.BeginTx(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return outbox.SQLTx(tx), tx.Commit, tx.Rollback
	}
}

func onPostgres(t testing.TB) place {
	server := sqltest.SharedPostgres(t)
	return postgresAt(t, server.DSN("", "", server.NewDatabase(t)))
}

func postgresAt(t testing.TB, dsn string) place {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return place{open: func() *outbox.Outbox { return pgxoutbox.New(pool, outbox.Options{}) },
		begin: func(t testing.TB) (outbox.Tx, func() error, func() error) {
			t.Helper()
			ctx := context.Background()
			tx, err := pool.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return pgxoutbox.Tx(tx), func() error { return tx.Commit(ctx) }, func() error { return tx.Rollback(ctx) }
		}}
}

func onPostgresSQL(t testing.TB) place {
	server := sqltest.SharedPostgres(t)
	database := server.NewDatabase(t)
	sqltest.StrangePostgres(t, server, database)
	dsn := server.DSN("", "", database)
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return place{open: func() *outbox.Outbox { return pgxoutbox.New(pool, outbox.Options{}) }, begin: inSQL(db)}
}

func onMariaDB(t testing.TB) place {
	server := sqltest.SharedMariaDB(t)
	return mariaDBAt(t, server.DSN("", "", server.NewDatabase(t)))
}

func mariaDBAt(t testing.TB, dsn string) place {
	t.Helper()
	db, err := sql.Open("mysql", dsn+"?interpolateParams=true")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return place{open: func() *outbox.Outbox { return outbox.MySQL(db, outbox.Options{}) }, begin: inSQL(db)}
}

// running runs a relay until stop is called. stop returns the error of Run.
func running(t *testing.T, box *outbox.Outbox, config outbox.RelayConfig) (stop func() error) {
	config.Logger = slog.New(slog.DiscardHandler)
	relay, err := outbox.NewRelay(box, config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	return func() error { cancel(); return <-ended }
}

// appended appends n messages for each of several keys in one transaction.
func (p place) appended(t *testing.T, box *outbox.Outbox, keys string, n int) {
	t.Helper()
	tx, commit, rollback := p.begin(t)
	defer rollback()
	var list []outbox.Message
	for i := range n {
		list = append(list, outbox.Message{ID: outbox.RandomID(), Topic: "t", Key: fmt.Sprint(keys, i)})
	}
	if _, err := box.AppendMany(t.Context(), tx, list...); err != nil {
		t.Fatal(err)
	}
	if err := commit(); err != nil {
		t.Fatal(err)
	}
}

// An order and its message are both committed, or neither is. Two relays deliver, and the receiver
// has every effect once. Fails when a message is delivered although its transaction was rolled
// back, or is not delivered although it was committed.
func TestFromProducerToReceiver(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p place) {
		box := p.open()
		t.Cleanup(func() { box.Close() })
		if err := box.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		inbox := p.open().Inbox()
		var mu sync.Mutex
		effects, last := map[outbox.ID]int{}, map[string]int64{}
		sink := outbox.SinkFunc(func(ctx context.Context, d outbox.Delivery) error {
			tx, commit, rollback := p.begin(t)
			defer rollback()
			fresh, err := inbox.Once(ctx, tx, "billing", d.ID)
			if err != nil || !fresh {
				return err
			}
			if err := commit(); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			effects[d.ID]++
			if d.Seq < last[d.Key] {
				t.Errorf("key %s: message %d came after %d", d.Key, d.Seq, last[d.Key])
			}
			last[d.Key] = d.Seq
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		var relays sync.WaitGroup
		defer relays.Wait()
		defer cancel()
		for range 2 {
			relays.Go(func() {
				r, err := outbox.NewRelay(box, outbox.RelayConfig{DefaultSink: sink,
					PollInterval: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Error(err)
				} else if err := r.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		want := 0
		for i := range 40 {
			tx, commit, rollback := p.begin(t)
			for n := range 3 {
				fresh, err := box.Append(ctx, tx, outbox.Message{ID: outbox.NewID("order", uint64(i), n), Topic: "t",
					Key: fmt.Sprint(i % 7), Payload: fmt.Append(nil, i), Headers: map[string]string{"a": "b"}})
				if err != nil || !fresh {
					t.Error(fresh, err)
				}
			}
			if i%5 == 4 {
				if err := rollback(); err != nil {
					t.Error(err)
				}
				continue
			}
			if err := commit(); err != nil {
				t.Fatal(err)
			}
			want += 3
			box.Notify()
		}
		testkit.Eventually(t, testkit.Patience, "every message has its effect", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(effects) >= want
		})
		mu.Lock()
		defer mu.Unlock()
		if len(effects) != want {
			t.Errorf("%d messages had an effect, want %d", len(effects), want)
		}
	})
}

// If any table is missing, including the tables of the locks, the error of every call names it and
// matches ErrSetup, and nothing is delivered. When the table exists again, everything continues.
//
// Fails when a relay starts although a table that it needs only later is missing.
func TestTableThatIsMissing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p place) {
		box := p.open()
		t.Cleanup(func() { box.Close() })
		if err := box.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		schema := ""
		if strings.Contains(t.Name(), "Postgres") { // Postgres may have any search_path
			schema = "public."
		}
		rename := func(from, to string) {
			t.Helper()
			tx, commit, rollback := p.begin(t)
			defer rollback()
			if _, err := tx.Exec(t.Context(), "ALTER TABLE "+schema+from+" RENAME TO "+to); err != nil {
				t.Fatal(err)
			}
			if err := commit(); err != nil {
				t.Fatal(err)
			}
		}
		sink := outbox.SinkFunc(func(context.Context, outbox.Delivery) error { return nil })
		for _, suffix := range []string{"", "_attempts", "_inbox", "_layout", "_locks"} {
			table := "tickslot_outbox" + suffix
			rename(table, "gone")
			relay, err := outbox.NewRelay(box, outbox.RelayConfig{DefaultSink: sink,
				Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			for what, err := range map[string]error{"Verify": box.Verify(t.Context()), "Run": relay.Run(t.Context())} {
				if !errors.Is(err, dlock.ErrSetup) || !strings.Contains(err.Error(), table) {
					t.Errorf("%s without %s: %v, want ErrSetup and the name of the table", what, table, err)
				}
			}
			rename("gone", table)
			if err := box.Verify(t.Context()); err != nil {
				t.Errorf("with %s again: %v", table, err)
			}
		}
	})
}

// The transaction that appends first commits last, long after a later message with another key was
// delivered (ThreeDotsLabs/watermill#311).
//
// Fails when the relay looks only for messages after the last one that it has read.
func TestCommitsOutOfOrder(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p place) {
		if strings.HasSuffix(t.Name(), "SQLite") {
			return // SQLite has one writer at a time
		}
		box := p.open()
		t.Cleanup(func() { box.Close() })
		if err := box.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := make(chan outbox.Delivery, 10)
		relay, err := outbox.NewRelay(box, outbox.RelayConfig{PollInterval: 20 * time.Millisecond,
			Logger: slog.New(slog.DiscardHandler), DefaultSink: outbox.SinkFunc(
				func(_ context.Context, d outbox.Delivery) error { got <- d; return nil })})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- relay.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		appended := func(key string) func() error {
			tx, commit, rollback := p.begin(t)
			t.Cleanup(func() { _ = rollback() })
			if _, err := box.Append(ctx, tx, outbox.Message{ID: outbox.RandomID(), Topic: "t", Key: key}); err != nil {
				t.Fatal(err)
			}
			return commit
		}
		keys := []string{"first", "second", "third"}
		var commits []func() error
		for _, key := range keys {
			commits = append(commits, appended(key))
		}
		last := int64(math.MaxInt64)
		for i := len(keys) - 1; i >= 0; i-- {
			if err := commits[i](); err != nil {
				t.Fatal(err)
			}
			box.Notify()
			select {
			case d := <-got:
				if d.Key != keys[i] || d.Seq >= last {
					t.Errorf("message %d of key %q, want the message of key %q, before %d", d.Seq, d.Key, keys[i], last)
				}
				last = d.Seq
			case <-time.After(testkit.Patience):
				t.Fatalf("the message of key %q is lost", keys[i])
			}
		}
	})
}

// Appending a message again, even with other headers, adds no second message. The same ID with
// another topic, key or payload is an error.
//
// Fails when a message that is appended again counts as new, or when another message with the same
// ID goes unnoticed.
func TestSameID(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, p place) {
		box := p.open()
		t.Cleanup(func() { box.Close() })
		if err := box.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		m := outbox.Message{ID: outbox.NewID("order-42", 1, 0), Topic: "t", Key: "k", Payload: []byte("1"),
			Headers: map[string]string{"traceparent": "1"}}
		try := func(m outbox.Message) (bool, error) {
			tx, commit, rollback := p.begin(t)
			fresh, err := box.Append(t.Context(), tx, m)
			if err != nil {
				_ = rollback()
				return fresh, err
			}
			return fresh, commit()
		}
		if fresh, err := try(m); !fresh || err != nil {
			t.Fatal(fresh, err)
		}
		m.Headers = map[string]string{"traceparent": "2"}
		if fresh, err := try(m); fresh || err != nil {
			t.Error(fresh, err)
		}
		for _, change := range []func(m *outbox.Message){
			func(m *outbox.Message) { m.Topic = "u" }, func(m *outbox.Message) { m.Topic = "T" },
			func(m *outbox.Message) { m.Key = "l" }, func(m *outbox.Message) { m.Key = "k " },
			func(m *outbox.Message) { m.Key = "" }, func(m *outbox.Message) { m.Payload = []byte("2") },
			func(m *outbox.Message) { m.Payload = nil }, func(m *outbox.Message) { m.Payload = []byte("1\x00") },
		} {
			other := m
			change(&other)
			if fresh, err := try(other); fresh || !errors.Is(err, outbox.ErrOtherMessage) {
				t.Errorf("%+v: %t, %v, want ErrOtherMessage", other, fresh, err)
			}
		}
	})
}
