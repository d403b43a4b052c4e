package sqlstore_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/outbox/internal/sqlstore"
	"github.com/tickslot/tickslot/outbox/internal/store"
	"github.com/tickslot/tickslot/outbox/pgxoutbox"
)

// databases has one entry of ways for each kind of database.
var databases = []string{"Postgres", "MySQL", "SQLite"}

// everyCall makes every call and returns the errors.
func everyCall(t testing.TB, s subject) map[string]error {
	t.Helper()
	all := map[string]error{}
	for role, duty := range duties {
		for call, err := range duty(t, s, "") {
			all[role+": "+call] = err
		}
	}
	return all
}

// If tables are missing, older or different, the errors of a store say so, and Migrate repairs what
// it can. Tables with more columns than this version knows are accepted, and so are later
// migrations.
//
// Fails when such an error counts as an outage. The call would then be retried forever.
func TestTablesThatAreNotRight(t *testing.T) {
	t.Parallel()
	for _, way := range databases {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := ways[way](t)
			box := s.on(t, s.db(t, "", ""), "")
			complain := func(when string, least int) {
				t.Helper()
				failed := everyCall(t, s)
				for call, err := range failed {
					if !errors.Is(err, dlock.ErrSetup) || !strings.Contains(err.Error(), "Migrate") {
						t.Errorf("%s: %s: %v: must match ErrSetup and name Migrate", when, call, err)
					}
				}
				if len(failed) < least {
					t.Errorf("%s: %d calls fail, want %d: %v", when, len(failed), least, failed)
				}
				if err := box.Verify(t.Context()); !errors.Is(err, dlock.ErrSetup) {
					t.Errorf("%s: Verify: %v, want ErrSetup", when, err)
				}
			}
			complain("without tables", len(everyCall(t, s)))
			if n := len(everyCall(t, s)); n < 12 {
				t.Errorf("%d calls fail without tables, want all", n)
			}
			migrate := func() {
				t.Helper()
				if err := box.Migrate(t.Context()); err != nil {
					t.Fatal(err)
				}
				if failed := everyCall(t, s); len(failed) > 0 {
					t.Error(failed)
				}
			}
			migrate()
			s.exec(t, "DELETE FROM tickslot_outbox_migrations")
			complain("when the migration is not recorded", 1)
			migrate()
			s.exec(t, "DELETE FROM tickslot_outbox_layout")
			if err := everyCall(t, s)["relay: Layout"]; !errors.Is(err, dlock.ErrSetup) {
				t.Errorf("without a row of the layout: %v", err)
			}
			s.exec(t, "INSERT INTO tickslot_outbox_layout (id, shards, epoch) VALUES (1, 1, 1)")
			s.exec(t, "ALTER TABLE tickslot_outbox RENAME COLUMN note TO remark")
			complain("with another column", 1)
			if err := box.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "note") {
				t.Errorf("Migrate with another column: %v", err)
			}
			s.exec(t, "ALTER TABLE tickslot_outbox RENAME COLUMN remark TO note")
			typ := map[string]string{"Postgres": "text", "MySQL": "TEXT", "SQLite": "TEXT"}[way]
			s.exec(t, "ALTER TABLE tickslot_outbox ADD COLUMN later "+typ,
				"INSERT INTO tickslot_outbox_migrations (version) VALUES (99)")
			migrate()
		})
	}
}

// Any number of hosts may migrate at the same time.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	for _, way := range databases {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := ways[way](t)
			var all sync.WaitGroup
			for range 3 {
				box := s.on(t, s.db(t, "", ""), "")
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					defer cancel()
					if err := box.Migrate(ctx); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		})
	}
}

// If another transaction has appended a message since this one began, Append finds the message if
// the isolation level shows it. Otherwise, the error says that the transaction has to be repeated,
// and repeating it helps.
//
// Fails when a duplicate whose row the transaction does not see counts as new, or as an empty
// message.
func TestDuplicateThatTheTransactionDoesNotSee(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		way    string
		level  sql.IsolationLevel
		repeat bool
	}{
		{"Postgres", sql.LevelReadCommitted, false}, {"Postgres", sql.LevelRepeatableRead, true},
		{"Postgres", sql.LevelSerializable, true}, {"MySQL", sql.LevelReadCommitted, false},
		{"MySQL", sql.LevelRepeatableRead, false}, {"MySQL", sql.LevelSerializable, false},
	} {
		t.Run(fmt.Sprint(c.way, " ", c.level), func(t *testing.T) {
			t.Parallel()
			s := ways[c.way](t)
			box, db := s.migrated(t)
			begin := func() *sql.Tx {
				tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: c.level})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = tx.Rollback() })
				if _, err := tx.ExecContext(t.Context(), "SELECT count(*) FROM tickslot_outbox_layout"); err != nil {
					t.Fatal(err) // from now on, the transaction sees this state of the database
				}
				return tx
			}
			m := store.Message{ID: store.ID{1}, Topic: "orders", Key: "a", Payload: []byte("p")}
			tx, receiving := begin(), begin()
			first := begin()
			if fresh, _, err := box.Append(t.Context(), sqlTx{first}, m); err != nil || !fresh {
				t.Fatal(fresh, err)
			}
			if fresh, err := box.Once(t.Context(), sqlTx{first}, "billing", m.ID); err != nil || !fresh {
				t.Fatal(fresh, err)
			}
			if err := first.Commit(); err != nil {
				t.Fatal(err)
			}
			fresh, old, err := box.Append(t.Context(), sqlTx{tx}, m)
			if c.repeat {
				if !errors.Is(err, store.ErrRepeat) || !strings.Contains(err.Error(), "repeat") || fresh {
					t.Errorf("%t, %v: want ErrRepeat", fresh, err)
				}
				_ = tx.Rollback()
				if fresh, err := box.Once(t.Context(), sqlTx{receiving}, "billing", m.ID); fresh ||
					!errors.Is(err, store.ErrRepeat) {
					t.Errorf("Once: %t, %v: want ErrRepeat", fresh, err)
				}
				_ = receiving.Rollback()
				tx = begin()
				if _, err := box.Once(t.Context(), sqlTx{tx}, "billing", m.ID); err != nil {
					t.Errorf("a transaction that began later: %v", err)
				}
				fresh, old, err = box.Append(t.Context(), sqlTx{tx}, m)
			}
			if err != nil || fresh || old.Topic != "orders" || old.Key != "a" || string(old.Payload) != "p" {
				t.Errorf("%t, %+v, %v", fresh, old, err)
			}
			if fresh, err := box.Once(t.Context(), sqlTx{tx}, "billing", m.ID); err != nil || fresh {
				t.Errorf("Once: %t, %v", fresh, err)
			}
		})
	}
}

// If an index that a user has added refuses a message, Append returns an error and does not treat
// the message as a duplicate.
//
// Fails when Append ignores every conflict instead of only the conflict of the ID. Repeating the
// transaction would not help.
func TestConflictWithSomethingElse(t *testing.T) {
	t.Parallel()
	for _, way := range databases {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := ways[way](t)
			box, db := s.migrated(t)
			s.exec(t, "CREATE UNIQUE INDEX somebody ON tickslot_outbox (topic)")
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			for i, want := range []bool{true, false} {
				m := store.Message{ID: store.ID{byte(i)}, Topic: "orders"}
				fresh, _, err := box.Append(t.Context(), sqlTx{tx}, m)
				if fresh != want || (err == nil) != want || errors.Is(err, store.ErrRepeat) {
					t.Errorf("message %d: %t, %v", i, fresh, err)
				}
			}
		})
	}
}

// On Postgres, Append reports no success in a transaction that an error has aborted.
func TestAbortedTransaction(t *testing.T) {
	t.Parallel()
	s := ways["Postgres"](t)
	box, db := s.migrated(t)
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), "SELECT 1/0"); err == nil {
		t.Fatal("divided by zero")
	}
	if fresh, _, err := box.Append(t.Context(), sqlTx{tx}, store.Message{ID: store.ID{1}}); err == nil || fresh {
		t.Errorf("Append: %t, %v", fresh, err)
	}
	if fresh, err := box.Once(t.Context(), sqlTx{tx}, "c", store.ID{1}); err == nil || fresh {
		t.Errorf("Once: %t, %v", fresh, err)
	}
}

// A transaction of pgx works like a transaction of database/sql.
func TestTransactionOfPgx(t *testing.T) {
	t.Parallel()
	s := ways["Postgres"](t)
	box, _ := s.migrated(t)
	conn, err := pgx.Connect(t.Context(), s.server.DSN("", "", s.database))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	m := store.Message{ID: store.ID{1}, Topic: "orders", Key: "it's", Payload: []byte{0, 0xff}, Hash: 1 << 31,
		Headers: map[string]string{"a": "漢"}}
	for _, want := range []bool{true, false} {
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			fresh, old, err := box.Append(t.Context(), pgxoutbox.Tx(tx), m)
			if fresh != want || !want && (old.Key != m.Key || string(old.Payload) != string(m.Payload)) {
				t.Errorf("Append: %t, %+v", fresh, old)
			}
			if err != nil {
				return err
			}
			seen, seq, ok, err := box.NextAppended(t.Context(), pgxoutbox.Tx(tx), 0)
			if !ok || seen.ID != m.ID || seen.Headers["a"] != "漢" || err != nil ||
				string(seen.Payload) != string(m.Payload) {
				t.Errorf("NextAppended: %+v, %t, %v", seen, ok, err)
			}
			if _, _, ok, err := box.NextAppended(t.Context(), pgxoutbox.Tx(tx), seq); ok || err != nil {
				t.Errorf("NextAppended after the last: %t, %v", ok, err)
			}
			fresh, err = box.Once(t.Context(), pgxoutbox.Tx(tx), "billing", m.ID)
			if fresh != want {
				t.Errorf("Once: %t", fresh)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	due, err := box.Due(t.Context(), store.DueRequest{Layout: store.Layout{Shards: 1, Epoch: 1}, Limit: 10})
	if err != nil || len(due.Messages) != 1 || due.Messages[0].Headers["a"] != "漢" || due.Messages[0].Hash != 1<<31 {
		t.Errorf("%+v, %v", due, err)
	}
}

// On Postgres, Notify of one client wakes Listen of another client. Other databases do not support
// notifications.
func TestListen(t *testing.T) {
	t.Parallel()
	s := ways["Postgres"](t)
	box, _ := s.migrated(t)
	other := s.on(t, s.db(t, "", ""), "")
	elsewhere := s.on(t, s.db(t, "", ""), "another")
	ctx, cancel := context.WithCancel(t.Context())
	woken, ended := make(chan struct{}, 10), make(chan error, 1)
	go func() { ended <- box.Listen(ctx, func() { woken <- struct{}{} }) }()
	wake := func(why string) {
		t.Helper()
		select {
		case <-woken:
		case err := <-ended:
			t.Fatalf("%s: Listen has ended: %v", why, err)
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: Listen reported nothing", why)
		}
	}
	wake("after it has connected")
	if err := elsewhere.Notify(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := other.Notify(t.Context()); err != nil {
		t.Fatal(err)
	}
	wake("after Notify")
	if len(woken) != 0 {
		t.Error("Notify of other tables woke Listen")
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Listen: %v", err)
	}
	for _, way := range []string{"MySQL", "SQLite"} {
		s := ways[way](t)
		if err := s.on(t, s.db(t, "", ""), "").Listen(t.Context(), func() {}); !errors.Is(err, store.ErrNoListen) {
			t.Errorf("%s: %v", way, err)
		}
	}
	dumb, err := sqlstore.Postgres(onPgx(s.db(t, "", ""), ""), sqlstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := dumb.Listen(t.Context(), func() {}); !errors.Is(err, store.ErrNoListen) {
		t.Errorf("without a way to connect: %v", err)
	}
}

// Each change by a relay or an operator takes one round trip. On MySQL, a Sweep takes two for each
// table, the second of which counts rows. A Mark takes the six of its transaction, two of them for
// its beginning and its end. A Requeue takes one more, which finds where its 1,000 messages end.
//
// Fails when a call takes one more round trip, or when a call other than Mark has a transaction. If
// the network of the host fails, a server keeps the transaction and its locks, which delay all
// other relays.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	for way, trips := range map[string]map[string]int64{"Postgres": {"Requeue": 2},
		"MySQL": {"Mark": 6, "Sweep": 4, "Requeue": 3, "Delete": 2}} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := ways[way](t)
			_, db := s.migrated(t)
			proxy := s.server.NewCountingProxy(t)
			through := s.db(t, proxy.Addr(), "")
			through.SetMaxOpenConns(1) // so that each statement is prepared once
			box := s.on(t, through, "")
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			m := store.Message{ID: store.ID{1}, Topic: "orders"}
			if _, _, err := box.Append(t.Context(), sqlTx{tx}, m); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			calls := map[string]func(context.Context) error{
				"Due": func(ctx context.Context) error {
					_, err := box.Due(ctx, store.DueRequest{Layout: store.Layout{Shards: 1, Epoch: 1}, Limit: 1})
					return err
				},
				"Mark": func(ctx context.Context) error {
					_, err := box.Mark(ctx, "n", []store.Result{{Seq: 1, Outcome: store.OutcomeOK}})
					return err
				},
				"NoteBegun": func(ctx context.Context) error {
					return box.NoteBegun(ctx, []store.Begun{{Seq: 1}})
				},
				"Sweep": func(ctx context.Context) error {
					_, err := box.Sweep(ctx, store.Retention{Dispatched: time.Hour, Inbox: time.Hour}, 10)
					return err
				},
				"Requeue": func(ctx context.Context) error {
					_, err := box.Requeue(ctx, store.Filter{}, store.RequeueRequest{Limit: 10})
					return err
				},
				"Delete": func(ctx context.Context) error { _, err := box.Delete(ctx, store.Filter{}); return err },
				"Stats":  func(ctx context.Context) error { _, err := box.Stats(ctx, nil, false); return err },
				"Layout": func(ctx context.Context) error { _, err := box.Layout(ctx, 1); return err },
			}
			if s.of != nil && way == "Postgres" {
				calls["Notify"] = box.Notify
			}
			for name, call := range calls {
				for range 2 {
					if err := call(t.Context()); err != nil { // the driver prepares the statement
						t.Fatal(err)
					}
				}
				want := cmp.Or(trips[name], 1)
				before := proxy.RoundTrips()
				if err := call(t.Context()); err != nil {
					t.Fatal(err)
				}
				if trips := proxy.RoundTrips() - before; trips != want {
					t.Errorf("%s: %d round trips, want %d", name, trips, want)
				}
			}
		})
	}
}

// A search past a long queue fails, or takes too long, after it has found messages before the
// queue.
//
// Fails when these messages are not returned, or when the next call restarts the search, which
// might fail at the same place again.
func TestSearchThatFails(t *testing.T) {
	t.Parallel()
	for kind, d := range dialects {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := d.of(t)
			box, db := s.migrated(t)
			d.fill(t, s, "h", "'long'", "pending", 1, d.later, 1)
			d.fill(t, s, "q", "'long'", "pending", 0, d.now, 300)
			box.Spoil("due_by_key")
			r := store.DueRequest{Layout: store.Layout{Shards: 1, Epoch: 1}, Limit: 2, After: "m"}
			if due, err := box.Due(t.Context(), r); err == nil {
				t.Errorf("nothing was found, but there was no error: %+v", due)
			}
			s.exec(t, "DELETE FROM tickslot_outbox")
			box = s.on(t, db, "") // this store does not know yet where the first messages end
			box.Spoil("due_by_key")
			d.fill(t, s, "a", "'a'", "pending", 0, d.now, 1)
			d.fill(t, s, "h", "'long'", "pending", 1, d.later, 1)
			d.fill(t, s, "q", "'long'", "pending", 0, d.now, 300)
			for limit, more := range map[int]bool{1: false, 2: true} {
				r.Limit = limit
				due, err := box.Due(t.Context(), r)
				if err != nil || len(due.Messages) != 1 || due.Messages[0].Key != "a" || due.After != "m" ||
					due.More != more {
					t.Errorf("at most %d: %+v, %v, want the message of a, and a search that continues", limit, due, err)
				}
			}
		})
	}
}

// Faults of the options are returned before the store writes anything.
func TestOptionsThatCannotWork(t *testing.T) {
	t.Parallel()
	db := sqliteFile(t).db(t, "", "")
	postgres := func(db *sql.DB, o sqlstore.Options) (*sqlstore.Store, error) {
		return sqlstore.Postgres(onPgx(db, ""), o)
	}
	for name, c := range map[string]struct {
		of   func(*sql.DB, sqlstore.Options) (*sqlstore.Store, error)
		db   *sql.DB
		opts sqlstore.Options
	}{
		"no pool":       {postgres, nil, sqlstore.Options{}},
		"a long name":   {postgres, db, sqlstore.Options{TableName: strings.Repeat("x", 41)}},
		"a placeholder": {sqlstore.SQLite, db, sqlstore.Options{TableName: "a{limit}"}},
		"NUL":           {postgres, db, sqlstore.Options{Schema: "a\x00"}},
		"a space":       {sqlstore.MySQL, db, sqlstore.Options{TableName: "a "}},
		"a schema":      {sqlstore.SQLite, db, sqlstore.Options{Schema: "a"}},
		"SQLite's own":  {sqlstore.SQLite, db, sqlstore.Options{TableName: "SQLite_x"}},
	} {
		if s, err := c.of(c.db, c.opts); !errors.Is(err, dlock.ErrSetup) || s != nil {
			t.Errorf("%s: %v, %v, want ErrSetup", name, s, err)
		}
	}
}
