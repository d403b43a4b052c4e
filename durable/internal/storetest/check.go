package storetest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/testkit"
)

// check is one test, with methods for calls to the store that must not fail.
type check struct {
	testing.TB
	store.Store // the first client

	ctx  context.Context
	h    Harness
	open func() store.Store // opens another client
}

const (
	callTimeout = 20 * time.Second
	lease       = time.Minute           // longer than a test
	short       = 50 * time.Millisecond // shorter than a test
	worker      = "worker-1"
)

// orders is the handler of most tests.
var orders = store.Handler{Name: "orders", MaxAttempts: 3}

func (c *check) call(what string, call func(ctx context.Context) error) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	defer cancel()
	if err := call(ctx); err != nil {
		c.Fatalf("%s: %v", what, err)
	}
}

func (c *check) register(takeOver bool, handlers []store.Handler, schedules ...store.Schedule) {
	c.Helper()
	c.call("Register", func(ctx context.Context) error {
		return c.Register(ctx, worker, handlers, schedules, takeOver)
	})
}

// ready registers handlers, as a worker does before it claims.
func (c *check) ready(handlers ...store.Handler) {
	c.Helper()
	c.register(true, handlers)
}

func (c *check) due() (due store.Due) {
	c.Helper()
	return c.duePage(store.DueSchedule{}, 1000)
}

func (c *check) duePage(after store.DueSchedule, limit int) (due store.Due) {
	c.Helper()
	c.call("Due", func(ctx context.Context) (err error) { due, err = c.Due(ctx, after, limit); return err })
	return due
}

// now returns the time of the database's clock.
func (c *check) now() time.Time {
	c.Helper()
	return c.due().Now
}

// dueSchedule returns the named schedule from Due.
func (c *check) dueSchedule(name string) store.DueSchedule {
	c.Helper()
	due := c.due()
	for _, d := range due.Schedules {
		if d.Name == name {
			return d
		}
	}
	c.Fatalf("Due does not have %q: %+v", name, due)
	return store.DueSchedule{}
}

func (c *check) materialize(plans ...store.Plan) (done []store.Materialized) {
	c.Helper()
	c.call("Materialize", func(ctx context.Context) (err error) {
		done, err = c.Materialize(ctx, plans)
		return err
	})
	return done
}

func (c *check) insert(run store.NewRun) (id int64) {
	c.Helper()
	c.call("Insert", func(ctx context.Context) (err error) {
		done, err := c.Insert(ctx, nil, run)
		if err == nil {
			id = done[0].ID
		}
		return err
	})
	return id
}

// insertMany queues runs in one call. wantFresh of them must be fresh; -1 means any number.
func (c *check) insertMany(wantFresh int, runs ...store.NewRun) (done []store.Inserted) {
	c.Helper()
	c.call("Insert", func(ctx context.Context) (err error) { done, err = c.Insert(ctx, nil, runs...); return err })
	fresh := 0
	for _, d := range done {
		if d.Fresh {
			fresh++
		}
	}
	if len(done) != len(runs) || fresh != wantFresh && wantFresh >= 0 {
		c.Fatalf("for %d runs, there are %d answers, %d of them fresh, want %d", len(runs), len(done), fresh, wantFresh)
	}
	return done
}

// inserts queues n runs of a handler.
func (c *check) inserts(handler string, n int) {
	c.Helper()
	for range n {
		c.insert(store.NewRun{Handler: handler})
	}
}

func request(limit int, handlers ...store.Handler) store.ClaimRequest {
	return store.ClaimRequest{Worker: worker, Handlers: handlers, Limit: limit, TTL: lease}
}

func (c *check) claim(request store.ClaimRequest) (claimed store.Claimed) {
	c.Helper()
	c.call("Claim", func(ctx context.Context) (err error) { claimed, err = c.Claim(ctx, request); return err })
	return claimed
}

// claims makes a claim and fails the test unless it returns want runs.
func (c *check) claims(want int, request store.ClaimRequest) []store.Run {
	c.Helper()
	claimed := c.claim(request)
	if len(claimed.Runs) != want {
		c.Fatalf("claimed %d runs, want %d: %+v", len(claimed.Runs), want, claimed.Runs)
	}
	return claimed.Runs
}

// claimOne claims the only due run.
func (c *check) claimOne(handlers ...store.Handler) store.Run {
	c.Helper()
	return c.claims(1, request(10, handlers...))[0]
}

func (c *check) renew(worker string, runs ...store.RunKey) (renewed []store.Renewed) {
	c.Helper()
	c.call("Renew", func(ctx context.Context) (err error) {
		renewed, err = c.Renew(ctx, worker, runs, lease)
		return err
	})
	return renewed
}

// finish writes results. It repeats those whose rows are locked until the rows are free.
func (c *check) finish(results ...store.Result) (counted []store.RunKey) {
	c.Helper()
	testkit.Eventually(c, testkit.Patience, "no row is locked", func() bool {
		var done store.Finished
		c.call("Finish", func(ctx context.Context) (err error) {
			done, err = c.Finish(ctx, worker, results)
			return err
		})
		counted = append(counted, done.Counted...)
		results = slices.DeleteFunc(slices.Clone(results), func(r store.Result) bool {
			return !slices.Contains(done.Locked, r.RunKey)
		})
		return len(results) == 0
	})
	return counted
}

// finishes writes results, and fails the test unless all of them count.
func (c *check) finishes(results ...store.Result) {
	c.Helper()
	if counted := c.finish(results...); len(counted) != len(results) {
		c.Fatalf("of %d results, these count: %v", len(results), counted)
	}
}

// succeeded returns the result of a run that has succeeded.
func succeeded(run store.Run) store.Result {
	return store.Result{RunKey: run.RunKey, Outcome: store.OutcomeOK, State: store.StateSucceeded}
}

// failed returns the result of a run that has failed and is tried again immediately.
func failed(run store.Run) store.Result {
	return store.Result{RunKey: run.RunKey, Outcome: store.OutcomeFailed, State: store.StateQueued, Error: "no paper"}
}

// dead returns the result of a run that has failed for good.
func dead(run store.Run) store.Result {
	return store.Result{RunKey: run.RunKey, Outcome: store.OutcomeFailed, State: store.StateDead, Error: "no paper"}
}

// givenBack returns the result of a run whose worker shuts down.
func givenBack(run store.Run) store.Result {
	return store.Result{RunKey: run.RunKey, Outcome: store.OutcomeInterrupted, State: store.StateQueued}
}

// maxCrashes is the number of lost leases after which a run is dead in these tests.
const maxCrashes = 4

func (c *check) reclaim(limit int) (reclaimed []store.Reclaimed) {
	c.Helper()
	c.call("Reclaim", func(ctx context.Context) (err error) {
		reclaimed, err = c.Reclaim(ctx, limit, maxCrashes)
		return err
	})
	return reclaimed
}

// reclaims waits until a short lease has expired and want runs were reclaimed.
func (c *check) reclaims(want int) (reclaimed []store.Reclaimed) {
	c.Helper()
	testkit.Eventually(c, testkit.Patience, "the runs are reclaimed", func() bool {
		reclaimed = append(reclaimed, c.reclaim(100)...)
		return len(reclaimed) >= want
	})
	if len(reclaimed) != want {
		c.Fatalf("%d runs were reclaimed, want %d: %+v", len(reclaimed), want, reclaimed)
	}
	return reclaimed
}

func (c *check) cancel(id int64, by store.Cause) (state store.State) {
	c.Helper()
	c.call("Cancel", func(ctx context.Context) (err error) { state, err = c.Cancel(ctx, id, by); return err })
	return state
}

func (c *check) requeue(which store.Filter, by store.Cause) (n int) {
	c.Helper()
	c.call("Requeue", func(ctx context.Context) (err error) { n, _, err = c.Requeue(ctx, which, by, 1000); return err })
	return n
}

func (c *check) setHandler(name string, change store.Override) {
	c.Helper()
	c.call("SetHandler", func(ctx context.Context) error { return c.SetHandler(ctx, name, change) })
}

func (c *check) setSchedule(name string, change store.Override) {
	c.Helper()
	c.call("SetSchedule", func(ctx context.Context) error { return c.SetSchedule(ctx, name, change) })
}

func (c *check) sweep(retention store.Retention, limit int) (deleted int) {
	c.Helper()
	c.call("Sweep", func(ctx context.Context) (err error) { deleted, err = c.Sweep(ctx, retention, limit); return err })
	return deleted
}

func (c *check) stats() store.Stats {
	c.Helper()
	return c.statsOf(callTimeout)
}

// statsOf returns Stats. Schedules that no worker has registered for unseen count as having no
// worker.
func (c *check) statsOf(unseen time.Duration) (stats store.Stats) {
	c.Helper()
	c.call("Stats", func(ctx context.Context) (err error) { stats, err = c.Stats(ctx, unseen); return err })
	return stats
}

func (c *check) runs(which store.Filter, limit int) (runs []store.Run) {
	c.Helper()
	c.call("Runs", func(ctx context.Context) (err error) { runs, err = c.Runs(ctx, which, limit); return err })
	return runs
}

// run returns an existing run and its attempts.
func (c *check) run(id int64) (run store.Run, attempts []store.Attempt) {
	c.Helper()
	c.call("Run", func(ctx context.Context) error {
		var ok bool
		var err error
		if run, attempts, ok, err = c.Run(ctx, id); err == nil && !ok {
			c.Fatalf("there is no run %d", id)
		}
		return err
	})
	return run, attempts
}

// inState fails the test unless a run has the given state and number of ended attempts. It returns
// the run.
func (c *check) inState(id int64, state store.State, attempts int) store.Run {
	c.Helper()
	run, list := c.run(id)
	if run.State != state || len(list) != attempts {
		c.Errorf("run %d is %s with the attempts %+v, want %s with %d", id, run.State, list, state, attempts)
	}
	return run
}

// schedule returns the row of an existing schedule.
func (c *check) schedule(name string) (row store.ScheduleRow) {
	c.Helper()
	c.call("Schedules", func(ctx context.Context) error {
		rows, err := c.Schedules(ctx)
		for _, r := range rows {
			if r.Name == name {
				row = r
				return err
			}
		}
		c.Fatalf("there is no schedule %q in %+v, %v", name, rows, err)
		return nil
	})
	return row
}

// handler returns the row of an existing handler.
func (c *check) handler(name string) (row store.HandlerRow) {
	c.Helper()
	c.call("Handlers", func(ctx context.Context) error {
		rows, err := c.Handlers(ctx)
		for _, r := range rows {
			if r.Name == name {
				row = r
				return err
			}
		}
		c.Fatalf("there is no handler %q in %+v, %v", name, rows, err)
		return nil
	})
	return row
}

// near fails the test if at is before from or long after it.
func (c *check) near(what string, at, from time.Time) {
	c.Helper()
	// A database's clock may count only milliseconds.
	if at.Before(from.Add(-2*time.Millisecond)) || at.After(from.Add(callTimeout)) {
		c.Errorf("%s is %v, want %v or slightly later", what, at, from)
	}
}

// pass waits until the database's clock is later than an instant.
func (c *check) pass(at time.Time) {
	c.Helper()
	testkit.Eventually(c, testkit.Patience, "the database's clock goes on", func() bool { return c.now().After(at) })
}

// atOnce calls do on n goroutines at the same time, each with its own client, and waits for all.
func (c *check) atOnce(n int, do func(i int, c *check)) {
	c.Helper()
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		own := *c
		own.Store = c.open()
		all.Go(func() {
			<-start
			do(i, &own)
		})
	}
	close(start)
	all.Wait()
	if c.Failed() {
		c.FailNow()
	}
}

func ptr[T any](v T) *T { return &v }
