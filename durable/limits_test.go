package durable_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/internal/store"
)

// All three limits hold at every instant and are reached: the fleet limits of one handler and of
// all handlers, even if workers of two versions have different values, and the limit of a worker.
//
// Fails when a claim does not count, or a worker claims more than it has room for.
func TestLimits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		for i := range 4 {
			newer := i % 2
			f.add(durable.Config{MaxRuns: 4, MaxActive: 8 + newer, PollInterval: time.Second}).
				handle("some", sleeps(3*time.Second), durable.HandlerOptions{MaxConcurrency: 2 + newer}).
				handle("any", sleeps(5*time.Second), durable.HandlerOptions{}).start()
		}
		for i := range 60 {
			f.trigger([]string{"some", "any"}[i%2], durable.TriggerOptions{})
		}
		pass(10 * time.Minute)
		if left := f.runs(store.StateQueued, store.StateRunning, store.StateDead); len(left) > 0 {
			t.Errorf("%d are left", len(left))
		}
		f.end()
		onHost := 0
		for _, h := range f.hosts {
			onHost = max(onHost, f.watch.maxOf("calls on "+h.name))
		}
		all, some := f.watch.maxOf("runs in the fleet"), f.watch.maxOf("runs of some")
		if all < 8 || some < 2 || onHost < 4 {
			t.Errorf("%d runs in the fleet, %d of a handler, %d on a host: the limits were not reached", all, some,
				onHost)
		}
	})
}

// An override of a limit binds every worker until it is removed. An override of 0 stops a handler.
//
// Fails when a worker uses the limit from its code.
func TestOverrideOfALimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		for range 2 {
			f.add(durable.Config{}).handle("report", sleeps(time.Second),
				durable.HandlerOptions{MaxConcurrency: 4}).start()
		}
		set := func(n int) {
			if err := f.store.SetHandler(t.Context(), "report", store.Override{MaxConcurrency: &n}); err != nil {
				t.Fatal(err)
			}
			pass(5 * time.Second)
		}
		running := func() int { return len(f.runs(store.StateRunning)) }
		for range 500 {
			f.trigger("report", durable.TriggerOptions{})
		}
		for _, c := range [][2]int{{0, 0}, {1, 1}, {-1, 4}, {2, 2}} {
			if set(c[0]); running() > c[1] {
				t.Errorf("override %d: %d runs are running", c[0], running())
			}
		}
		pass(10 * time.Minute)
		if running() != 0 || len(f.runs(store.StateSucceeded)) != 500 {
			t.Error("not all runs have ended")
		}
		f.end()
	})
}

// More urgent runs are claimed first, and among those, the runs that have been due longer. A run
// that is due later begins when it is due.
//
// Fails when claims have another order.
func TestOrderOfClaims(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.add(durable.Config{MaxRuns: 1}).handle("report", sleeps(time.Second), durable.HandlerOptions{})
		low := f.trigger("report", durable.TriggerOptions{Priority: durable.PriorityLow})
		first := f.trigger("report", durable.TriggerOptions{})
		pass(time.Second)
		second := f.trigger("report", durable.TriggerOptions{})
		high := f.trigger("report", durable.TriggerOptions{Priority: durable.PriorityHigh})
		later := f.trigger("report", durable.TriggerOptions{RunIn: 1234 * time.Millisecond,
			Priority: durable.PriorityHigh})
		h.start()
		pass(time.Minute)
		var at []time.Time
		for _, id := range []int64{high, first, later, second, low} {
			run, _ := f.run(id)
			at = append(at, run.ClaimedAt)
		}
		for i := 1; i < len(at); i++ {
			if !at[i-1].Before(at[i]) {
				t.Errorf("%d: %v", i, at)
			}
		}
		f.end()
	})
}

// A free place is used immediately. Four workers with ten places each keep at least 95 % of a limit
// of 40 busy with runs of five seconds (river#1145 reports half of that).
//
// Fails when a place that has become free waits for a poll.
func TestSlotUtilization(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		for range 4 {
			h := f.add(durable.Config{MaxRuns: 10, MaxActive: 40}).
				handle("report", sleeps(5*time.Second), durable.HandlerOptions{MaxConcurrency: 40})
			h.link.on(func(string) (fault, time.Duration) { return answer, 5 * time.Millisecond })
			h.start()
		}
		for range 40 * 12 {
			f.trigger("report", durable.TriggerOptions{})
		}
		pass(time.Minute + time.Second)
		busy := float64(5*len(f.runs(store.StateSucceeded))) / 60 / 40
		t.Logf("%.1f %% of the places were busy", 100*busy)
		if busy < 0.95 {
			t.Errorf("%.1f %%", 100*busy)
		}
		f.end()
	})
}

// Each pause between polls is drawn at random from the whole range. Without jitter, all pauses are
// the same.
//
// Fails when a worker draws only once, or from another range.
func TestPollJitter(t *testing.T) {
	for _, jitter := range []float64{0, 0.5, durable.NoJitter} {
		t.Run(fmt.Sprint(jitter), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				h := f.add(durable.Config{PollInterval: 10 * time.Second, PollJitter: jitter}).
					handle("report", sleeps(0), durable.HandlerOptions{})
				polls := map[string][]time.Time{}
				h.link.on(func(op string) (fault, time.Duration) {
					polls[op] = append(polls[op], time.Now())
					return well, 0
				})
				h.start()
				pass(time.Hour)
				f.end()
				share := map[float64]float64{0: durable.DefaultPollJitter, 0.5: 0.5, durable.NoJitter: 0}[jitter]
				for _, op := range []string{"due", "claim", "reclaim"} {
					least, most := time.Hour, time.Duration(0)
					for i := 2; i < len(polls[op]); i++ { // the listener woke the first poll
						pause := polls[op][i].Sub(polls[op][i-1])
						least, most = min(least, pause), max(most, pause)
					}
					low, high := time.Duration(10e9*(1-share)), time.Duration(10e9*(1+share))
					if least < low || most > high || share > 0 && (least > low+high/20 || most < high-high/20) {
						t.Errorf("%s: pauses from %v to %v, want %v to %v", op, least, most, low, high)
					}
				}
			})
		})
	}
}

// An idle worker only polls, and the number of its calls is known.
//
// Fails when a loop calls more often, or the renewer calls without a lease.
func TestIdleWorkerOnlyPolls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.add(durable.Config{}).handle("report", sleeps(0), durable.HandlerOptions{})
		for i := range 100 {
			h.schedule(fmt.Sprint("daily", i), "report", dailyAtNoon, durable.ScheduleOptions{})
		}
		h.start()
		pass(time.Minute)
		before := map[string]int{}
		ops := map[string]int{"due": 12, "claim": 12, "reclaim": 12, "materialize": 0, "renew": 0, "finish": 0,
			"sweep": 1,
			"stats": 2, "register": 1, "notify": 0, "verify": 0}
		for op := range ops {
			before[op] = h.link.count(op)
		}
		pass(time.Hour)
		for op, perMinute := range ops {
			n := h.link.count(op) - before[op]
			if most := 60*perMinute + 8*perMinute; n > most || n < 60*perMinute-8*perMinute {
				t.Errorf("%s: %d calls in an hour, want about %d", op, n, 60*perMinute)
			}
		}
		f.end()
	})
}

// Notify wakes the workers of other processes, even after connections were lost. Without Notify,
// they poll.
//
// Fails when a listener does not reconnect.
func TestNotify(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		f.add(durable.Config{PollInterval: time.Hour}).handle("report", sleeps(0), durable.HandlerOptions{}).start()
		pass(time.Minute)
		for i := range 5 {
			id := f.queue("report", durable.TriggerOptions{})
			pass(time.Second)
			if f.watch.called(id) != 0 {
				t.Fatal("the run was found without a hint")
			}
			if i%2 == 0 {
				f.store.Disconnect() // the listener triggers a poll when it has reconnected
			} else {
				durable.NewStore(f.store).Notify()
			}
			pass(10 * time.Second)
			if f.watch.called(id) != 1 {
				t.Errorf("hint %d was not received", i)
			}
		}
		f.end()
	})
}

// If a worker without room has queued a tick, another worker is notified and starts it.
//
// Fails when the worker does not notify the others.
func TestTickGoesToAWorkerWithRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		full := f.add(durable.Config{MaxRuns: 1}).handle("long", sleeps(5*time.Hour), durable.HandlerOptions{}).
			handle("report", sleeps(0), durable.HandlerOptions{}).
			schedule("often", "report", everyMinute, durable.ScheduleOptions{}).start()
		f.trigger("long", durable.TriggerOptions{})
		pass(time.Second)
		f.add(durable.Config{PollInterval: 24 * time.Hour}).handle("report", sleeps(0),
			durable.HandlerOptions{}).start()
		pass(time.Hour)
		runs := f.runs(store.StateSucceeded)
		if len(runs) != 60 {
			t.Errorf("%d runs", len(runs))
		}
		for _, r := range runs {
			if late := r.ClaimedAt.Sub(r.DueAt); late > 10*time.Millisecond {
				t.Errorf("the tick %v began %v late", r.DueAt, late)
			}
		}
		full.stop()
		f.end()
	})
}
