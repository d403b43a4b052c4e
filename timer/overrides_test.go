package timer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/control"
)

var ann = driver.Cause{By: "ann", Note: "the database is being moved"}

// beat is the time in which every host has learned of an update: the longest heartbeat, plus a
// margin.
const beat = dlock.DefaultTTL/3 + time.Second

// A pause reaches every host with its next tick, and ends when it expires or with Resume. Errors,
// Status and Explain say who paused the timer and why.
//
// Fails when Control does not update fleet.HostsLock (Status of a timer that is not due), when
// overrides.update forgets a pause, or when applyAnswer ignores a refusal.
func TestPauseReachesTheFleet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		often := timer.Timer{Name: "often", Schedule: schedule.Every(time.Second), Run: f.handler(time.Millisecond)}
		seldom := timer.Timer{Name: "seldom", Schedule: schedule.Every(240 * time.Hour),
			Run: f.handler(time.Millisecond)}
		for range 3 {
			f.start(timer.Config{}, often, seldom)
		}
		time.Sleep(time.Minute)
		ctl := f.Hosts[0].Control()
		end := time.Now().Add(10 * time.Minute)
		for _, name := range []string{"often", "seldom"} {
			if err := ctl.Pause(t.Context(), name, end, ann); err != nil {
				t.Fatal(err)
			}
		}
		ran, _ := f.watch.ticks("often")
		time.Sleep(beat)
		for i, h := range f.Hosts {
			for _, ts := range h.Status().Timers {
				if ts.Paused == nil || ts.Paused.Cause != ann || ts.Paused.Until.Sub(end).Abs() > 2*time.Second {
					t.Errorf("host %d: %s: paused %+v, want until %v by ann", i, ts.Name, ts.Paused, end)
				}
			}
			if err := h.Trigger(t.Context(), "seldom"); !refused(err, timer.ReasonPaused) ||
				!strings.Contains(err.Error(), "ann: the database") {
				t.Errorf("host %d: a trigger during a pause: %v", i, err)
			}
			x, err := h.Explain(t.Context(), "often", time.Time{})
			if err != nil || x.Reason != timer.ReasonPaused || !strings.Contains(x.Text,
				"paused by ann: the database is being moved") {
				t.Errorf("host %d: %v, %v", i, x, err)
			}
		}
		if after, _ := f.watch.ticks("often"); after != ran {
			t.Errorf("%d ticks ran during the pause", after-ran)
		}
		if err := ctl.Resume(t.Context(), "often", ann); err != nil {
			t.Fatal(err)
		}
		time.Sleep(beat)
		if after, _ := f.watch.ticks("often"); after == ran {
			t.Error("nothing ran after Resume")
		}
		for i, h := range f.Hosts {
			often, _ := h.Status().Timer("often")
			seldom, _ := h.Status().Timer("seldom")
			if often.Paused != nil || seldom.Paused == nil {
				t.Errorf("host %d: after Resume: often %+v, seldom %+v", i, often.Paused, seldom.Paused)
			}
		}
		time.Sleep(11 * time.Minute)
		for i, h := range f.Hosts {
			if seldom, _ := h.Status().Timer("seldom"); seldom.Paused != nil {
				t.Errorf("host %d: still paused: %+v", i, seldom.Paused)
			}
		}
		if err := f.Hosts[0].Trigger(t.Context(), "seldom"); err != nil {
			t.Errorf("a trigger after the pause: %v", err)
		}
		f.Stop()
	})
}

// An override of MaxConcurrency applies on every host from its next tick. MaxPerHost follows it if
// MaxPerHost is not set, and does not change otherwise.
//
// Fails when hostLimit ignores the override, when setLimit is not called for refusals, or when a
// refusal shows a number other than the one in effect, or does not show who set it.
func TestLimitReachesTheFleet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		open := timer.Timer{Name: "open", Schedule: schedule.Every(time.Second), Run: f.handler(time.Hour)}
		stated := timer.Timer{Name: "stated", Schedule: schedule.Every(time.Second), MaxConcurrency: 4, MaxPerTick: 1,
			MaxPerHost: 1, Run: f.handler(90 * time.Second)}
		for range 3 {
			f.start(timer.Config{}, open, stated)
		}
		running := func(name string) (n int) {
			f.watch.mu.Lock()
			defer f.watch.mu.Unlock()
			return f.watch.running[name]
		}
		time.Sleep(10 * time.Second)
		if n := running("open"); n != 1 {
			t.Fatalf("%d runs, want the 1 that the code sets", n)
		}
		ctl := control.New(control.Config{Store: f.store})
		set := func(name string, n int) {
			t.Helper()
			if err := ctl.SetMaxConcurrency(t.Context(), name, n, ann); err != nil {
				t.Fatal(err)
			}
			time.Sleep(beat)
		}
		set("open", 7)
		time.Sleep(10 * time.Second)
		if n := running("open"); n != 7 {
			t.Errorf("%d runs of a timer with 7 overridden", n)
		}
		for i, h := range f.Hosts {
			if ts, _ := h.Status().Timer("open"); ts.MaxConcurrency != 7 || ts.MaxPerTick != 1 || ts.MaxPerHost != 7 ||
				ts.LimitOverride != 7 {
				t.Errorf("host %d: %+v", i, ts)
			}
		}
		set("stated", 2)
		time.Sleep(3 * time.Minute) // until the earlier runs have ended
		if n := running("stated"); n != 2 {
			t.Errorf("%d runs of a timer with 2 overridden", n)
		}
		told := 0
		for _, h := range f.Hosts {
			ts, _ := h.Status().Timer("stated")
			for _, d := range ts.Decisions() {
				by := fmt.Sprintf("(limited to 2 %s; 4 in the code)", ann)
				if strings.Contains(d.Text, "all 2 slots held") && strings.Contains(d.Text, by) {
					told++
				} else if strings.Contains(d.Text, "all 4 slots") {
					t.Errorf("with 2 overridden: %s", d.Text)
				}
			}
		}
		if told == 0 {
			t.Error("no host reports that both slots are held, and who set the limit")
		}
		set("stated", 9)
		time.Sleep(time.Minute)
		if n := running("stated"); n != 3 {
			t.Errorf("%d runs on 3 hosts with MaxPerHost 1", n)
		}
		set("stated", 0)
		time.Sleep(3 * time.Minute)
		if n := running("stated"); n != 0 {
			t.Errorf("%d runs of a timer with 0 overridden", n)
		}
		if ts, _ := f.Hosts[0].Status().Timer("stated"); ts.Paused == nil || ts.Paused.Cause != ann ||
			!ts.Paused.Until.IsZero() {
			t.Errorf("with 0 overridden: %+v", ts.Paused)
		}
		if err := ctl.ResetMaxConcurrency(t.Context(), "stated", ann); err != nil {
			t.Fatal(err)
		}
		time.Sleep(beat + 5*time.Second)
		if ts, _ := f.Hosts[0].Status().Timer("stated"); ts.MaxConcurrency != 4 || ts.LimitOverride != 0 ||
			running("stated") != 3 {
			t.Errorf("after the override was reset: %d runs, %+v", running("stated"), ts)
		}
		f.Stop()
	})
}

// One host runs a trigger of a Control once, within a heartbeat, even for a timer without a
// schedule.
//
// Fails when a host starts a run without having taken the trigger, or when overrides.update does
// not record the time.
func TestTriggerInTheFleet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		manual := timer.Timer{Name: "manual", MaxConcurrency: 3, Run: f.handler(time.Second)}
		for range 4 {
			f.start(timer.Config{}, manual)
		}
		time.Sleep(time.Minute)
		total := func() (n int) {
			f.watch.mu.Lock()
			defer f.watch.mu.Unlock()
			for _, starts := range f.watch.starts["manual"] {
				n += starts
			}
			return n
		}
		ctl := f.Hosts[3].Control()
		for i := range 3 {
			if err := ctl.Trigger(t.Context(), "manual", control.TriggerOptions{By: ann}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(beat)
			if n := total(); n != i+1 {
				t.Errorf("%d runs after %d triggers", n, i+1)
			}
		}
		f.start(timer.Config{}, manual) // a host that starts later finds no trigger
		time.Sleep(time.Hour)
		f.start(timer.Config{}, manual) // nor does a host that starts much later
		time.Sleep(time.Minute)
		if n := total(); n != 3 {
			t.Errorf("%d runs after 3 triggers", n)
		}
		f.Stop()
		f.watch.check(t)
	})
}

// The context of a canceled run ends within a heartbeat, with the name of the caller. The slot of
// the run is free when the handler has returned, not before. The late release does not free another
// run's slot.
//
// Fails when the heartbeat drops Result.RevokedBy.
func TestCancelRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		causes := make(chan error, 10)
		long := timer.Timer{Name: "long", MaxConcurrency: 2, Run: func(ctx context.Context) error {
			defer f.watch.enter(ctx)()
			<-ctx.Done()
			causes <- context.Cause(ctx)
			time.Sleep(7 * time.Second) // the handler returns slowly
			return nil
		}}
		a, b := f.start(timer.Config{}, long), f.start(timer.Config{}, long)
		time.Sleep(time.Minute)
		for _, h := range []*host{a, b} {
			if err := h.Trigger(t.Context(), "long"); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		ctl := b.Control()
		ts, _ := a.Status().Timer("long")
		if err := ctl.CancelRun(t.Context(), "long", ts.Running[0].ID, ann); err != nil {
			t.Fatal(err)
		}
		if err := b.Trigger(t.Context(), "long"); !refused(err, timer.ReasonFull) {
			t.Errorf("the slot was free at once: %v", err)
		}
		var cause error
		started := time.Now()
		cause = <-causes
		if took := time.Since(started); took > beat {
			t.Errorf("told after %v", took)
		}
		lost, ok := errors.AsType[*dlock.LostError](cause)
		if !ok || !errors.Is(cause, dlock.ErrLost) || lost.RevokedBy == nil || *lost.RevokedBy != ann ||
			!strings.Contains(cause.Error(), "ann") {
			t.Errorf("cause %v", cause)
		}
		if err := b.Trigger(t.Context(), "long"); !refused(err, timer.ReasonFull) {
			t.Errorf("the slot was free before the handler had returned: %v", err)
		}
		time.Sleep(8 * time.Second)
		if err := b.Trigger(t.Context(), "long"); err != nil {
			t.Errorf("the slot is not free after the handler has returned: %v", err)
		}
		if err := ctl.CancelSlot(t.Context(), "long", 7, ann); !errors.Is(err, timer.ErrNoRun) {
			t.Errorf("a slot that no run holds: %v", err)
		}
		ts, _ = a.Status().Timer("long")
		if ts.Last == nil || ts.Last.Outcome != timer.OutcomeCanceled {
			t.Errorf("how it ended: %+v", ts.Last)
		}
		select {
		case cause := <-causes:
			t.Errorf("another run was ended: %v", cause)
		default:
		}
		synctest.Wait()
		var canceled []*host
		for _, h := range []*host{a, b} {
			for _, r := range must(h.Status().Timer("long")).Running {
				if err := ctl.CancelSlot(t.Context(), "long", r.Slot, ann); err != nil {
					t.Error(err)
				}
				canceled = append(canceled, h)
			}
		}
		time.Sleep(time.Minute)
		if len(canceled) == 0 {
			t.Error("no run was canceled by its slot")
		}
		for _, h := range canceled {
			if last := must(h.Status().Timer("long")).Last; last == nil || last.Outcome != timer.OutcomeCanceled {
				t.Errorf("a run that was canceled by its slot ended as %+v", last)
			}
		}
		f.Stop()
		f.watch.check(t)
	})
}

func must(ts timer.TimerStatus, ok bool) timer.TimerStatus {
	if !ok {
		panic("no such timer")
	}
	return ts
}

// A host that was cut off when an override was set applies it once it reaches the store again.
//
// Fails when readOverrides records overrides as read although it could not read them.
func TestOverridesReachAHostThatWasCutOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		job := timer.Timer{Name: "job", Schedule: schedule.Every(time.Second), OnStoreDown: timer.StoreDownSkip,
			Run: f.handler(time.Millisecond)}
		seldom := timer.Timer{Name: "seldom", Schedule: schedule.Every(240 * time.Hour),
			Run: f.handler(time.Millisecond)}
		a, b := f.start(timer.Config{}, job, seldom), f.start(timer.Config{}, job, seldom)
		time.Sleep(time.Minute)
		b.Link.Inject(dlocktest.Hang)
		for _, name := range []string{"job", "seldom"} {
			if err := a.Control().Pause(t.Context(), name, time.Now().Add(time.Hour), ann); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Control().Resume(t.Context(), "job", ann); err == nil {
			t.Error("an update that did not reach the store was acknowledged")
		}
		time.Sleep(time.Minute)
		b.Link.Heal()
		b.Link.Inject(dlocktest.Hang, dlocktest.OpControl) // it learns of an override, but cannot read it yet
		time.Sleep(time.Minute)
		before := b.Link.Calls(dlocktest.OpControl)
		b.Link.Heal()
		time.Sleep(time.Minute)
		if ts, _ := b.Status().Timer("seldom"); ts.Paused == nil {
			t.Errorf("the host that was cut off does not know of the pause; it called %d times",
				b.Link.Calls(dlocktest.OpControl)-before)
		}
		calls := b.Link.Calls(dlocktest.OpControl)
		time.Sleep(time.Minute)
		if n := b.Link.Calls(dlocktest.OpControl) - calls; n != 0 {
			t.Errorf("nothing was overridden, and the store was inspected %d times", n)
		}
		f.Stop()
	})
}

// A pause of a LocalOnly timer has no effect. A pause of a timer without any limit takes effect
// within a heartbeat.
//
// Fails when gate.why does not call pausedHere.
func TestPauseOfTimersThatDoNotAskTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		local := timer.Timer{Name: "local", Schedule: schedule.Every(time.Second), LocalOnly: true,
			Run: f.handler(time.Millisecond)}
		free := timer.Timer{Name: "free", Schedule: schedule.Every(time.Second), MaxConcurrency: timer.NoLimit,
			MaxPerTick: timer.NoLimit, Run: f.handler(time.Millisecond)}
		h := f.start(timer.Config{}, local, free)
		time.Sleep(time.Minute)
		for _, name := range []string{"local", "free"} {
			if err := h.Control().Pause(t.Context(), name, time.Now().Add(time.Hour), ann); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(beat)
		l, _ := f.watch.ticks("local")
		n, _ := f.watch.ticks("free")
		time.Sleep(time.Minute)
		if after, _ := f.watch.ticks("local"); after-l != 60 {
			t.Errorf("a local timer ran %d times a minute", after-l)
		}
		if after, _ := f.watch.ticks("free"); after != n {
			t.Errorf("a paused timer without limits ran %d times", after-n)
		}
		if err := h.Trigger(t.Context(), "free"); !refused(err, timer.ReasonPaused) {
			t.Errorf("a trigger during a pause: %v", err)
		}
		time.Sleep(time.Hour)
		if after, _ := f.watch.ticks("free"); after == n {
			t.Error("it did not continue after the pause")
		}
		f.Stop()
	})
}

// Invalid updates are refused with an error that explains the fix. A store without overrides
// returns ErrNoControl.
func TestControlRefuses(t *testing.T) {
	ctl := control.New(control.Config{Store: memlock.New()})
	ctx := t.Context()
	byNobody := ctl.Trigger(ctx, "x", control.TriggerOptions{By: driver.Cause{Note: "because"}})
	for want, err := range map[string]error{
		"is over":                      ctl.Pause(ctx, "x", time.Now().Add(-time.Second), ann),
		"say who":                      ctl.Pause(ctx, "x", time.Now().Add(time.Hour), driver.Cause{}),
		"at most 87600h0m0s":           ctl.Pause(ctx, "x", time.Now().AddDate(11, 0, 0), ann),
		"use 0 to 10000":               ctl.SetMaxConcurrency(ctx, "x", -1, ann),
		"10001":                        ctl.SetMaxConcurrency(ctx, "x", 10_001, ann),
		"an empty By":                  byNobody,
		"control character":            ctl.Resume(ctx, "x", driver.Cause{By: "a\nb"}),
		"slot 0: timer: no such run":   ctl.CancelSlot(ctx, "x", 0, ann),
		"by its slot or on its host":   ctl.CancelRun(ctx, "x", "h/1/x-1", ann),
		"slot 3: timer: no such run":   ctl.CancelRun(ctx, "x", "3-17", ann),
		`"slot:"`:                      ctl.Resume(ctx, "x:slot:1", ann),
		"the store keeps no overrides": control.New(control.Config{Store: nil}).Resume(ctx, "x", ann),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q in it", err, want)
		}
	}
	if o, err := ctl.Inspect(ctx, "x"); err != nil || o.Version != 0 || o.Name != "x" {
		t.Errorf("refused updates were stored: %+v, %v", o, err)
	}
}

// spoilt is a store that cannot return the overrides of one name, because its key is damaged.
type spoilt struct {
	*memlock.Store
	name string
}

func (s spoilt) Inspect(ctx context.Context, names ...string) ([]driver.ControlState, error) {
	list, err := s.Store.Inspect(ctx, names...)
	if i := slices.Index(names, s.name); err == nil && i >= 0 {
		list[i] = driver.ControlState{Name: s.name, Err: fmt.Errorf("%w: the key has another value", dlock.ErrFault)}
	}
	return list, err
}

// A fault in one timer's key does not prevent the prober from reading the overrides of other
// timers.
//
// Fails when readBatch gives up at the fault of one name.
func TestOverridesBesideADamagedKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.startOn(spoilt{f.store, "timer:bad"}, timer.Config{},
			timer.Timer{Name: "a", Run: f.handler(time.Second)}, timer.Timer{Name: "bad", Run: f.handler(time.Second)},
			timer.Timer{Name: "z", Run: f.handler(time.Second)})
		time.Sleep(time.Minute)
		for _, name := range []string{"a", "z"} {
			if err := h.Control().Trigger(t.Context(), name, control.TriggerOptions{By: ann}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(beat)
		for _, name := range []string{"a", "z"} {
			if ran, _ := f.watch.ticks(name); ran != 1 {
				t.Errorf("%s: %d runs after a trigger", name, ran)
			}
		}
		calls := h.Link.Calls(dlocktest.OpControl)
		time.Sleep(time.Minute)
		if n := h.Link.Calls(dlocktest.OpControl) - calls; n != 0 {
			t.Errorf("nothing was overridden, and the store was inspected %d times", n)
		}
		f.Stop()
	})
}

// If Update makes a LocalOnly timer use the store, the timer gets its overrides with the next
// probe, even if it has no limit that needs the store.
//
// Fails when timerChange.update does not make the prober read the overrides again.
func TestOverridesOfATimerThatWasLocalOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		list := []timer.Timer{
			{Name: "paused", Schedule: schedule.Every(time.Second), MaxConcurrency: timer.NoLimit,
				MaxPerTick: timer.NoLimit, LocalOnly: true, Run: f.handler(0)},
			{Name: "triggered", LocalOnly: true, Run: f.handler(0)}}
		h := f.start(timer.Config{}, list...)
		ctl := control.New(control.Config{Store: f.store})
		if err := ctl.Pause(t.Context(), "paused", time.Now().Add(3*time.Hour), ann); err != nil {
			t.Fatal(err)
		}
		if err := ctl.Trigger(t.Context(), "triggered", control.TriggerOptions{By: ann}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		for _, job := range list {
			job.LocalOnly = false
			if err := h.Update(job); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(dlock.DefaultTTL)
		before, _ := f.runs("paused")
		time.Sleep(time.Minute)
		if n, _ := f.runs("paused"); n != before {
			t.Errorf("%d runs in a minute of a pause", n-before)
		}
		if n, _ := f.runs("triggered"); n != 1 {
			t.Errorf("%d runs, want the one that was triggered", n)
		}
		f.ended()
	})
}
