package timer_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A recorder records the start times of runs by host and tick.
type recorder struct {
	mu   sync.Mutex
	runs map[string]map[time.Time][]time.Time
}

func (r *recorder) handler(host string) func(context.Context) error {
	return func(ctx context.Context) error {
		run, _ := timer.RunFromContext(ctx)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.runs == nil {
			r.runs = map[string]map[time.Time][]time.Time{}
		}
		if r.runs[host] == nil {
			r.runs[host] = map[time.Time][]time.Time{}
		}
		r.runs[host][run.Tick()] = append(r.runs[host][run.Tick()], time.Now())
		return nil
	}
}

// of returns the start times of the runs on a host, by tick.
func (r *recorder) of(host string) map[time.Time][]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.runs[host])
}

func minutely() schedule.Interval { return schedule.Every(time.Minute).Offset(0) }

// Jitter delays a tick by up to its fraction of the time to the next tick, by the same amount on
// every host. The tick itself does not change, the delays are spread evenly, and no tick is lost.
// By default there is no jitter.
//
// Fails when settings.jitter uses a source that is not seeded by name and tick, or when it uses
// twice its fraction.
func TestJitter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, rec := newFleet(t), recorder{}
		for _, host := range []string{"a", "b", "c"} {
			job := timer.Timer{Name: "job", Schedule: minutely(), MaxConcurrency: timer.NoLimit,
				MaxPerTick: timer.NoLimit, Delay: timer.Delay{Jitter: .3}, Run: rec.handler(host)}
			sharp := job
			sharp.Name, sharp.Delay.Jitter, sharp.Run = "sharp", 0, rec.handler(host+" sharp")
			f.start(timer.Config{}, job, sharp)
		}
		const most = 18 * time.Second
		ticks := testkit.Rounds(t, 200, 1000)
		time.Sleep(time.Duration(ticks)*time.Minute + most + time.Second)
		f.ended()
		var buckets [9]int
		var last time.Time
		runs := map[string]map[time.Time][]time.Time{}
		for _, host := range []string{"a", "b", "c", "c sharp"} {
			runs[host] = rec.of(host)
		}
		for i := range ticks {
			tick := time.Date(2000, 1, 1, 0, i+1, 0, 0, time.UTC)
			at := runs["a"][tick]
			if len(at) != 1 || at[0].Before(tick) || !at[0].Before(tick.Add(most)) || !at[0].After(last) {
				t.Fatalf("the run of %v began at %v, the one before at %v", tick, at, last)
			}
			last = at[0]
			for _, host := range []string{"b", "c"} {
				if other := runs[host][tick]; len(other) != 1 || !other[0].Equal(at[0]) {
					t.Fatalf("%v: %v on one host, %v on another", tick, at, other)
				}
			}
			if sharp := runs["c sharp"][tick]; len(sharp) != 1 || !sharp[0].Equal(tick) {
				t.Fatalf("without jitter the run of %v began at %v", tick, sharp)
			}
			buckets[at[0].Sub(tick)/(most/9)]++
		}
		for _, n := range buckets { // expected 111 ± 10 of 1,000 ticks, 22 ± 5 of 200
			if even := ticks / 9; n < even*2/5 || n > even*8/5 {
				t.Errorf("delays are not spread evenly: %v", buckets)
			}
		}
		t.Logf("%d delays in ninths of the bound: %v", ticks, buckets)
	})
}

// A host that starts while Delay postpones a tick still tries that tick, once. Hosts that are
// constantly replaced lose no tick and repeat none.
//
// Fails when schedules.first does not look for ticks that jitter delays (delayed), or ignores the
// spread when it asks for the next tick.
func TestDelayedTicksSurviveRestarts(t *testing.T) {
	for name, job := range map[string]timer.Timer{
		"jitter": {Delay: timer.Delay{Jitter: .5}}, "little jitter": {Delay: timer.Delay{Jitter: .1}},
		"spread": {Delay: timer.Delay{ByTimer: time.Hour}}, "both": {Delay: timer.Delay{Jitter: .5,
			ByTimer: 90 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, rec := newFleet(t), recorder{}
				job.Name, job.Schedule, job.LocalOnly, job.Run = "job", minutely(), true, rec.handler("a")
				time.Sleep(3 * time.Millisecond)
				for range testkit.Rounds(t, 400, 1000) {
					h := f.start(timer.Config{}, job)
					time.Sleep(7 * time.Second)
					h.Stopped(t)
					h.Accounted(t)
				}
				ran := rec.of("a")
				until := time.Now().Add(-time.Hour - time.Minute)
				for tick := time.Date(2000, 1, 1, 0, 1, 0, 0,
					time.UTC); tick.Before(until); tick = tick.Add(time.Minute) {
					if at := ran[tick]; len(at) != 1 {
						t.Fatalf("the tick %v ran %d times", tick, len(at))
					}
				}
			})
		})
	}
}

// The wall clock is set back while the host handles ticks, in this case in a schedule's Next. Its
// timers continue without waiting until the clock has caught up.
//
// Fails when the clocks are read only when the host wakes up. By that time it has decided to sleep
// for maxSleep, which is ten seconds.
func TestClockSetBackWhileTicksAreHandled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var host atomic.Pointer[timer.Scheduler]
		var asked atomic.Int64
		next := scheduleFunc(func(at time.Time) time.Time {
			if h := host.Load(); h != nil && asked.Add(1) == 5 {
				timer.SetSkew(h, -10*time.Minute)
			}
			return at.Truncate(time.Second).Add(time.Second)
		})
		// A run that ends would wake the host.
		end := make(chan struct{})
		run := func(context.Context) error { <-end; return nil }
		h := f.start(rarely, timer.Timer{Name: "job", Schedule: next, LocalOnly: true, Run: run})
		host.Store(h.Scheduler)
		time.Sleep(time.Minute)
		if st, _ := h.Status().Timer("job"); st.Ticks < 55 {
			t.Errorf("%d ticks of a second in a minute", st.Ticks)
		}
		close(end)
		f.Stop()
	})
}

// The wall clock is set back while a host that has just started waits for the store, as when all
// hosts of a fleet restart. Its timers continue without waiting until the clock has caught up.
//
// Fails when the clock is first read after that wait, and the first ticks were planned before.
func TestClockSetBackBeforeTheFirstAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, rec := newFleet(t), recorder{}
		store := dlocktest.NewFaulty(f.store)
		store.Inject(dlocktest.Hang)
		h := f.NewHost(store, rarely,
			timer.Timer{Name: "job", Schedule: schedule.Every(time.Second), Run: rec.handler("a")})
		f.Run(t.Context(), h)
		time.Sleep(100 * time.Millisecond)
		timer.SetSkew(h.Scheduler, -10*time.Minute)
		time.Sleep(100 * time.Millisecond)
		store.Heal()
		time.Sleep(time.Minute)
		if n := len(rec.of("a")); n < 50 {
			t.Errorf("%d runs of a timer of a second in a minute", n)
		}
		f.Stop()
	})
}

// If the wall clock is set back by less than a period, no tick is repeated or lost, with and
// without jitter. If it is set back by more, ticks that are in the future again become due again.
// Otherwise the timer would stop until the clock has caught up.
//
// Fails when planner.replan plans from now, or when schedules.first does not look for ticks that
// jitter delays. If the clock is set back by more, fails when planner.replan plans from the latest
// tick.
func TestClockSetBack(t *testing.T) {
	for name, job := range map[string]timer.Timer{"plain": {}, "jitter": {Delay: timer.Delay{Jitter: .5}},
		"spread": {Delay: timer.Delay{ByTimer: 10 * time.Minute}}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, rec := newFleet(t), recorder{}
				job.Name, job.Schedule, job.LocalOnly, job.Run = "job", minutely(), true, rec.handler("a")
				h := f.start(rarely, job)
				chance, skew := rand.New(rand.NewPCG(1, 1)), time.Duration(0)
				step := func(d time.Duration) {
					skew -= d
					timer.SetSkew(h.Scheduler, skew)
					timer.Poke(h.Scheduler)
				}
				for range testkit.Rounds(t, 100, 300) {
					time.Sleep(time.Duration(chance.IntN(180_000)) * time.Millisecond)
					step(1100*time.Millisecond + time.Duration(chance.IntN(28))*time.Second)
				}
				time.Sleep(11 * time.Minute)
				ran := rec.of("a")
				until := time.Now().Add(skew - 10*time.Minute - 30*time.Second)
				first := time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC)
				for tick := first; tick.Before(until); tick = tick.Add(time.Minute) {
					if at := ran[tick]; len(at) != 1 {
						t.Fatalf("the tick %v ran %d times", tick, len(at))
					}
				}
				before := len(rec.of("a"))
				step(time.Hour)
				time.Sleep(30*time.Minute + 10*time.Second)
				again := 0
				for _, at := range rec.of("a") {
					again += len(at) - 1
				}
				if again < 18 || again > 31 {
					t.Errorf("%d runs in half an hour after the clock went back by an hour", again)
				}
				if n := len(rec.of("a")); n > before+1 {
					t.Errorf("%d ticks ran after that, %d before", n, before)
				}
				f.ended()
			})
		})
	}
}

// A host that was suspended for a moment does not try a tick before its jitter has passed.
//
// Fails when schedules.due tries a tick that its jitter still delays.
func TestDelayedHostKeepsToTheJitter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, rec, s := newFleet(t), recorder{}, &sleeper{}
		job := timer.Timer{Name: "job", Schedule: schedule.Every(10 * time.Second).Offset(0), LocalOnly: true,
			Delay: timer.Delay{Jitter: .5}, Run: rec.handler("a")}
		f.start(timer.Config{}, job, s.timer())
		job.Run = rec.handler("b")
		f.start(timer.Config{}, job)
		chance := rand.New(rand.NewPCG(2, 2))
		for range 300 {
			time.Sleep(time.Duration(15+chance.IntN(15)) * time.Second)
			s.sleep(time.Now().Add(time.Duration(chance.IntN(18_000)) * time.Millisecond))
		}
		time.Sleep(time.Minute)
		f.ended()
		late := 0
		runs := rec.of("b")
		for tick, at := range rec.of("a") {
			punctual := runs[tick]
			if len(at) != 1 || len(punctual) != 1 || at[0].Before(punctual[0]) {
				t.Fatalf("the run of %v began at %v, on a host that is not held up at %v", tick, at, punctual)
			}
			if at[0].After(punctual[0]) {
				late++
			}
		}
		if late < 50 {
			t.Errorf("%d runs were late: too few to prove anything", late)
		}
	})
}

// Delay.ByTimer gives each timer its own delay, which is the same on every host and after a
// restart. Delay.ByHost also gives each host its own delay. Both are bounded and evenly
// distributed. They lose no tick, even if they are longer than the time between two ticks.
//
// Fails when settings.spread is not hashed by name or by host, when it is not bounded, or when
// schedules.due ignores the spread.
func TestSpread(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, rec := newFleet(t), recorder{}
		const bound, ticks, timersN = 150 * time.Second, 6, 100
		start := func(round string) {
			for _, host := range []string{"a", "b", "c"} {
				var timers []timer.Timer
				for i := range timersN {
					job := timer.Timer{Name: fmt.Sprint("job", i), Schedule: minutely(), MaxConcurrency: timer.NoLimit,
						MaxPerTick: timer.NoLimit, Delay: timer.Delay{ByTimer: bound},
						Run: rec.handler(fmt.Sprint(host, " job", i, round))}
					both := job
					both.Name, both.Delay.ByHost, both.Run = fmt.Sprint("both", i), bound,
						rec.handler(fmt.Sprint(host, " both", i, round))
					timers = append(timers, job, both)
				}
				f.start(timer.Config{Holder: dlock.Holder{Host: host, PID: 1, ID: host + round}}, timers...)
			}
		}
		delays := func(kind, round, host string) (list [timersN]time.Duration, begin time.Time) {
			for i := range timersN {
				runs := rec.of(fmt.Sprint(host, " ", kind, i, round))
				var first time.Time
				for tick, at := range runs {
					d := at[0].Sub(tick)
					if len(at) != 1 || list[i] != 0 && d != list[i] {
						t.Fatalf("%s %s%d: the run of %v began at %v, another %v after its tick", host, kind, i, tick,
							at, list[i])
					}
					list[i] = d
					if first.IsZero() || tick.Before(first) {
						first = tick
					}
				}
				for k := range len(runs) {
					if len(runs[first.Add(time.Duration(k)*time.Minute)]) != 1 {
						t.Fatalf("%s %s%d lost a tick: %v", host, kind, i, runs)
					}
				}
				if len(runs) < ticks-1 {
					t.Fatalf("%s %s%d: %d ticks", host, kind, i, len(runs))
				}
			}
			return list, begin
		}
		start("")
		time.Sleep(ticks * time.Minute)
		f.ended()
		start(" again")
		time.Sleep(ticks * time.Minute)
		f.ended()
		same, differ := 0, 0
		for _, kind := range []string{"job", "both"} {
			a, _ := delays(kind, "", "a")
			again, _ := delays(kind, " again", "a")
			b, _ := delays(kind, "", "b")
			if a != again {
				t.Errorf("%s: after a restart a host has other delays", kind)
			}
			var buckets [10]int
			for i := range a {
				if a[i] < 0 || kind == "job" && a[i] >= bound || a[i] >= 2*bound {
					t.Errorf("%s%d: a delay of %v", kind, i, a[i])
				}
				if kind == "job" {
					buckets[a[i]*10/bound]++
				}
				if a[i] == b[i] {
					same++
				} else {
					differ++
				}
			}
			for _, n := range buckets {
				if kind == "job" && (n < 2 || n > 24) {
					t.Errorf("not spread evenly: %v", buckets)
				}
			}
		}
		if same != timersN || differ != timersN {
			t.Errorf("%d timers have the same delay on two hosts, %d have not; want %d of each", same, differ, timersN)
		}
	})
}

// Delay.ByHost without NoLimit is refused, and so are invalid values. The error explains the fix.
func TestSpreadFaults(t *testing.T) {
	for want, job := range map[string]timer.Timer{
		"set MaxPerTick to timer.NoLimit":   {Delay: timer.Delay{ByHost: time.Minute}, MaxConcurrency: 5},
		"Delay.ByTimer: -1ns":               {Delay: timer.Delay{ByTimer: -1}},
		"Delay.ByHost: 25h0m0s":             {Delay: timer.Delay{ByHost: 25 * time.Hour}, MaxPerTick: timer.NoLimit},
		"Delay.Jitter: 0.6: use 0 to 0.5":   {Delay: timer.Delay{Jitter: .6}},
		"CatchUp.Policy: 9 is not a policy": {CatchUp: timer.CatchUp{Policy: 9}},
		"misses nothing":                    {CatchUp: timer.CatchUp{Policy: timer.CatchUpOnce}},
		"CatchUp.Window: -1s is negative":   {CatchUp: timer.CatchUp{Window: -time.Second}},
	} {
		job.Name, job.Run = "job", nop
		if _, err := timer.New(timer.Config{}, job); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
	}
}
