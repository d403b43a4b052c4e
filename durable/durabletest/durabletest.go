// Package durabletest tests programs that trigger and handle durable runs. It needs no server.
//
//	store := durabletest.NewStore(t) // in memory; a test of transactions uses SQLite or Postgres
//	placeOrder(ctx, store, order)    // your code, which calls store.Trigger
//	run := durabletest.RequireQueued(t, store, nil, "invoice")[0]
//	payload := durabletest.Payload[Order](t, run)
//
// Call calls one handler once, with its middleware. WorkOff makes a worker execute everything that
// is due, including retries and schedules, in virtual time: see package testing/synctest.
package durabletest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/internal/kit"
	"github.com/tickslot/tickslot/durable/internal/memory"
	"github.com/tickslot/tickslot/internal/testkit"
)

// callTimeout bounds each call to a database.
const callTimeout = 30 * time.Second

// NewStore returns a store in the memory of this process. It passes the same tests as the
// databases. Its clock is time.Now, which is virtual inside synctest.Test. It has no transactions:
// pass nil to Trigger. It is only for tests, because it does not keep its data.
func NewStore(t testing.TB) *durable.Store {
	t.Helper()
	return kit.NewStore(memory.New()).(*durable.Store)
}

// RequireQueued fails the test immediately unless the waiting runs of the named handlers match the
// list: one run for each name, in the order in which the runs were queued. It returns the runs with
// their payloads and ignores runs of other handlers. If tx is nil, RequireQueued reads committed
// runs. Otherwise, it reads the runs that the transaction sees, and fills in only the ID and the
// values passed to Trigger.
func RequireQueued(t testing.TB, s *durable.Store, tx durable.Tx, handlers ...string) []durable.RunRecord {
	t.Helper()
	if len(handlers) == 0 {
		t.Fatal("durabletest: RequireQueued has no handler: name the handlers whose runs must be queued")
	}
	all := queued(t, s, tx)
	runs := slices.DeleteFunc(slices.Clone(all), func(r durable.RunRecord) bool {
		return !slices.Contains(handlers, r.Handler)
	})
	if !slices.EqualFunc(runs, handlers, func(r durable.RunRecord, name string) bool { return r.Handler == name }) {
		t.Fatalf("durabletest: want queued: %q\n%s", handlers, listed(all))
	}
	return runs
}

// RequireNotQueued fails the test immediately if a run of a named handler waits for an attempt.
// Without a name, runs of all handlers count. See RequireQueued for tx.
func RequireNotQueued(t testing.TB, s *durable.Store, tx durable.Tx, handlers ...string) {
	t.Helper()
	all := queued(t, s, tx)
	if slices.ContainsFunc(all, func(r durable.RunRecord) bool {
		return len(handlers) == 0 || slices.Contains(handlers, r.Handler)
	}) {
		t.Fatalf("durabletest: want nothing queued of %q\n%s", cmp.Or(strings.Join(handlers, ", "), "any handler"),
			listed(all))
	}
}

// queued returns the runs that wait for an attempt, in the order in which they were queued.
func queued(t testing.TB, s *durable.Store, tx durable.Tx) (runs []durable.RunRecord) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	below, err := kit.StoreOf(s)
	if tx == nil && err == nil {
		runs, err = s.Runs(ctx, durable.RunFilter{States: []durable.State{durable.StateQueued}}, durable.MaxRunRecords)
		slices.Reverse(runs)
		for i := range runs {
			if err == nil {
				runs[i], err = s.Run(ctx, runs[i].ID)
			}
		}
	}
	for after, more := int64(0), tx != nil; more && err == nil; {
		r, ok, fault := below.NextQueued(ctx, tx, after)
		if more, err, after = ok, fault, r.ID; ok && err == nil {
			runs = append(runs, durable.RunRecord{ID: r.ID, Handler: r.Handler, State: durable.StateQueued,
				Priority: durable.Priority(r.Priority), RunAt: r.RunAt.UTC(), Key: r.Key, Payload: r.Payload,
				PayloadLen: len(r.Payload), TriggeredBy: driver.Cause(r.By), TraceParent: r.TraceParent})
		}
	}
	if err != nil {
		t.Fatalf("durabletest: the queued runs could not be read: %v", err)
	}
	return runs
}

// listed formats runs for a message.
func listed(runs []durable.RunRecord) string {
	if len(runs) == 0 {
		return "nothing is queued"
	}
	var text strings.Builder
	text.WriteString("queued are:")
	for _, r := range runs {
		fmt.Fprintf(&text, "\n\trun %d of %q, key %q, due at %s, payload %.200q", r.ID, r.Handler, r.Key,
			r.RunAt.Format(time.RFC3339), r.Payload)
	}
	return text.String()
}

// Payload returns the payload of a run, decoded from JSON. The test fails immediately if the
// payload is not a T.
func Payload[T any](t testing.TB, run durable.RunRecord) (payload T) {
	t.Helper()
	if err := json.Unmarshal(run.Payload, &payload); err != nil {
		t.Fatalf("durabletest: the payload of run %d of %q is not a %T: %v\n\t%.200q", run.ID, run.Handler, payload,
			err, run.Payload)
	}
	return payload
}

// A Result is the state of a run after Call. The state is StateQueued if the run would be tried
// again.
type Result struct {
	durable.RunResult
	RetryIn time.Duration // wait until the next attempt, with StateQueued
}

// Call calls a handler of a worker once, as the worker does: with its middleware, with the run in
// its context, and with MaxRunTime. The handler's Retry decides the Result. A panic becomes an
// error, and t.FailNow in the handler ends the test. Call writes nothing. Only run.Handler is
// required. Zero fields get the values of a first attempt.
func Call(t testing.TB, w *durable.Worker, run durable.Run) Result {
	t.Helper()
	if w == nil {
		t.Fatal("durabletest: the worker is nil: make one with durable.NewWorker")
	}
	result, retryIn, err := kit.Call(t.Context(), w, run)
	if err != nil {
		t.Fatalf("durabletest: nothing was called: %v", err)
	}
	return Result{result.(durable.RunResult), retryIn}
}

// WorkOff runs a worker in virtual time until no run is left and no schedule has a tick, but for at
// most atMost, and then drains it. It returns the runs that ended during the call, with their
// attempts, in the order in which they ended. The worker's store must come from NewStore, and both
// must be created inside synctest.Test. A virtual day of an idle worker takes about 0.9 s of CPU
// time for its polls and heartbeats. With a Config.PollInterval of an hour, it takes 0.1 s. That
// delays nothing, because the worker wakes for each run and tick that it knows of. The worker
// cannot run again. To continue, create another worker on the same store.
func WorkOff(t testing.TB, w *durable.Worker, atMost time.Duration) (ended []durable.RunRecord) {
	t.Helper()
	below, err := kit.StoreOf(w)
	if err != nil {
		t.Fatalf("durabletest: %v", err)
	}
	if _, ok := below.(*memory.Store); !ok {
		t.Fatalf("durabletest: the clock of %s is not virtual: make the store with durabletest.NewStore", below)
	}
	l := &look{t: t, store: kit.NewStore(below).(*durable.Store), open: map[int64]time.Time{},
		until: time.Now().Add(atMost)}
	l.look()
	l.ended = nil // discard runs that had ended before
	testkit.WorkOff(t, w.Run, atMost, l.look)
	l.look()
	slices.SortFunc(l.ended, func(a, b durable.RunRecord) int {
		return cmp.Or(a.FinishedAt.Compare(b.FinishedAt), cmp.Compare(a.ID, b.ID))
	})
	return l.ended
}

// A look records the runs that WorkOff has seen, until they end.
type look struct {
	t     testing.TB
	store *durable.Store
	until time.Time
	last  int64               // the newest run seen so far
	open  map[int64]time.Time // when each unfinished run is due
	ended []durable.RunRecord
}

func (l *look) look() (left bool, dueAt time.Time) {
	l.t.Helper()
	ctx := context.WithoutCancel(l.t.Context())
	before := l.last
	for which := (durable.RunFilter{}); ; {
		runs, err := l.store.Runs(ctx, which, 100)
		if err != nil {
			l.t.Fatalf("durabletest: %v", err)
		}
		for _, r := range runs {
			if r.ID > before {
				l.last = max(l.last, r.ID)
				l.note(ctx, r)
			}
			which.BeforeID = r.ID
		}
		if len(runs) < 100 || which.BeforeID <= before {
			break
		}
	}
	for _, id := range slices.Sorted(maps.Keys(l.open)) {
		if r, err := l.store.Run(ctx, id); err == nil {
			l.note(ctx, r)
		}
	}
	soon := false
	for _, at := range l.open {
		left, soon = true, soon || at.IsZero()
		if dueAt.IsZero() || at.Before(dueAt) {
			dueAt = at
		}
	}
	schedules, err := l.store.Schedules(ctx)
	if err != nil {
		l.t.Fatalf("durabletest: %v", err)
	}
	for _, s := range schedules {
		if s.NextDueAt.After(l.until) {
			continue
		}
		left, soon = true, soon || s.NextDueAt.IsZero()
		if dueAt.IsZero() || s.NextDueAt.Before(dueAt) {
			dueAt = s.NextDueAt
		}
	}
	if soon {
		dueAt = time.Time{}
	}
	return left, dueAt
}

// note records the state of a run.
func (l *look) note(ctx context.Context, r durable.RunRecord) {
	switch r.State {
	case durable.StateQueued:
		l.open[r.ID] = r.RunAt
	case durable.StateRunning:
		l.open[r.ID] = time.Time{}
	default:
		delete(l.open, r.ID)
		if full, err := l.store.Run(ctx, r.ID); err == nil {
			l.ended = append(l.ended, full)
		}
	}
}
