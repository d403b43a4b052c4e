package timer_test

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/control"
)

// seen records what a handler reads from its Run.
type seen struct {
	id             string
	tick, previous time.Time
	success        time.Time
	caughtUp       bool
	by             driver.Cause
	holder         dlock.Holder
}

func seenBy(ctx context.Context) seen {
	r, _ := timer.RunFromContext(ctx)
	by, _ := r.TriggeredBy()
	return seen{r.ID(), r.Tick(), r.PreviousTick(), r.LastSuccessAt(), r.CaughtUp(), by, r.Holder()}
}

// A handler can find out the previous tick, when its timer last succeeded on any host, whether the
// run is late, and who triggered it.
//
// Fails when the success of another host, the missed tick, or the origin of a trigger is not passed
// on, or when PreviousTick is the tick that ran before.
func TestRunTells(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		const beat = 21 * time.Minute
		on := func(host string) timer.Config {
			config := named(host)
			config.TTL = rarely.TTL
			return config
		}
		told := make(chan seen, 10)
		var got seen
		var fail atomic.Bool
		job := timer.Timer{Name: "a", Schedule: schedule.Daily("02:00", ""), Run: func(ctx context.Context) error {
			told <- seenBy(ctx)
			if fail.Load() {
				return errors.New("no luck")
			}
			return nil
		}}
		latest := func() {
			for len(told) > 0 {
				got = <-told
			}
		}
		day := func(n, hour int) time.Time { return time.Date(2000, 1, n, hour, 0, 0, 0, time.UTC) }
		a := f.start(on("a"), job)
		time.Sleep(time.Until(day(2, 3)))
		latest()
		first := got
		if !first.tick.Equal(day(2, 2)) || !first.previous.Equal(day(1, 2)) ||
			first.success.Sub(day(1, 2)).Abs() > time.Second || first.caughtUp || first.by != (driver.Cause{}) ||
			first.holder.Host != "a" || first.id == "" {
			t.Errorf("on time: %+v", first)
		}
		fail.Store(true)
		time.Sleep(time.Until(day(3, 1)))
		f.Stop(a)
		b := f.start(on("b"), job)
		time.Sleep(time.Until(day(3, 3)))
		latest()
		if !got.tick.Equal(day(3, 2)) || !got.previous.Equal(day(2, 2)) || got.holder.Host != "b" ||
			got.id == first.id || got.success.Sub(day(2, 2)).Abs() > time.Second {
			t.Errorf("after a success on another host: %+v", got)
		}
		f.Stop(b)
		time.Sleep(time.Until(day(4, 2).Add(20 * time.Minute)))
		c := f.start(on("c"), job)
		time.Sleep(time.Minute)
		latest()
		if !got.tick.Equal(day(4, 2)) || !got.caughtUp || !got.previous.Equal(day(3, 2)) {
			t.Errorf("missed: %+v", got)
		}
		if err := c.Trigger(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		latest()
		if !got.tick.IsZero() || !got.previous.IsZero() || got.caughtUp || got.by != (driver.Cause{}) {
			t.Errorf("triggered here: %+v", got)
		}
		ctl := control.New(control.Config{Store: f.store})
		if err := ctl.Trigger(t.Context(), "a", control.TriggerOptions{By: ann}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(beat)
		latest()
		if !got.tick.IsZero() || got.by != ann {
			t.Errorf("triggered by a Control: %+v", got)
		}
		st := must(c.Status().Timer("a"))
		if st.LastRunAt.IsZero() || time.Since(st.LastRunAt) > beat ||
			st.LastSuccessAt.Sub(day(2, 2)).Abs() > time.Second {
			t.Errorf("Status has the last run at %v, the last success at %v", st.LastRunAt, st.LastSuccessAt)
		}
		f.Stop()
	})
}

// The ID of a run is unique in the fleet, with or without a slot. It does not change if the run
// outlives its lease in an outage and gets another slot.
//
// Fails when the ID is computed from the lease that the run has at the time.
func TestRunIDs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var mu sync.Mutex
		ids := map[string]int{}
		note := func(d time.Duration) func(ctx context.Context) error {
			return func(ctx context.Context) error {
				r, _ := timer.RunFromContext(ctx)
				before := r.ID()
				err := sleep(ctx, d)
				mu.Lock()
				defer mu.Unlock()
				if r.ID() != before {
					t.Errorf("%s has become %s", before, r.ID())
				}
				ids[r.Timer()+" "+before]++
				return err
			}
		}
		every := schedule.Every(time.Second)
		timers := []timer.Timer{
			{Name: "often", Schedule: every, MaxConcurrency: 3, MaxPerTick: 3, Run: note(700 * time.Millisecond)},
			{Name: "local", Schedule: every, LocalOnly: true, Run: note(700 * time.Millisecond)},
			{Name: "long", Schedule: every, Run: note(90 * time.Second)},
		}
		hosts := []*host{f.start(named("a"), timers...), f.start(named("b"), timers...)}
		time.Sleep(30 * time.Second)
		for _, h := range hosts {
			h.Link.Inject(dlocktest.Hang)
		}
		time.Sleep(40 * time.Second)
		for _, h := range hosts {
			h.Link.Heal()
		}
		time.Sleep(2 * time.Minute)
		f.Stop()
		if len(ids) < 500 {
			t.Errorf("%d runs", len(ids))
		}
		for id, n := range ids {
			if n != 1 {
				t.Errorf("%s is the ID of %d runs", id, n)
			}
		}
	})
}

// Outside a run every method returns a value that means that there is no run.
//
// Fails when a method does not check for nil.
func TestNoRun(t *testing.T) {
	run, ok := timer.RunFromContext(t.Context())
	if ok || run != nil {
		t.Fatal(run, ok)
	}
	v := reflect.ValueOf(run)
	if v.NumMethod() < 13 {
		t.Errorf("%d methods", v.NumMethod())
	}
	for i := range v.NumMethod() {
		var args []reflect.Value
		for arg := range v.Method(i).Type().Ins() {
			args = append(args, reflect.Zero(arg))
		}
		for _, result := range v.Method(i).Call(args) {
			if !result.IsZero() {
				t.Errorf("%s returns %v", v.Type().Method(i).Name, result)
			}
		}
	}
}

// A test of a handler chooses what the handler reads from its Run, and can end its lease.
//
// Fails when a field is not passed on, or when the Run does not end with the context from which it
// was created.
func TestContextWithRun(t *testing.T) {
	tick := time.Date(2026, 7, 1, 2, 30, 0, 0, time.UTC)
	info := timer.RunSpec{Timer: "a", Tick: tick, PreviousTick: tick.Add(-time.Hour),
		LastSuccessAt: tick.Add(-time.Minute), CaughtUp: true, OnStart: true, TriggeredBy: ann,
		Payload: []byte("p"), Slot: 2,
		Fence: 17, Attempt: 3, Holder: dlock.Holder{Host: "h", PID: 1, ID: "x"}}
	type key struct{}
	ctx, lose := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
	defer lose(nil)
	ctx = timer.ContextWithRun(ctx, info)
	r, ok := timer.RunFromContext(ctx)
	if !ok || r == nil {
		t.Fatal(r, ok)
	}
	by, triggered := r.TriggeredBy()
	got := timer.RunSpec{Timer: r.Timer(), Tick: r.Tick(), PreviousTick: r.PreviousTick(),
		LastSuccessAt: r.LastSuccessAt(), CaughtUp: r.CaughtUp(), OnStart: r.OnStart(), TriggeredBy: by,
		Payload: r.Payload(), Slot: r.Slot(),
		Fence: r.Fence(), Attempt: r.Attempt(), Holder: r.Holder()}
	if !reflect.DeepEqual(got, info) || !triggered || r.ID() != "2-17" || !r.Valid() || r.Degraded() ||
		ctx.Value(key{}) != "value" || ctx.Err() != nil {
		t.Errorf("%+v, %v, %v, %v; want %+v", got, triggered, r.ID(), ctx.Err(), info)
	}
	lose(&dlock.LostError{Name: "timer:a"})
	if r.Valid() || !errors.Is(context.Cause(ctx), dlock.ErrLost) {
		t.Errorf("lost: valid %v, cause %v", r.Valid(), context.Cause(ctx))
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		t.Error("lost, but its context has not ended")
	}

	r, _ = timer.RunFromContext(timer.ContextWithRun(t.Context(), timer.RunSpec{}))
	if r.Attempt() != 1 || !r.Tick().IsZero() || !r.PreviousTick().IsZero() || r.Slot() != 0 || !r.Valid() ||
		r.Fence() != 0 {
		t.Errorf("the zero value: %+v", r)
	}
	r, _ = timer.RunFromContext(timer.ContextWithRun(t.Context(), timer.RunSpec{Degraded: true, Slot: -1}))
	if r.Valid() || !r.Degraded() || r.Slot() != -1 {
		t.Errorf("degraded: %+v", r)
	}
	short := timer.ContextWithRun(t.Context(), timer.RunSpec{MaxRunTime: time.Millisecond})
	select {
	case <-short.Done():
		if !errors.Is(context.Cause(short), timer.ErrMaxRunTime) {
			t.Error(context.Cause(short))
		}
	case <-time.After(time.Minute):
		t.Error("MaxRunTime is not kept to")
	}
}

// Running is closed when Trigger starts runs, and remains closed after the end. It is also closed
// if Run finds that the store is not set up correctly, so that no caller waits forever.
//
// Fails when New closes it, when it is closed only after the store has answered, or when it is
// never closed if Run fails.
func TestRunning(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.NewHost(dlocktest.NewFaulty(f.store), timer.Config{}, timer.Timer{Name: "a", Run: f.handler(0)})
		isClosed := func() bool {
			select {
			case <-h.Running():
				return true
			default:
				return false
			}
		}
		if isClosed() || !refused(h.Trigger(t.Context(), "a"), timer.ReasonNotRunning) {
			t.Error("it runs before Run")
		}
		h.Link.InjectN(1, dlocktest.Slow(500*time.Millisecond))
		f.Run(t.Context(), h)
		began := time.Now()
		<-h.Running()
		if err := h.Trigger(t.Context(), "a"); err != nil || time.Since(began) > time.Second {
			t.Errorf("right after Running: %v after %v", err, time.Since(began))
		}
		time.Sleep(time.Minute)
		f.Stop()
		if !isClosed() || h.Ready() == nil {
			t.Error("after the end: it is not closed, or ready")
		}

		broken := dlocktest.NewFaulty(f.store)
		broken.Inject(dlocktest.Error(dlock.ErrSetup))
		s, err := timer.New(timer.Config{Store: broken}, timer.Timer{Name: "a", Run: f.handler(0)})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- s.Run(t.Context()) }()
		<-s.Running()
		if err := <-done; !errors.Is(err, dlock.ErrSetup) {
			t.Error(err)
		}
		if _, err := s.Trigger(t.Context(), "a", timer.TriggerOptions{}); !refused(err, timer.ReasonStoreSetup) ||
			!errors.Is(err, dlock.ErrSetup) {
			t.Error(err)
		}
	})
}
