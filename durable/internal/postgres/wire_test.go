package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/proof/servertest"
)

// proxy starts a proxy in front of the server. It counts the messages whose answers a client waits
// for.
func (d database) proxy(t testing.TB) (waits *atomic.Int64, p *servertest.Proxy) {
	t.Helper()
	waits = new(atomic.Int64)
	p, err := servertest.NewProxyWith(func(conn net.Conn) func() ([]byte, error) { return wire(conn, waits) },
		d.server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return waits, p
}

// wire reads the messages of a client and counts Sync and Query, whose answers the client waits
// for.
func wire(conn net.Conn, waits *atomic.Int64) func() ([]byte, error) {
	greeted := false
	return func() ([]byte, error) {
		// type and length of a message; the first message of a connection has no type
		head := make([]byte, 5)
		if !greeted {
			head = head[:4]
		}
		if _, err := io.ReadFull(conn, head); err != nil {
			return nil, err
		}
		size := binary.BigEndian.Uint32(head[len(head)-4:])
		if size < 4 || size > 1<<26 {
			return nil, errors.New("not a message of Postgres")
		}
		body := make([]byte, size-4)
		if _, err := io.ReadFull(conn, body); err != nil {
			return nil, err
		}
		if greeted && (head[0] == 'S' || head[0] == 'Q') {
			waits.Add(1)
		}
		greeted = true
		return append(head, body...), nil
	}
}

var orders = []store.Handler{{Name: "orders", MaxAttempts: 3}}

func (s *Store) claim(ctx context.Context, limit int) ([]store.Run, error) {
	c, err := s.Claim(ctx, store.ClaimRequest{Worker: "w", Handlers: orders, Limit: limit, TTL: time.Minute})
	return c.Runs, err
}

// A call calls a method of a store. The method has work if there are runs and a schedule.
type call struct {
	name string
	make func(ctx context.Context) error
}

// calls returns a call of every method that uses the server, except Migrate and Listen.
func calls(s *Store) []call {
	var runs []store.Run
	daily := store.Schedule{Name: "daily", Handler: "orders", Spec: "1"}
	return []call{
		{"Verify", s.Verify},
		{"Register", func(ctx context.Context) error {
			return s.Register(ctx, "w", orders, []store.Schedule{daily}, true)
		}},
		{"Materialize", func(ctx context.Context) error {
			due := store.DueSchedule{Name: "daily", Spec: "1"}
			run := store.NewRun{DueAt: time.Now(), Payload: make([]byte, 1000)}
			_, err := s.Materialize(ctx, []store.Plan{{Schedule: due, Handler: "orders", Runs: []store.NewRun{run}}})
			return err
		}},
		{"Due", func(ctx context.Context) error { _, err := s.Due(ctx, store.DueSchedule{}, 1000); return err }},
		{"Insert", func(ctx context.Context) error {
			_, err := s.Insert(ctx, nil, store.NewRun{Handler: "orders", Payload: make([]byte, 1000)})
			return err
		}},
		{"Claim", func(ctx context.Context) (err error) { runs, err = s.claim(ctx, 10); return err }},
		{"Renew", func(ctx context.Context) error {
			var keys []store.RunKey
			for _, run := range runs {
				keys = append(keys, run.RunKey)
			}
			keys = append(keys, store.RunKey{ID: 1, Attempt: 1})
			_, err := s.Renew(ctx, "w", keys, time.Minute)
			return err
		}},
		{"Finish", func(ctx context.Context) error {
			results := []store.Result{{RunKey: store.RunKey{ID: 1, Attempt: 9}}}
			for _, run := range runs {
				results = append(results, store.Result{RunKey: run.RunKey, Outcome: store.OutcomeFailed,
					State: store.StateDead, Error: "no paper"})
			}
			_, err := s.Finish(ctx, "w", results)
			return err
		}},
		{"Reclaim", func(ctx context.Context) error { _, err := s.Reclaim(ctx, 10, 5); return err }},
		{"Stats", func(ctx context.Context) error { _, err := s.Stats(ctx, time.Hour); return err }},
		{"Runs", func(ctx context.Context) error {
			_, err := s.Runs(ctx, store.Filter{Handler: "orders", IDs: []int64{1},
				States: []store.State{store.StateDead}}, 10)
			return err
		}},
		{"Run", func(ctx context.Context) error { _, _, _, err := s.Run(ctx, 1); return err }},
		{"Schedules", func(ctx context.Context) error { _, err := s.Schedules(ctx); return err }},
		{"Handlers", func(ctx context.Context) error { _, err := s.Handlers(ctx); return err }},
		{"Requeue", func(ctx context.Context) error {
			_, _, err := s.Requeue(ctx, store.Filter{}, store.Cause{By: "Ann"}, 10)
			return err
		}},
		{"Cancel", func(ctx context.Context) error { _, err := s.Cancel(ctx, 1, store.Cause{}); return err }},
		{"SetHandler", func(ctx context.Context) error {
			return s.SetHandler(ctx, "orders", store.Override{MaxConcurrency: new(int)})
		}},
		{"SetSchedule", func(ctx context.Context) error {
			return s.SetSchedule(ctx, "daily", store.Override{PausedUntil: new(time.Duration)})
		}},
		{"Forget", func(ctx context.Context) error { _, err := s.Forget(ctx, "daily"); return err }},
		{"Notify", s.Notify},
		{"Sweep", func(ctx context.Context) error {
			_, err := s.Sweep(ctx, store.Retention{Canceled: time.Microsecond, Unseen: time.Microsecond}, 10)
			return err
		}},
	}
}

// failing makes all calls and returns their errors.
func failing(t testing.TB, s *Store) map[string]error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	failed := map[string]error{}
	for _, call := range calls(s) {
		if err := call.make(ctx); err != nil {
			failed[call.name] = err
		}
	}
	return failed
}

// Each call takes one round trip once pgx has prepared its statements. If pgx prepares none, every
// call takes one.
//
// Fails when a call waits for the answer to one statement before it sends the next.
func TestCallsAreOneRoundTrip(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{0, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		d := newDatabase(t)
		d.migrated(t)
		d.mode = mode
		waits, p := d.proxy(t)
		s := on(t, d.pool(t, p.Addr(), ""), "durable")
		for round := range 2 {
			for _, call := range calls(s) {
				if round == 0 { // connects and prepares
					if err := call.make(t.Context()); err != nil {
						t.Error(err)
					}
				}
				before := waits.Load()
				if err := call.make(t.Context()); err != nil {
					t.Error(err)
				}
				want := int64(1)
				if call.name == "Verify" { // one more, for the last migration
					want = 2
				}
				if n := waits.Load() - before; n > want && round == 1 {
					t.Errorf("%v: %s takes %d round trips, want %d", mode, call.name, n, want)
				}
			}
		}
	}
}

// No setting of the server or the application changes what a transaction sees or how it is
// committed.
//
// Fails when transactions have the server's isolation level. Workers that claim at the same time
// would then get errors.
func TestTransactionsHaveTheirOwnSettings(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	for setting, value := range map[string]string{"default_transaction_isolation": "serializable",
		"synchronous_commit": "off", "search_path": "nowhere", "lock_timeout": "7ms"} {
		d.exec(t, "ALTER DATABASE "+d.name+" SET "+setting+" = '"+value+"'")
	}
	s := on(t, d.pool(t, "", ""), "durable")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	got := map[string]string{}
	err := s.call(ctx, s.owned, func() []statement {
		return []statement{{text: "SELECT name, setting FROM pg_settings", row: func(rows pgx.Rows) error {
			var name, setting string
			err := rows.Scan(&name, &setting)
			got[name] = setting
			return err
		}}}
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"transaction_isolation": "read committed", "synchronous_commit": "on",
		"search_path": "pg_catalog, pg_temp"} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	for _, name := range []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"} {
		if len(got[name]) != 5 && len(got[name]) != 6 { // 90,000 to 100,000 ms
			t.Errorf("%s is %s ms", name, got[name])
		}
	}
	if err := s.Migrate(ctx); err != nil {
		t.Error(err)
	}
}

// No setting of the server or the application changes how an answer is read, even when nothing is
// prepared and times and bytes arrive as text.
//
// Fails when an answer has a format that was configured for people.
func TestAnswersAreReadWhateverTheirFormIs(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{0, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		d := newDatabase(t)
		d.mode = mode
		for setting, value := range map[string]string{"datestyle": "German, DMY", "bytea_output": "escape",
			"timezone": "America/St_Johns"} {
			d.exec(t, "ALTER DATABASE "+d.name+" SET "+setting+" = '"+value+"'")
		}
		s := d.migrated(t)
		payload := []byte("\x00\\x\xff")
		due := time.Date(2020, 2, 1, 12, 0, 0, 1000, time.UTC)
		_, err := s.Insert(t.Context(), nil, store.NewRun{Handler: "orders", RunAt: due, Payload: payload})
		if err != nil {
			t.Fatal(err)
		}
		runs, err := s.claim(t.Context(), 1)
		if err != nil || len(runs) != 1 || !runs[0].RunAt.Equal(due) || !bytes.Equal(runs[0].Payload, payload) {
			t.Errorf("%v: %+v, %v", mode, runs, err)
		}
		if failed := failing(t, s); len(failed) > 0 {
			t.Errorf("%v: %v", mode, failed)
		}
	}
}
