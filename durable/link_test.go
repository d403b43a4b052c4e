package durable_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/durable/internal/store"
)

// A fault says how a call to the database ends.
type fault uint8

const (
	well    fault = iota
	refused       // not done, returns an error
	lost          // done, and the answer is lost
	slow          // done late, and answered
	answer        // done, and answered late
	twice         // done, done again a while later, and answered
	zombie        // not answered, and done after the caller has given up
	hang          // not done: the caller's time-out ends it
	stopped       // done, and answered late regardless of the context: the process was stopped
	unset         // not done: the database is not set up correctly
	dead          // not done: the process is gone
)

func (f fault) String() string {
	return [...]string{"well", "refused", "lost", "slow", "answer", "twice", "zombie", "hang", "stopped", "unset",
		"dead"}[f]
}

// A link is one host's connection to the database, with faults.
type link struct {
	store.Store

	mu      sync.Mutex
	plan    func(op string) (fault, time.Duration) // the fault of the next call, and its delay
	calls   map[string]int
	most    map[string]int  // the most schedules in one call
	locked  []int64         // runs whose rows another session has locked
	spurned []int64         // runs whose results the database refuses
	wrong   []string        // results that should not have counted
	gone    chan struct{}   // closed when the process is dead
	net     context.Context // of requests in transit
	drop    func()          // ends net
}

func newLink(s store.Store) *link {
	l := &link{Store: s, calls: map[string]int{}, most: map[string]int{}, gone: make(chan struct{}),
		plan: func(string) (fault, time.Duration) { return well, 0 }}
	l.net, l.drop = context.WithCancel(context.Background())
	return l
}

// set makes all calls, or the named ones, end with a fault from now on.
func (l *link) set(f fault, ops ...string) {
	l.on(func(op string) (fault, time.Duration) {
		for _, o := range ops {
			if o == op {
				return f, time.Second
			}
		}
		if len(ops) > 0 {
			return well, 0
		}
		return f, time.Second
	})
	if f == dead {
		close(l.gone)
	}
}

func (l *link) on(plan func(op string) (fault, time.Duration)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.plan = plan
}

// count returns how often a call was made.
func (l *link) count(op string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls[op]
}

func (l *link) next(op string) (fault, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[op]++
	return l.plan(op)
}

func do[T any](ctx context.Context, l *link, op string, f func(context.Context) (T, error)) (T, error) {
	var none T
	what, by := l.next(op)
	pause := func() error {
		select {
		case <-time.After(by):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	switch what {
	case refused, dead:
		return none, errDown
	case unset:
		return none, fmt.Errorf("%w: call Migrate", dlock.ErrSetup)
	case hang:
		<-ctx.Done()
		return none, context.Cause(ctx)
	case slow:
		if err := pause(); err != nil {
			return none, err
		}
	case zombie:
		<-ctx.Done()
		go onItsWay(l, by, f)
		return none, context.Cause(ctx)
	}
	v, err := f(ctx)
	select {
	case <-l.gone:
		return none, errDown
	default:
	}
	switch what {
	case lost:
		return none, errDown
	case answer:
		if err := pause(); err != nil {
			return none, err
		}
	case stopped:
		select {
		case <-time.After(by):
		case <-l.net.Done(): // Listen may hang in a fault when the test ends
		}
	case twice:
		go onItsWay(l, by, f)
	}
	return v, err
}

// onItsWay makes a call after a delay, without a waiting caller.
func onItsWay[T any](l *link, by time.Duration, f func(context.Context) (T, error)) {
	arrived := time.NewTimer(by)
	defer arrived.Stop()
	select {
	case <-arrived.C:
		_, _ = f(l.net)
	case <-l.net.Done():
	}
}

func (l *link) Verify(ctx context.Context) error {
	_, err := do(ctx, l, "verify", func(ctx context.Context) (n struct{}, err error) { return n, l.Store.Verify(ctx) })
	return err
}

func (l *link) Register(ctx context.Context, worker string, handlers []store.Handler, schedules []store.Schedule,
	takeOver bool) error {
	_, err := do(ctx, l, "register", func(ctx context.Context) (none struct{}, err error) {
		l.largest("register", len(schedules))
		return none, l.Store.Register(ctx, worker, handlers, schedules, takeOver)
	})
	return err
}

func (l *link) Due(ctx context.Context, after store.DueSchedule, limit int) (store.Due, error) {
	return do(ctx, l, "due", func(ctx context.Context) (store.Due, error) {
		due, err := l.Store.Due(ctx, after, limit)
		l.largest("due", len(due.Schedules))
		return due, err
	})
}

// largest records the largest batch that a call had.
func (l *link) largest(op string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.most[op] = max(l.most[op], n)
}

func (l *link) Materialize(ctx context.Context, plans []store.Plan) ([]store.Materialized, error) {
	return do(ctx, l, "materialize", func(ctx context.Context) ([]store.Materialized, error) {
		return l.Store.Materialize(ctx, plans)
	})
}

func (l *link) Claim(ctx context.Context, request store.ClaimRequest) (store.Claimed, error) {
	return do(ctx, l, "claim", func(ctx context.Context) (store.Claimed, error) { return l.Store.Claim(ctx, request) })
}

func (l *link) Renew(ctx context.Context, worker string, runs []store.RunKey, ttl time.Duration) ([]store.Renewed,
	error) {
	return do(ctx, l, "renew", func(ctx context.Context) ([]store.Renewed, error) {
		return l.Store.Renew(ctx, worker, runs, ttl)
	})
}

func (l *link) Finish(ctx context.Context, worker string, results []store.Result) (store.Finished, error) {
	return do(ctx, l, "finish", func(ctx context.Context) (store.Finished, error) {
		if err := l.refuses(results); err != nil {
			return store.Finished{}, err
		}
		locked := l.areLocked(results)
		done, err := l.Store.Finish(ctx, worker, slices.DeleteFunc(slices.Clone(results), func(r store.Result) bool {
			return slices.Contains(locked, r.RunKey)
		}))
		l.zombies(worker, results, done.Counted)
		done.Locked = append(done.Locked, locked...)
		return done, err
	})
}

// lock simulates another session that keeps the rows of the runs locked from now on.
func (l *link) lock(ids ...int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.locked = ids
}

// refuse makes the database refuse the results of runs from now on.
func (l *link) refuse(ids ...int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spurned = ids
}

func (l *link) refuses(results []store.Result) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range results {
		if slices.Contains(l.spurned, r.ID) {
			return fmt.Errorf("not the result of run %d", r.ID)
		}
	}
	return nil
}

func (l *link) areLocked(results []store.Result) (locked []store.RunKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range results {
		if slices.Contains(l.locked, r.ID) {
			locked = append(locked, r.RunKey)
		}
	}
	return locked
}

// zombies records results that count although their attempt did not own the run, or ended in
// another way.
func (l *link) zombies(worker string, results []store.Result, counted []store.RunKey) {
	for _, r := range results {
		if !slices.Contains(counted, r.RunKey) {
			continue
		}
		_, attempts, _, _ := l.Store.Run(context.Background(), r.ID)
		if !slices.ContainsFunc(attempts, func(a store.Attempt) bool {
			return a.Attempt == r.Attempt && a.Worker == worker && a.Outcome == r.Outcome
		}) {
			l.mu.Lock()
			l.wrong = append(l.wrong, fmt.Sprintf("the result %+v of %s counts, and the attempts are %+v", r, worker,
				attempts))
			l.mu.Unlock()
		}
	}
}

func (l *link) Reclaim(ctx context.Context, limit, maxCrashes int) ([]store.Reclaimed, error) {
	return do(ctx, l, "reclaim", func(ctx context.Context) ([]store.Reclaimed, error) {
		return l.Store.Reclaim(ctx, limit, maxCrashes)
	})
}

func (l *link) Sweep(ctx context.Context, retention store.Retention, limit int) (int, error) {
	return do(ctx, l, "sweep", func(ctx context.Context) (int, error) { return l.Store.Sweep(ctx, retention, limit) })
}

func (l *link) Stats(ctx context.Context, unseen time.Duration) (store.Stats, error) {
	return do(ctx, l, "stats", func(ctx context.Context) (store.Stats, error) { return l.Store.Stats(ctx, unseen) })
}

func (l *link) Notify(ctx context.Context) error {
	_, err := do(ctx, l, "notify", func(ctx context.Context) (n struct{}, err error) { return n, l.Store.Notify(ctx) })
	return err
}

func (l *link) Listen(ctx context.Context, woken func()) error {
	_, err := do(ctx, l, "listen", func(ctx context.Context) (n struct{}, err error) {
		return n, l.Store.Listen(ctx, woken)
	})
	return err
}
