package durabletest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/durabletest"
	"github.com/tickslot/tickslot/schedule"
)

// A recorder is a testing.TB that records its failure.
type recorder struct {
	testing.TB
	failed string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	panic(r)
}
func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

// failure runs a test that must fail, and returns its message.
func failure(t *testing.T, test func(t testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	func() {
		defer func() {
			if p := recover(); p != nil && p != any(r) {
				panic(p)
			}
		}()
		test(r)
	}()
	if r.failed == "" {
		t.Error("it does not fail")
	}
	return r.failed
}

func says(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%q does not say %q", text, w)
		}
	}
}

type order struct{ Number int }

func trigger(t *testing.T, s *durable.Store, tx durable.Tx, handler, payload string, o durable.TriggerOptions) {
	t.Helper()
	if _, err := s.Trigger(t.Context(), tx, handler, []byte(payload), o); err != nil {
		t.Fatal(err)
	}
}

// Fails when RequireQueued accepts a missing run, a wrong number of runs, or a wrong order.
func TestRequireQueued(t *testing.T) {
	t.Parallel()
	s := durabletest.NewStore(t)
	durabletest.RequireNotQueued(t, s, nil)
	trigger(t, s, nil, "invoice", `{"Number":42}`, durable.TriggerOptions{Key: "42", RunIn: time.Hour})
	trigger(t, s, nil, "report", "text", durable.TriggerOptions{})
	run := durabletest.RequireQueued(t, s, nil, "invoice")[0]
	if got := durabletest.Payload[order](t, run); got.Number != 42 || run.Key != "42" {
		t.Errorf("%+v of %+v", got, run)
	}
	durabletest.RequireQueued(t, s, nil, "invoice", "report")
	durabletest.RequireNotQueued(t, s, nil, "cleanup")
	for _, handlers := range [][]string{{"cleanup"}, {"invoice", "invoice"}, {"report", "invoice"}} {
		text := failure(t, func(t testing.TB) { durabletest.RequireQueued(t, s, nil, handlers...) })
		says(t, text, handlers[0], `"invoice"`, "Number", `"42"`, `"report"`)
	}
	says(t, failure(t, func(t testing.TB) { durabletest.RequireQueued(t, s, nil) }), "name the handlers")
	says(t, failure(t, func(t testing.TB) { durabletest.RequireNotQueued(t, s, nil) }), "any handler", "invoice")
	says(t, failure(t, func(t testing.TB) { durabletest.RequireNotQueued(t, s, nil, "report") }), "invoice")
	says(t, failure(t, func(t testing.TB) { durabletest.RequireQueued(t, nil, nil, "report") }), "store")
	says(t, failure(t, func(t testing.TB) {
		durabletest.Payload[order](t, durabletest.RequireQueued(t, s, nil, "report")[0])
	}), "not a durabletest_test.order", "text")
}

// Fails when a transaction does not see the runs that it has triggered, or when other transactions
// see them.
func TestRequireQueuedInATransaction(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "a.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s := durable.SQLite(db, durable.Options{})
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	trigger(t, s, durable.SQLTx(tx), "invoice", `{"Number":42}`, durable.TriggerOptions{Key: "42",
		By: driver.Cause{By: "Ann"}, TraceParent: "trace"})
	run := durabletest.RequireQueued(t, s, durable.SQLTx(tx), "invoice")[0]
	if durabletest.Payload[order](t, run).Number != 42 || run.Key != "42" || run.TriggeredBy.By != "Ann" ||
		run.TraceParent != "trace" || run.ID == 0 || run.RunAt.IsZero() {
		t.Errorf("%+v", run)
	}
	durabletest.RequireNotQueued(t, s, nil)
	says(t, failure(t, func(t testing.TB) {
		durabletest.RequireQueued(t, durabletest.NewStore(t), durable.SQLTx(tx), "invoice")
	}), "no transactions")
}

// newWorker returns a worker with a handler and a middleware that records that it was called.
func newWorker(t *testing.T, s *durable.Store, handle durable.Handler, o durable.HandlerOptions) *durable.Worker {
	t.Helper()
	type key struct{}
	around := func(next durable.Handler) durable.Handler {
		return func(ctx context.Context, run *durable.Run) error {
			if err := next(context.WithValue(ctx, key{}, true), run); err != nil {
				return fmt.Errorf("around: %w", err)
			}
			return nil
		}
	}
	w, err := durable.NewWorker(s, durable.Config{Name: "w1", Logger: slog.New(slog.DiscardHandler),
		PollInterval: time.Hour, Middleware: []durable.Middleware{around}})
	if err != nil {
		t.Fatal(err)
	}
	w.Handle("invoice", func(ctx context.Context, run *durable.Run) error {
		if ctx.Value(key{}) == nil {
			t.Error("the middleware was not called")
		}
		return handle(ctx, run)
	}, o)
	return w
}

// Fails when Call leaves out the middleware, the run in the context, MaxRunTime, or a mark of the
// error.
func TestCall(t *testing.T) {
	bad := errors.New("bad")
	for name, c := range map[string]struct {
		handle  durable.Handler
		attempt int
		want    durable.State
		outcome durable.Outcome
		retryIn time.Duration
		err     string
	}{
		"it succeeds": {func(ctx context.Context, run *durable.Run) error {
			of, ok := durable.RunFromContext(ctx)
			if !ok || of != run || run.Attempt != 1 || run.Key == "" || run.Worker != "w1" || run.MaxAttempts != 5 ||
				!run.Valid() || string(run.Payload) != "p" {
				t.Errorf("%+v", run)
			}
			return nil
		}, 0, durable.StateSucceeded, durable.OutcomeOK, 0, ""},
		"it fails": {func(context.Context, *durable.Run) error { return durable.RetryAfter(time.Minute, bad) }, 4,
			durable.StateQueued, durable.OutcomeFailed, time.Minute, "around: bad"},
		"it fails for the last time": {func(context.Context, *durable.Run) error { return bad }, 5,
			durable.StateDead, durable.OutcomeFailed, 0, "around: bad"},
		"it gives up": {func(context.Context, *durable.Run) error { return durable.Permanent(bad) }, 1,
			durable.StateDead, durable.OutcomeFailed, 0, "around: bad"},
		"it panics": {func(context.Context, *durable.Run) error { panic("help") }, 5,
			durable.StateDead, durable.OutcomePanicked, 0, "help"},
		"it takes too long": {func(ctx context.Context, _ *durable.Run) error { <-ctx.Done(); return ctx.Err() }, 5,
			durable.StateDead, durable.OutcomeTimedOut, 0, "deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorker(t, durabletest.NewStore(t), c.handle, durable.HandlerOptions{MaxRunTime: time.Hour,
					Retry: durable.Retry{MaxAttempts: 5}})
				r := durabletest.Call(t, w, durable.Run{Handler: "invoice", Attempt: c.attempt, Payload: []byte("p")})
				if r.State != c.want || r.Outcome != c.outcome || r.RetryIn != c.retryIn ||
					!strings.Contains(fmt.Sprint(r.Err), c.err) {
					t.Errorf("%+v", r)
				}
			})
		})
	}
	w := newWorker(t, durabletest.NewStore(t), func(context.Context, *durable.Run) error { return nil },
		durable.HandlerOptions{})
	says(t, failure(t, func(t testing.TB) { durabletest.Call(t, w, durable.Run{Handler: "invoyce"}) }), "invoyce",
		"invoice")
	says(t, failure(t, func(t testing.TB) { durabletest.Call(t, nil, durable.Run{}) }), "nil")
}

// Fails when WorkOff returns before it has executed delayed runs and retries, misses a run, returns
// runs that had ended before the call, or takes longer than atMost.
func TestWorkOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := durabletest.NewStore(t)
		var called []string
		handle := func(_ context.Context, run *durable.Run) error {
			called = append(called, fmt.Sprintf("%s/%d", run.Payload, run.Attempt))
			if string(run.Payload) == "b" && run.Attempt < 3 {
				return durable.RetryAfter(time.Hour, errors.New("later"))
			}
			return nil
		}
		one := durable.HandlerOptions{MaxConcurrency: 1}
		trigger(t, s, nil, "invoice", "a", durable.TriggerOptions{RunIn: 30 * time.Minute})
		trigger(t, s, nil, "invoice", "b", durable.TriggerOptions{})
		trigger(t, s, nil, "invoice", "c", durable.TriggerOptions{RunIn: 3 * 24 * time.Hour})
		began := time.Now()
		ended := durabletest.WorkOff(t, newWorker(t, s, handle, one), 10*24*time.Hour)
		if took := time.Since(began); took < 3*24*time.Hour || took > 3*24*time.Hour+time.Minute {
			t.Errorf("it took %v", took)
		}
		if got := strings.Join(called, " "); got != "b/1 a/1 b/2 b/3 c/1" {
			t.Error(got)
		}
		if len(ended) != 3 || string(ended[0].Payload) != "a" || len(ended[1].Attempts) != 3 {
			t.Errorf("%+v", ended)
		}
		trigger(t, s, nil, "invoice", "d", durable.TriggerOptions{})
		trigger(t, s, nil, "invoice", "e", durable.TriggerOptions{RunIn: time.Hour})
		w := newWorker(t, s, handle, one)
		w.Schedule("hourly", "invoice", schedule.Every(time.Hour), durable.ScheduleOptions{Payload: []byte("tick")})
		began = time.Now()
		ended = durabletest.WorkOff(t, w, 50*time.Minute)
		if took := time.Since(began); took != 50*time.Minute || len(ended) < 1 || string(ended[0].Payload) != "d" {
			t.Errorf("%v, %+v", took, ended)
		}
		durabletest.RequireQueued(t, s, nil, "invoice")
		ended = durabletest.WorkOff(t, newWorker(t, s, handle, one), time.Hour)
		if len(ended) == 0 || string(ended[len(ended)-1].Payload) != "e" && string(ended[0].Payload) != "e" {
			t.Errorf("%+v", ended)
		}
	})
	says(t, failure(t, func(tb testing.TB) {
		w := newWorker(t, durabletest.NewStore(tb), func(context.Context, *durable.Run) error { return nil },
			durable.HandlerOptions{})
		durabletest.WorkOff(tb, w, time.Hour)
	}), "synctest.Test")
	says(t, failure(t, func(tb testing.TB) {
		w, err := durable.NewWorker(durable.SQLite(&sql.DB{}, durable.Options{}), durable.Config{})
		if err != nil {
			t.Fatal(err)
		}
		durabletest.WorkOff(tb, w, time.Hour)
	}), "NewStore")
}
