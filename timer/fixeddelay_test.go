package timer_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/control"
)

// A span is one run, from start to end.
type span struct{ start, end time.Time }

// spans are the runs of a timer in the fleet, as recorded by its handlers.
type spans struct {
	mu   sync.Mutex
	list []span
}

// handler returns a handler that runs for the time that takes returns, and then fails, panics or
// succeeds.
func (s *spans) handler(takes func() time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		start := time.Now()
		err := sleep(ctx, takes())
		s.mu.Lock()
		n := len(s.list)
		s.list = append(s.list, span{start, time.Now()})
		s.mu.Unlock()
		switch {
		case n%5 == 3:
			return errors.New("it failed")
		case n%7 == 5:
			panic("it panicked")
		}
		return err
	}
}

func (s *spans) always(d time.Duration) func(context.Context) error {
	return s.handler(func() time.Duration { return d })
}

// gaps checks that each run started between least and most after the end of the previous run.
func (s *spans) gaps(t *testing.T, least, most time.Duration) (runs int) {
	t.Helper()
	list := s.all()
	for i := 1; i < len(list); i++ {
		if gap := list[i].start.Sub(list[i-1].end); gap < least || gap > most {
			t.Errorf("run %d began %v after the end of the one before: must be %v to %v", i, gap, least, most)
		}
	}
	return len(list)
}

// all returns the runs that have ended, sorted by their start.
func (s *spans) all() []span {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(slices.Values(s.list), func(a, b span) int { return a.start.Compare(b.start) })
}

func (s *spans) last() span {
	list := s.all()
	if len(list) == 0 {
		return span{}
	}
	return list[len(list)-1]
}

// A countingStore is a countingLock that also has the other capabilities of a store.
type countingStore struct {
	*memlock.Store
	acquires countingLock
}

func newCountingStore(store *memlock.Store, name string) *countingStore {
	return &countingStore{store, countingLock{DistributedLock: store, name: name}}
}

func (c *countingStore) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return c.acquires.TryAcquire(ctx, req)
}

func (c *countingStore) calls() int { return int(c.acquires.calls.Load()) }

// Three hosts, one with a clock that is ahead and one with a clock that is behind, start each run
// exactly the delay after the end of the previous one. That holds whichever host ran it and however
// it ended.
//
// Fails when the store does not receive the delay, or when a host does not move its next tick when
// a run ends or the store says how long to wait.
func TestFixedDelayInTheFleet(t *testing.T) {
	cycles := testkit.Rounds(t, 10, 100)
	for _, delay := range []time.Duration{200 * time.Millisecond, 10 * time.Second, 10 * time.Minute} {
		for name, longest := range map[string]time.Duration{"short": delay / 2, "long": 3 * delay} {
			t.Run(delay.String()+" "+name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					f := newFleet(t)
					var s spans
					random := rand.New(rand.NewPCG(1, uint64(delay)))
					var mu sync.Mutex
					job := timer.Timer{Name: "job", Schedule: schedule.After(delay), MaxRunTime: 10 * time.Hour,
						Run: s.handler(func() time.Duration {
							mu.Lock()
							defer mu.Unlock()
							return time.Duration(random.Int64N(int64(longest)))
						})}
					counted := make([]*countingStore, 3)
					for i := range counted {
						counted[i] = newCountingStore(f.store, "timer:job")
						h := f.startOn(counted[i], timer.Config{}, timer.Timer{Name: "other", Run: nop})
						timer.SetSkew(h.Scheduler, time.Duration(i-1)*time.Hour)
						if err := h.Register(job); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(time.Duration(cycles) * (delay + longest))
					f.ended()
					runs := s.gaps(t, delay, delay+time.Millisecond)
					if runs < cycles {
						t.Errorf("%d runs in %d times the longest cycle", runs, cycles)
					}
					for i, c := range counted {
						// Each host makes one call when it is due, one that has to wait, and one
						// per delay (at least a second) during a run on another host.
						per := 2 + int(longest/max(delay, time.Second)) + 1
						if c.calls() > per*(runs+1) {
							t.Errorf("host %d made %d calls for %d runs: at most %d per run", i, c.calls(), runs, per)
						}
					}
				})
			})
		}
	}
}

// The lease of a host that crashed expires, and the delay counts from that time.
//
// Fails when the store forgets a lease that was not released.
func TestFixedDelayAfterACrash(t *testing.T) {
	for _, delay := range []time.Duration{20 * time.Second, time.Minute, time.Hour} {
		t.Run(delay.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				var s, survivors spans
				const ttl = 15 * time.Second
				crashed := f.start(timer.Config{TTL: ttl}, timer.Timer{Name: "job", Schedule: schedule.After(delay),
					OnStoreDown: timer.StoreDownSkip, MaxRunTime: 10 * time.Hour, Run: s.always(3 * delay)})
				defer f.Stop()
				defer crashed.Link.Heal()
				for range 2 {
					f.start(timer.Config{TTL: ttl}, timer.Timer{Name: "job", Schedule: schedule.After(delay),
						OnStoreDown: timer.StoreDownSkip, Run: survivors.always(delay)})
				}
				time.Sleep(2*delay + ttl) // until the store has renewed the lease
				if crashed.Status().Timers[0].Running == nil {
					t.Fatal("no run is in progress")
				}
				cut := time.Now()
				crashed.Link.Inject(dlocktest.Hang)
				time.Sleep(delay + 2*ttl + 2*max(delay, time.Second))
				list := survivors.all()
				if len(list) == 0 {
					t.Fatal("the other hosts started nothing")
				}
				least, most := cut.Add(ttl-ttl/3-time.Second+delay), cut.Add(ttl+delay+time.Second)
				if first := list[0].start; first.Before(least) || first.After(most) {
					t.Errorf("the first run began %v after the crash: must be %v to %v", first.Sub(cut), least.Sub(cut),
						most.Sub(cut))
				}
			})
		})
	}
}

// Replies that are lost, late or never arrive, and hosts that are cut off, may make runs start
// later, but never earlier. The delay counts from the time when the handler has returned or its
// context has ended.
//
// Fails when a release without an answer counts from before it was executed.
func TestFixedDelayUnderFaults(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var s spans
		const delay = 20 * time.Second
		for range 3 {
			f.start(timer.Config{}, timer.Timer{Name: "job", Schedule: schedule.After(delay),
				OnStoreDown: timer.StoreDownSkip, Run: s.always(10 * time.Second)})
		}
		random := rand.New(rand.NewPCG(7, 7))
		faults := []dlocktest.Fault{dlocktest.LostReply, dlocktest.SilentReply, dlocktest.Hang,
			dlocktest.Late(3 * time.Second), dlocktest.Late(40 * time.Second), dlocktest.Slow(700 * time.Millisecond)}
		steps := testkit.Rounds(t, 400, 2000)
		for range steps {
			link := f.Hosts[random.IntN(3)].Link
			if random.IntN(3) == 0 {
				link.Heal()
			} else {
				link.InjectN(random.IntN(20), faults[random.IntN(len(faults))])
			}
			time.Sleep(time.Duration(random.Int64N(int64(15 * time.Second))))
		}
		for _, h := range f.Hosts {
			h.Link.Heal()
		}
		time.Sleep(time.Minute)
		f.ended()
		if runs := s.gaps(t, delay, time.Hour); runs < steps/20 {
			t.Errorf("%d runs in about %d seconds", runs, steps*15/2)
		}
	})
}

// The delay does not start over when a host restarts or joins. The very first run starts
// immediately.
//
// Fails when the first tick of a host is claimed without the delay.
func TestFixedDelayAcrossRestarts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var s spans
		job := timer.Timer{Name: "job", Schedule: schedule.After(time.Hour), Run: s.always(time.Minute)}
		begun := time.Now()
		for range 50 {
			f.start(timer.Config{}, job)
			time.Sleep(7 * time.Minute)
			f.ended()
		}
		if runs := s.gaps(t, time.Hour, time.Hour+7*time.Minute); runs < 5 || !s.all()[0].start.Equal(begun) {
			t.Errorf("%d runs, the first at %v: must be at once, %v", runs, s.all()[0].start, begun)
		}
	})
}

// Without the store each host counts from its own runs, and from the last answer of the store.
//
// Fails when a tick during an outage does not wait for the delay after a run on its host, or when
// hosts do not agree again once the store is back.
func TestFixedDelayWithoutTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		all := make([]spans, 3)
		for i := range all {
			f.start(timer.Config{}, timer.Timer{Name: "job", Schedule: schedule.After(time.Minute),
				Run: all[i].always(10 * time.Second)})
		}
		time.Sleep(10 * time.Minute)
		for _, h := range f.Hosts {
			h.Link.Inject(dlocktest.Hang)
		}
		time.Sleep(20 * time.Minute)
		for i, h := range f.Hosts {
			h.Link.Heal()
			if n := all[i].gaps(t, time.Minute, time.Hour); n < 10 {
				t.Errorf("host %d had %d runs in an outage of 20 minutes", i, n)
			}
		}
		time.Sleep(5 * time.Minute)
		back := time.Now()
		time.Sleep(time.Hour)
		f.ended()
		var fleet spans
		for i := range all {
			for _, run := range all[i].list {
				if run.start.After(back) {
					fleet.list = append(fleet.list, run)
				}
			}
		}
		if n := fleet.gaps(t, time.Minute, time.Minute+time.Second); n < 40 {
			t.Errorf("%d runs in the hour after the outage", n)
		}
	})
}

// Like TestFixedDelayWithoutTheStore, without any store, and with a clock that jumps. A run never
// starts too early.
func TestFixedDelayOnOneHost(t *testing.T) {
	for _, config := range []timer.Config{{}, {Store: memlock.New()}} {
		bubbleNamed(t, config.Store != nil, func(t *testing.T) {
			if config.Store != nil {
				config.Store = memlock.New()
			}
			var s spans
			h, err := timer.New(config, timer.Timer{Name: "job", Schedule: schedule.After(time.Minute), LocalOnly: true,
				Run: s.always(5 * time.Minute)})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- h.Run(ctx) }()
			time.Sleep(time.Hour)
			if n := s.gaps(t, time.Minute, time.Minute+time.Millisecond); n != 10 {
				t.Errorf("%d runs of 5 minutes in an hour, must be 10", n)
			}
			time.Sleep(5*time.Minute + 30*time.Second) // in the middle of the delay
			for _, skew := range []time.Duration{time.Hour, -time.Hour, 0} {
				timer.SetSkew(h, skew)
				timer.Poke(h)
				time.Sleep(time.Hour)
			}
			if n := s.gaps(t, time.Minute, time.Minute+15*time.Second); n < 38 {
				t.Errorf("%d runs of 5 minutes in four hours", n)
			}
			if n := h.Status().Timers[0].Skipped[timer.ReasonTickEarly]; n == 0 || n > 5 {
				t.Errorf("%d ticks came too early, must be one for each jump", n)
			}
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

func bubbleNamed(t *testing.T, store bool, test func(*testing.T)) {
	t.Helper()
	name := "no store"
	if store {
		name = "local only"
	}
	t.Run(name, func(t *testing.T) { bubble(t, test) })
}

// A triggered run starts immediately, and its end counts like any other, also on other hosts.
//
// Fails when the gate refuses a Trigger because of the delay, or when only claimed runs count.
func TestFixedDelayAfterATrigger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var s spans
		job := timer.Timer{Name: "job", Schedule: schedule.After(time.Hour), Run: s.always(time.Minute)}
		a := f.start(timer.Config{}, job)
		f.start(timer.Config{}, job)
		time.Sleep(30 * time.Minute)
		if err := a.Trigger(t.Context(), "job"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		ended := s.last().end
		if ended.Sub(s.all()[0].start) < 30*time.Minute {
			t.Fatal("the triggered run did not start at once")
		}
		time.Sleep(time.Hour)
		f.ended()
		if next := s.last().start.Sub(ended); next != time.Hour || len(s.all()) != 3 {
			t.Errorf("%d runs, the last %v after the triggered one: must be 3, and 1h", len(s.all()), next)
		}
	})
}

// A tick that is due in a blackout or a pause starts when the blackout or pause ends, and does not
// wait for the delay again.
func TestFixedDelayWaitsForTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var s spans
		begun := time.Now()
		day := begun.Truncate(24 * time.Hour)
		blackout := schedule.Between(day.Add(time.Hour), day.Add(9*time.Hour))
		h := f.start(timer.Config{}, timer.Timer{Name: "job", Schedule: schedule.After(2 * time.Hour),
			Blackouts: []schedule.Blackout{blackout}, Run: s.always(time.Minute)})
		time.Sleep(10 * time.Hour)
		if got := s.last().start; len(s.all()) != 2 || !got.Equal(day.Add(9*time.Hour)) {
			t.Errorf("%d runs, the last at %v: must be 2, and when the blackout ends", len(s.all()), got)
		}
		ctl := control.New(control.Config{Store: f.store})
		if err := ctl.Pause(t.Context(), "job", time.Now().Add(3*time.Hour), driver.Cause{By: "test"}); err != nil {
			t.Fatal(err)
		}
		paused := time.Now()
		time.Sleep(150 * time.Minute)
		if n := h.Status().Timers[0].TicksSinceSuccess; n == 0 || n > 2 {
			t.Errorf("%d ticks without a success in a pause of 2h30m: most are retries", n)
		}
		time.Sleep(90 * time.Minute)
		if late := s.last().start.Sub(paused.Add(3 * time.Hour)); len(s.all()) != 3 || late < 0 || late > time.Minute {
			t.Errorf("%d runs, the last %v after the pause: must be 3, and at most a minute", len(s.all()), late)
		}
		f.ended()
	})
}

// Registration refuses settings that a fixed delay does not support, and explains the fix.
func TestFixedDelayFaults(t *testing.T) {
	t.Parallel()
	after := schedule.After(time.Minute)
	for want, change := range map[string]func(*timer.Timer){
		"MaxConcurrency: 2":         func(j *timer.Timer) { j.MaxConcurrency = 2 },
		"MaxConcurrency: -1":        func(j *timer.Timer) { j.MaxConcurrency = timer.NoLimit },
		"MaxPerTick: 3":             func(j *timer.Timer) { j.MaxPerTick = 3 },
		"MaxPerTick: -1":            func(j *timer.Timer) { j.MaxPerTick = timer.NoLimit },
		"CatchUp":                   func(j *timer.Timer) { j.CatchUp.Policy = timer.CatchUpOnce },
		"Delay":                     func(j *timer.Timer) { j.Delay.Jitter = 0.1 },
		"RunOnStart":                func(j *timer.Timer) { j.RunOnStart = timer.RunOnStartEachHost },
		"Schedule: After(0s)":       func(j *timer.Timer) { j.Schedule = schedule.After(0) },
		"Schedule: After(800h0m0s)": func(j *timer.Timer) { j.Schedule = schedule.After(800 * time.Hour) },
		"Schedule: Except: an After": func(j *timer.Timer) {
			j.Schedule = schedule.Except(after, schedule.Dates("", "2026-12-25"))
		},
		"Schedule: the store (simple": func(j *timer.Timer) {},
	} {
		job := timer.Timer{Name: "job", Schedule: after, Run: nop}
		change(&job)
		var store dlock.DistributedLock = memlock.New()
		if strings.Contains(want, "the store") {
			store = simpleStore{store}
		}
		if _, err := timer.New(timer.Config{Store: store}, job); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
	}
	job := timer.Timer{Name: "job", Schedule: after, LocalOnly: true, Run: nop, MaxConcurrency: 1, MaxPerTick: 1}
	if _, err := timer.New(timer.Config{Store: simpleStore{memlock.New()}}, job); err != nil {
		t.Error(err)
	}
	if schedule.Check(schedule.After(driver.MaxDelay)) != nil {
		t.Error("a delay that stores support is refused")
	}
}

// A simpleStore has only the three basic operations of a store.
type simpleStore struct{ dlock.DistributedLock }

func (simpleStore) String() string { return "simple" }

// Status knows only the next tick, and none while a run is in progress on this host.
func TestFixedDelayInStatus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var s spans
		h := f.start(timer.Config{}, timer.Timer{Name: "job", Schedule: schedule.After(time.Hour),
			Run: s.always(time.Minute)})
		synctest.Wait()
		st := h.Status().Timers[0]
		if ticks, err := st.NextTicks(3); err != nil || len(ticks) != 0 || !st.Next.IsZero() ||
			st.Schedule != "1h0m0s after the end of a run" {
			t.Errorf("while a run is in progress: %v, %v, %v, %q: want no tick", st.Next, ticks, err, st.Schedule)
		}
		time.Sleep(2 * time.Minute)
		st = h.Status().Timers[0]
		if ticks, err := st.NextTicks(3); err != nil || len(ticks) != 1 || !ticks[0].Equal(st.Next) ||
			!st.Next.Equal(s.last().end.Add(time.Hour)) {
			t.Errorf("after it: %v, %v, %v: want one tick an hour after the end", st.Next, ticks, err)
		}
		if x, err := h.Explain(t.Context(), "job", time.Time{}); err != nil || !x.Known || x.Run == nil {
			t.Errorf("%v, %v: want the run", x, err)
		}
		if x, err := h.Explain(t.Context(), "job", st.Next); err != nil || !strings.Contains(x.Text, "not due yet") {
			t.Errorf("%v, %v: want that it is not due yet", x, err)
		}
	})
}
