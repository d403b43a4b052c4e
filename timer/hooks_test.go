package timer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/control"
)

// told records the arguments of hooks. Hooks are called one at a time, so only readers need the
// mutex.
type told struct {
	mu      sync.Mutex
	order   []string // the names of the hooks that were called
	started []timer.RunInfo
	failed  []timer.AttemptInfo
	ended   []timer.RunResult
	skips   []timer.SkipInfo
	losses  []timer.LossInfo
	downs   []timer.StoreInfo
	ups     []timer.StoreInfo
	during  func(hook string) // runs during each call
}

func note[T any](x *told, hook string, list *[]T) func(T) {
	return func(info T) {
		x.mu.Lock()
		x.order = append(x.order, hook)
		*list = append(*list, info)
		x.mu.Unlock()
		if x.during != nil {
			x.during(hook)
		}
	}
}

func (x *told) hooks() timer.Hooks {
	return timer.Hooks{RunStarted: note(x, "RunStarted", &x.started),
		AttemptFailed: note(x, "AttemptFailed", &x.failed), RunEnded: note(x, "RunEnded", &x.ended),
		TickSkipped: note(x, "TickSkipped", &x.skips), LeaseLost: note(x, "LeaseLost", &x.losses),
		StoreDown: note(x, "StoreDown", &x.downs), StoreUp: note(x, "StoreUp", &x.ups)}
}

// skipped returns the number of skipped ticks of a timer by reason.
func (x *told) skipped(name string) map[timer.Reason]uint64 {
	sum := map[timer.Reason]uint64{}
	for _, s := range x.skips {
		if s.Timer == name {
			sum[s.Reason] += s.Ticks
		}
	}
	return sum
}

// Hooks are called once for every tick, with its run or with the reason why no run started. Their
// numbers equal the numbers in Status. They are also called for the start and the end of every run,
// in this order.
//
// Fails when ledger.skip calls a hook before the reason is known, when ledger.missed reports one
// tick instead of many, when events.close drops queued events, or when a Trigger counts as a tick.
func TestHooksAreToldOfEveryTickOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var x told
		var s *timer.Scheduler
		x.during = func(string) { s.Status() } // locks the mutexes that are held when events are sent
		f.start(timer.Config{}, timer.Timer{Name: "b", Schedule: schedule.Every(time.Second), Run: f.handler(0)})
		h := f.NewHost(dlocktest.NewFaulty(f.store), timer.Config{Hooks: x.hooks()},
			timer.Timer{Name: "a", Schedule: schedule.Every(time.Second), Run: f.handler(3 * time.Second)},
			timer.Timer{Name: "b", Schedule: schedule.Every(time.Second), Run: f.handler(0)},
			timer.Timer{Name: "dark", Schedule: schedule.Every(time.Second), Run: f.handler(0),
				Blackouts: []schedule.Blackout{schedule.DailyWindow("00:00", "00:01", "")}},
			timer.Timer{Name: "skips", Schedule: schedule.Every(time.Second), OnStoreDown: timer.StoreDownSkip,
				Run: f.handler(0)},
			timer.Timer{Name: "alone", Schedule: schedule.Every(time.Second), LocalOnly: true,
				Run: func(context.Context) error { panic("oh") }})
		s = h.Scheduler
		f.Run(t.Context(), h)
		time.Sleep(100 * time.Second)
		trigger(t, h, "alone")
		timer.SetSkew(h.Scheduler, time.Hour)
		time.Sleep(20 * time.Second)
		h.Link.Inject(down)
		time.Sleep(20 * time.Second)
		f.Stop()
		h.Accounted(t)
		for _, st := range h.Status().Timers {
			var ticks uint64
			for _, r := range x.started {
				if r.Timer == st.Name && !r.Tick.IsZero() {
					ticks++
				}
			}
			if skipped := x.skipped(st.Name); ticks != st.Started || !maps.Equal(skipped, st.Skipped) {
				t.Errorf("%s: got %d starts and %v, but %d and %v are counted", st.Name, ticks, skipped, st.Started,
					st.Skipped)
			}
		}
		var reasons []timer.Reason
		for _, s := range x.skips {
			reasons = append(reasons, s.Reason)
			if s.Timer == "" || s.Tick.IsZero() || s.Ticks == 0 || s.Ticks > 1 && s.Reason != timer.ReasonMissed {
				t.Fatalf("%+v", s)
			}
			if no, ok := errors.AsType[*dlock.NotAcquiredError](s.Err); ok && no.Holder != s.Holder {
				t.Fatalf("%+v", s)
			}
		}
		for _, want := range []timer.Reason{timer.ReasonMissed, timer.ReasonHostFull, timer.ReasonBlackout,
			timer.ReasonTickTaken, timer.ReasonStoreDown} {
			if !slices.Contains(reasons, want) {
				t.Errorf("the test proves nothing: no tick was skipped because of %q", want)
			}
		}
		if len(x.started) != len(x.ended) {
			t.Errorf("%d runs started and %d ended", len(x.started), len(x.ended))
		}
		if h.Status().DroppedEvents != 0 {
			t.Errorf("%d events were dropped", h.Status().DroppedEvents)
		}
		f.watch.check(t)
	})
}

// Hooks receive the run of an event, and how the run ended.
//
// Fails when newRun does not count the first attempt, when runEnded omits the error, or when the
// mark of Permanent is visible.
func TestHooksAreToldWhatBecameOfARun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var x told
		errNo := errors.New("no")
		tick := time.Now().Add(10 * time.Second)
		id := ""
		h := f.start(timer.Config{Hooks: x.hooks()},
			timer.Timer{Name: "a", Schedule: schedule.At(tick), Retry: timer.Retry{MaxAttempts: 3,
				If: func(error) bool { return true }},
				Run: func(ctx context.Context) error {
					time.Sleep(time.Second)
					r, _ := timer.RunFromContext(ctx)
					id = r.ID()
					switch r.Attempt() {
					case 1:
						return errNo
					case 2:
						panic("oh")
					default:
						return timer.Permanent(errNo)
					}
				}})
		time.Sleep(time.Minute)
		f.Stop()
		if got := strings.Join(x.order, " "); got != "RunStarted AttemptFailed AttemptFailed RunEnded" {
			t.Fatal(got)
		}
		start := x.started[0]
		if start.Timer != "a" || !start.Tick.Equal(tick) || start.Tick.Location() != time.UTC || start.Slot != 0 ||
			start.Fence == 0 || start.Holder != h.Status().Holder || !start.StartedAt.Equal(tick) ||
			start.Attempt != 1 || start.Degraded || start.ID != id || id == "" {
			t.Errorf("started %+v", start)
		}
		first, second, end := x.failed[0], x.failed[1], x.ended[0]
		if first.RunInfo != start || first.Err != errNo || first.RetryIn <= 0 || first.RetryIn > time.Second {
			t.Errorf("the first attempt: %+v", first)
		}
		failed := first.FailedAt.Sub(start.StartedAt)
		if again := second.FailedAt.Sub(first.FailedAt); failed != time.Second || again != first.RetryIn+time.Second {
			t.Errorf("attempts failed %v after the start, and %v later", failed, again)
		}
		if p, ok := second.Err.(*timer.PanicError); !ok || p.Value != "oh" || second.Attempt != 2 {
			t.Errorf("the second attempt: %+v", second)
		}
		start.Attempt, start.Valid = 3, false // at the end of the run its slot is released
		if end.RunInfo != start || end.Err != errNo || end.Outcome != timer.OutcomeFailed ||
			end.Took != 3*time.Second+first.RetryIn+second.RetryIn {
			t.Errorf("ended %+v", end)
		}
	})
}

// Hooks are called when the store is down and when it is up again, and for runs that lose their
// slots in the meantime.
//
// Fails when storeChanged reports each failure, or when leaseLost reports the slot that the run
// gets next.
func TestHooksAreToldOfAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var x told
		h := f.start(timer.Config{Hooks: x.hooks()},
			timer.Timer{Name: "goes on", Run: f.handler(time.Hour)},
			timer.Timer{Name: "ends", OnStoreDown: timer.StoreDownSkip, Run: f.handler(time.Hour)})
		trigger(t, h, "goes on", "ends")
		h.Link.Inject(down)
		time.Sleep(time.Minute)
		h.Link.Heal()
		time.Sleep(time.Minute)
		x.mu.Lock()
		if len(x.downs) != 1 || x.downs[0].Store != "memory" || x.downs[0].Server != "" || x.downs[0].NotSetUp ||
			x.downs[0].Err == nil || x.downs[0].DownFor != 0 {
			t.Errorf("down %+v", x.downs)
		}
		if len(x.ups) != 1 || x.ups[0].Err != nil || x.ups[0].DownFor < 50*time.Second || x.ups[0].Store != "memory" {
			t.Errorf("up %+v", x.ups)
		}
		if len(x.losses) != 2 || len(x.ended) != 1 || x.ended[0].Outcome != timer.OutcomeLeaseLost {
			t.Fatalf("losses %+v, ended %+v", x.losses, x.ended)
		}
		for _, l := range x.losses {
			if !l.LostAt.Equal(x.ended[0].StartedAt.Add(x.ended[0].Took)) {
				t.Errorf("lost at %v: %+v", l.LostAt, x.ended[0])
			}
			goesOn := l.Timer == "goes on"
			lost, ok := l.Err.(*dlock.LostError)
			if !ok || !lost.Silent || l.GoesOn != goesOn || l.Degraded != goesOn || l.Fence != x.started[0].Fence ||
				l.Slot != 0 {
				t.Errorf("lost %+v", l)
			}
		}
		x.mu.Unlock()
		h.Link.Inject(dlocktest.Error(dlock.ErrSetup))
		time.Sleep(time.Minute)
		h.Cancel()
		_ = h.Wait()
		if len(x.downs) != 2 || !x.downs[1].NotSetUp || !errors.Is(x.downs[1].Err, dlock.ErrSetup) {
			t.Errorf("down again %+v", x.downs)
		}
	})
}

// If a store has several servers, hooks receive the name of the server that is down.
//
// Fails when no hook is called for a server.
func TestHooksAreToldOfOneServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var x told
		store := newThreeServers(f.store)
		f.startOn(store, timer.Config{Hooks: x.hooks()},
			timer.Timer{Name: "a", Schedule: schedule.Every(time.Second), Run: f.handler(0)},
			timer.Timer{Name: "c", Schedule: schedule.Every(time.Second), Run: f.handler(0)})
		time.Sleep(20 * time.Second)
		store.server["a"].Inject(down)
		time.Sleep(time.Minute)
		store.server["a"].Heal()
		time.Sleep(time.Minute)
		f.Stop()
		if len(x.downs) != 1 || x.downs[0].Server != "a" || len(x.ups) != 1 || x.ups[0].Server != "a" {
			t.Errorf("down %+v, up %+v", x.downs, x.ups)
		}
	})
}

// A hook may panic, exit, be slow, never return or call the Scheduler, and no timer loses a tick.
// Run returns in time and names a hook that does not return.
//
// Fails when a hook is called in the goroutine of a run or of the planner, with a mutex held, or
// without a recover. Also fails when events.close waits forever.
func TestI10HooksHarmNobody(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		hook func(*host)
		only string // the hook that misbehaves; "" means all
		// These are the expected effects.
		stuck   bool          // Run names the hook
		dropped bool          // events were dropped
		within  time.Duration // the time that Run may take to return
		logged  string
	}{
		"panics": {hook: func(*host) { panic("oh") }, logged: "a hook panicked"},
		"exits":  {hook: func(*host) { runtime.Goexit() }},
		"slow": {hook: func(*host) { time.Sleep(2 * time.Second) }, dropped: true, within: 2 * timer.HookGrace,
			logged: "hooks are too slow"},
		"stuck": {hook: func(*host) { time.Sleep(time.Hour) }, stuck: true, dropped: true, within: timer.HookGrace,
			logged: "hooks are too slow"},
		"stops":  {hook: func(h *host) { h.Cancel(); h.Cancel() }},
		"looks":  {hook: func(h *host) { h.Status(); h.TimersSucceed(); h.Explain(ctx, "a", time.Time{}) }},
		"starts": {hook: func(h *host) { h.Trigger(ctx, "triggered") }, only: "AttemptFailed"},
		"changes": {only: "AttemptFailed", hook: func(h *host) {
			h.Register(timer.Timer{Name: "new", Schedule: schedule.Every(time.Second), Run: nop})
			h.Remove(ctx, "new")
		}},
		"updates": {only: "AttemptFailed", hook: func(h *host) {
			h.Update(timer.Timer{Name: "triggered", Run: nop})
		}},
		"controls": {only: "AttemptFailed", hook: func(h *host) {
			c := control.New(control.Config{Store: h.Link})
			c.Pause(ctx, "triggered", time.Time{}, ann)
			c.SetMaxConcurrency(ctx, "a", 2, ann)
			c.Trigger(ctx, "triggered", control.TriggerOptions{By: ann})
			c.Inspect(ctx, "triggered")
			c.Resume(ctx, "triggered", ann)
		}},
		"waits": {hook: func(h *host) { <-h.Done() }, stuck: true, dropped: true, within: timer.HookGrace,
			logged: "hooks are too slow"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				var log testkit.Log
				var x told
				var h *host
				every := time.Second
				if c.dropped {
					every = 10 * time.Millisecond // more events than the queue holds
				}
				x.during = func(hook string) {
					if c.only == "" || c.only == hook {
						c.hook(h)
					}
				}
				h = f.NewHost(dlocktest.NewFaulty(f.store), timer.Config{Hooks: x.hooks(), Logger: textLogger(&log)},
					timer.Timer{Name: "triggered", Run: nop},
					timer.Timer{Name: "a", Schedule: schedule.Every(every), Run: nop},
					timer.Timer{Name: "fails", Schedule: schedule.Every(time.Second), LocalOnly: true,
						Retry: timer.Retry{MaxAttempts: 2, FirstWait: time.Millisecond},
						Run:   func(context.Context) error { return errors.New("no") }})
				f.Run(t.Context(), h)
				const lasts = 80 * time.Second
				if name == "stops" {
					<-h.Done()
					return
				}
				time.Sleep(lasts / 2)
				h.Link.Inject(down)
				time.Sleep(lasts / 4)
				h.Link.Heal()
				time.Sleep(lasts / 4)
				st, _ := h.Status().Timer("a")
				if want := uint64(lasts / every); st.Started < want-2 {
					t.Errorf("%d runs, want %d: a hook affected other timers; %v", st.Started, want, st.Skipped)
				}
				if dropped := h.Status().DroppedEvents > 0; dropped != c.dropped {
					t.Errorf("dropped %d events", h.Status().DroppedEvents)
				}
				if n := strings.Count(log.String(), "hooks are too slow"); n > int(lasts/time.Minute)+1 {
					t.Errorf("%d lines about dropped events", n)
				}
				began := time.Now()
				h.Cancel()
				err := h.Wait()
				if took := time.Since(began); took > c.within {
					t.Errorf("Run returned after %v, want at most %v", took, c.within)
				}
				left, ok := errors.AsType[*timer.StuckError](err)
				if ok != c.stuck || ok && (left.Hook != "RunStarted" || len(left.Timers) != 0 ||
					!strings.Contains(err.Error(), "the hook RunStarted")) {
					t.Errorf("Run returned %v", err)
				}
				h.Accounted(t)
				if !strings.Contains(log.String(), c.logged) {
					t.Errorf("nothing says %q:\n%.2000s", c.logged, log.String())
				}
				time.Sleep(time.Hour) // until the stuck hook has returned, too
			})
		})
	}
}

// A StoreCalled hook that blocks delays no run, and Run names it.
//
// Fails when it is called in the goroutine that called the store.
func TestHookOfCallsToTheStoreThatBlocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{Hooks: timer.Hooks{StoreCalled: func(dlock.StoreCall) { time.Sleep(time.Hour) }}},
			timer.Timer{Name: "a", Schedule: schedule.Every(time.Second), Run: f.handler(0)})
		time.Sleep(time.Minute)
		if st, _ := h.Status().Timer("a"); st.Started < 59 {
			t.Errorf("%d runs in a minute", st.Started)
		}
		h.Cancel()
		if left, ok := errors.AsType[*timer.StuckError](h.Wait()); !ok || left.Hook != "StoreCalled" {
			t.Errorf("Run returned %v", left)
		}
		time.Sleep(time.Hour) // until the stuck hook has returned, too
	})
}

// StoreCalled is called for each call to the store, with the time at which the call began and the
// values of the caller's context. If it panics, nothing else is affected.
//
// Fails when it is called instead of the storeWatch, which then notices no call, or when a call has
// the wrong context.
func TestHookOfCallsToTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var mu sync.Mutex
		calls := map[dlock.StoreOp]int{}
		triggered := 0
		h := f.start(timer.Config{Hooks: timer.Hooks{StoreCalled: func(c dlock.StoreCall) {
			mu.Lock()
			defer mu.Unlock()
			calls[c.Op]++
			if c.StartedAt.IsZero() || time.Since(c.StartedAt) != c.Took {
				t.Errorf("%+v", c)
			}
			if c.Op == dlock.StoreOpAcquire && c.Context.Value(ctxKey{}) == "request" {
				triggered++
			}
			panic("oh")
		}}}, timer.Timer{Name: "a", Schedule: schedule.Every(time.Minute).Offset(0),
			Run: f.handler(20 * time.Second)})
		time.Sleep(90 * time.Second)
		if err := h.Trigger(context.WithValue(t.Context(), ctxKey{}, "request"), "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		h.Link.Inject(down)
		time.Sleep(time.Minute)
		if st := h.Status(); st.Store.Up {
			t.Errorf("the store is down: %+v", st.Store)
		}
		h.Link.Heal()
		f.Stop()
		if triggered != 1 || calls[dlock.StoreOpExtend] == 0 || calls[dlock.StoreOpRelease] < 2 {
			t.Errorf("hooks got %v, %d of the Trigger", calls, triggered)
		}
	})
}

// Events up to the end of Run, including the end of the last run, are delivered before Run returns.
//
// Fails when Run does not wait for hooks, or closes them before the runs have ended.
func TestHooksAreToldOfTheLastRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var x told
		x.during = func(string) { time.Sleep(100 * time.Millisecond) }
		h := f.start(timer.Config{Hooks: x.hooks()}, timer.Timer{Name: "a", MaxConcurrency: 10,
			Run: f.handler(time.Second)})
		for range 10 {
			trigger(t, h, "a")
		}
		f.Stop()
		if len(x.started) != 10 || len(x.ended) != 10 {
			t.Errorf("hooks got %d starts and %d ends, want 10 each", len(x.started), len(x.ended))
		}
	})
}

// If a run is still in progress when Run returns, its end is not reported and starts no goroutine.
//
// Fails when events.close does not disable later events.
func TestHooksAreNotToldAfterRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var x told
		release := make(chan struct{})
		h := f.start(timer.Config{Hooks: x.hooks(), DrainTimeout: time.Second}, timer.Timer{Name: "a",
			Run: func(context.Context) error { <-release; return nil }})
		trigger(t, h, "a")
		h.Cancel()
		if err := h.Wait(); err == nil || !strings.Contains(err.Error(), "1 handlers that ignore their context: a") {
			t.Error(err)
		}
		close(release)
		synctest.Wait()
		if got := fmt.Sprint(x.order); got != "[RunStarted]" || h.Status().DroppedEvents != 1 {
			t.Errorf("hooks got %v, %d dropped", got, h.Status().DroppedEvents)
		}
	})
}
