package timertest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/control"
)

var ann = driver.Cause{By: "ann", Note: "it's \"her\" night; 数据库"}

// An operator changes timers with a client that does not belong to a host.
type operator struct {
	f *realFleet
	*control.Control
}

func (r *realFleet) operator() operator {
	return operator{r, control.New(control.Config{Store: r.taker})}
}

// does repeats a change until it is acknowledged, because a call may time out on a busy machine.
func (o operator) does(what string, change func(context.Context) error) {
	o.f.t.Helper()
	var err error
	o.f.until(what+" is acknowledged", func() bool {
		err = change(o.f.t.Context())
		return err == nil
	})
}

// triggers triggers a timer, and returns a time before that, and how many triggers there may be. A
// second call makes a second trigger, so after a lost answer triggers first looks whether the store
// keeps the trigger and hosts know of it. It may also be gone because a host has taken it.
func (o operator) triggers(name string) (before time.Time, most int) {
	o.f.t.Helper()
	testkit.Eventually(o.f.t, patience, "trigger "+name, func() error {
		before = time.Now()
		most++
		err := o.Trigger(o.f.t.Context(), name, control.TriggerOptions{By: ann})
		if err == nil {
			return nil
		}
		if strings.Contains(err.Error(), "not triggered") {
			most--
			return err
		}
		got, _ := o.Inspect(o.f.t.Context(), name)
		kept, _ := o.Triggers(o.f.t.Context(), name)
		if len(kept) > 0 && got.Trigger != nil && got.Trigger.Age < time.Since(before) {
			return nil
		}
		return err
	})
	return before, most
}

// hears returns the time within which every reachable host must know an update: a heartbeat plus a
// call to read it.
func (r *realFleet) hears() time.Duration { return r.suite.TTL/3 + 2*r.storeTimeout() }

// Overrides reach every host, even one that was unreachable when they were set.
//
// Fails when the store's acquire or extend ignores an override or does not report it, and when
// hosts do not read the report.
func controls(s *suite, t *testing.T) {
	testkit.SkipShort(t)
	t.Run("pause", func(t *testing.T) { t.Parallel(); pauses(s, t) })
	t.Run("limit", func(t *testing.T) { t.Parallel(); limitOverridden(s, t) })
	t.Run("trigger", func(t *testing.T) { t.Parallel(); triggers(s, t) })
	t.Run("force-release", func(t *testing.T) { t.Parallel(); forced(s, t) })
}

func pauses(s *suite, t *testing.T) {
	f := s.fleet(t)
	often := timer.Timer{Name: "often", Schedule: schedule.Every(s.Period), OnStoreDown: timer.StoreDownSkip,
		Run: func(context.Context) error { return nil }}
	seldom := timer.Timer{Name: "seldom", Schedule: schedule.Every(240 * time.Hour), OnStoreDown: timer.StoreDownSkip,
		Run: often.Run}
	for range 3 {
		f.start(timer.Config{}, often, seldom)
	}
	away := f.Hosts[2]
	f.until("it runs", func() bool { return f.watch.runs("often", all) > 3 })
	away.Link.Inject(dlocktest.Hang)
	op, end := f.operator(), time.Now().Add(time.Hour)
	for _, name := range []string{"often", "seldom"} {
		op.does("a pause", func(ctx context.Context) error { return op.Pause(ctx, name, end, ann) })
	}
	asked := time.Now()
	paused := func(h *host, name string) bool {
		p := f.status(h, name).Paused
		return p != nil && p.Cause == ann && p.Until.Sub(end).Abs() < time.Minute
	}
	f.until("two hosts know of the pause", func() bool {
		for _, h := range f.Hosts[:2] {
			if !paused(h, "often") || !paused(h, "seldom") {
				return false
			}
		}
		return true
	})
	if took := time.Since(asked); took > f.hears()+f.late(asked) && !f.strained(f.Hosts[0], asked) &&
		!f.strained(f.Hosts[1], asked) {
		t.Errorf("they heard of it after %v", took)
	}
	if err := f.answered(f.Hosts[0], "seldom"); !refused(err, timer.ReasonPaused) ||
		!strings.Contains(err.Error(), ann.String()) {
		t.Errorf("a trigger during the pause: %v", err)
	}
	away.Link.Heal()
	f.until("the third host knows of it, too", func() bool { return paused(away, "often") && paused(away, "seldom") })
	f.until("it can explain that", func() bool {
		x, err := away.Explain(t.Context(), "often", time.Time{})
		return err == nil && x.Reason == timer.ReasonPaused && strings.Contains(x.Text, ann.Note)
	})
	if n := f.watch.runs("often",
		func(v *visit) bool { // a run granted before the change may start a call later
			return v.began.After(asked.Add(f.storeTimeout() + f.late(asked)))
		}); n != 0 {
		t.Errorf("%d runs began while the timer was paused", n)
	}
	resumed := time.Now()
	for _, name := range []string{"often", "seldom"} {
		op.does("to resume", func(ctx context.Context) error { return op.Resume(ctx, name, ann) })
	}
	f.until("it runs again", func() bool { return f.watch.runs("often", since(resumed)) > 3 })
	f.until("nobody thinks it paused", func() bool {
		for _, h := range f.Hosts {
			if f.status(h, "often").Paused != nil || f.status(h, "seldom").Paused != nil {
				return false
			}
		}
		return true
	})
	f.stop()
}

func limitOverridden(s *suite, t *testing.T) {
	f := s.fleet(t)
	gate, open := f.gate()
	work := timer.Timer{Name: "a", Schedule: schedule.Every(s.Period), OnStoreDown: timer.StoreDownSkip,
		Run: hold(gate)}
	for range 3 {
		f.start(timer.Config{}, work)
	}
	running := func() (n int) {
		f.watch.mu.Lock()
		defer f.watch.mu.Unlock()
		return len(f.watch.active)
	}
	f.until("the code's one run", func() bool { return running() == 1 })
	op := f.operator()
	f.watch.mu.Lock()
	limits := f.watch.limits["a"]
	limits.MaxConcurrency = 4 // each tick still starts one run
	f.watch.limits["a"] = limits
	f.watch.mu.Unlock()
	op.does("a limit of 4", func(ctx context.Context) error { return op.SetMaxConcurrency(ctx, "a", 4, ann) })
	f.until("as many runs as the override says", func() bool { return running() == 4 })
	f.until("all hosts know", func() bool {
		for _, h := range f.Hosts {
			if st := f.status(h, "a"); st.MaxConcurrency != 4 || st.MaxPerTick != 1 || st.MaxPerHost != 4 {
				return false
			}
		}
		return true
	})
	// One host does not learn that the limit is now two.
	away := f.Hosts[2]
	away.Link.Inject(dlocktest.Hang)
	op.does("a limit of 2", func(ctx context.Context) error { return op.SetMaxConcurrency(ctx, "a", 2, ann) })
	asked := time.Now()
	open()
	f.until("the runs of before have ended", func() bool {
		return running() == 0 ||
			f.watch.runs("a", since(asked.Add(f.storeTimeout()))) > 0
	})
	away.Link.Heal()
	f.until("the host that was away knows", func() bool { return f.status(away, "a").LimitOverride == 2 })
	f.watch.mu.Lock()
	limits.MaxConcurrency = 2
	f.watch.limits["a"] = limits
	f.watch.peaks["a"] = 0
	f.watch.mu.Unlock()
	f.until("it goes on", func() bool { return f.watch.runs("a", since(asked)) > 5 })
	op.does("what the code says", func(ctx context.Context) error { return op.ResetMaxConcurrency(ctx, "a", ann) })
	f.until("all hosts know", func() bool {
		for _, h := range f.Hosts {
			if st := f.status(h, "a"); st.MaxConcurrency != 1 || st.LimitOverride != 0 {
				return false
			}
		}
		return true
	})
	f.stop()
}

func triggers(s *suite, t *testing.T) {
	f := s.fleet(t)
	work := timer.Timer{Name: "a", MaxConcurrency: 3, OnStoreDown: timer.StoreDownSkip,
		Run: func(context.Context) error { return nil }}
	for range 3 {
		f.start(timer.Config{}, work)
	}
	away := f.Hosts[2]
	away.Link.Inject(dlocktest.Hang)
	op := f.operator()
	for i := range 2 {
		before := f.watch.runs("a", all)
		at, ordered := op.triggers("a")
		f.until("one host runs it", func() bool {
			if f.watch.runs("a", since(at)) > 0 {
				return true
			}
			// At most one host tries, and only once. If its call failed on a busy machine, another
			// trigger is needed.
			if failed := f.Hosts[0].Link.failed(at) + f.Hosts[1].Link.failed(at); failed > 0 &&
				time.Since(at) > f.hears()+f.suite.TTL {
				var more int
				at, more = op.triggers("a")
				ordered += more
			}
			return false
		})
		if i == 0 {
			away.Link.Heal() // it learns of a trigger that is already taken
		}
		f.until("every host has heard of it", func() bool { return time.Since(at) > f.hears()+f.suite.TTL/3 })
		if n := f.watch.runs("a", all) - before; n < 1 || n > ordered {
			t.Errorf("%d runs after %d triggers", n, ordered)
		}
	}
	f.stop()
}

func forced(s *suite, t *testing.T) {
	f := s.fleet(t)
	work := timer.Timer{Name: "a", MaxConcurrency: 2, OnStoreDown: timer.StoreDownSkip, Run: hold(nil)}
	a, b := f.start(timer.Config{}, work), f.start(timer.Config{}, work)
	f.trigger(a, "a")
	f.trigger(b, "a")
	f.until("both run", func() bool { return f.watch.on(a, "a") != nil && f.watch.on(b, "a") != nil })
	victim, other := f.watch.on(a, "a"), f.watch.on(b, "a")
	op := f.operator()
	at := time.Now()
	op.does("the release", func(ctx context.Context) error { return op.CancelRun(ctx, "a", victim.ID(), ann) })
	asked := time.Now()
	select {
	case <-victim.ctx.Done():
	case <-time.After(patience):
		t.Fatal("the run was not told")
	}
	if took := time.Since(asked); took > f.hears()+f.late(asked) && !f.strained(a, asked) {
		t.Errorf("told after %v", took)
	}
	cause := context.Cause(victim.ctx)
	lost, ok := errors.AsType[*dlock.LostError](cause)
	switch {
	case !ok:
		t.Errorf("cause %v, want one that matches dlock.ErrLost", cause)
	case lost.RevokedBy == nil || *lost.RevokedBy != ann:
		if !f.strained(a, at) { // otherwise it may have been lost to the busy machine
			t.Errorf("cause %v, want one that names %v", cause, ann)
		}
	}
	if victim.Valid() {
		t.Error("valid after it was told")
	}
	f.take("timer:a", 2, 1)
	f.trigger(a, "a")
	f.until("the slot has its next run", func() bool {
		return f.watch.on(a, "a") != nil &&
			f.watch.on(a, "a") != victim
	})
	if next := f.watch.on(a, "a"); next.Slot() == victim.Slot() && next.Fence() <= victim.Fence() {
		t.Errorf("fence %d after %d", next.Fence(), victim.Fence())
	}
	if other.ctx.Err() != nil && !f.strained(b, at) {
		t.Errorf("the other run was ended, too: %v", context.Cause(other.ctx))
	}
	for _, h := range f.Hosts {
		if v := f.watch.on(h, "a"); v != nil && v.ctx.Err() == nil {
			op.does("the release", func(ctx context.Context) error {
				err := op.CancelSlot(ctx, "a", v.Slot(), ann)
				if errors.Is(err, timer.ErrNoRun) {
					return nil
				}
				return err
			})
		}
	}
	f.until("all have returned", func() bool { return f.watch.now("a") == nil })
	f.stop()
}
