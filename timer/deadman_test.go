package timer_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// TimersSucceed names each timer without a successful run on any host for AlarmAfter ticks, with
// the reason. A metric shows the same.
//
// Fails when ticks are not counted, when the reason belongs to an earlier tick, or when the metric
// has a different threshold.
func TestTimersThatDoNotSucceedAreReported(t *testing.T) {
	hang := func(context.Context) error {
		time.Sleep(time.Until(time.Date(2000, 1, 1, 0, 8, 30, 0, time.UTC)))
		return errors.New("late")
	} // longer than MaxRunTime
	fail := func(context.Context) error { return errors.New("secret") }
	for name, c := range map[string]struct {
		run    func(context.Context) error
		prime  func(f *virtualFleet, h *host)
		after  int
		reason string
	}{
		"failing":      {run: fail, reason: `runs end with "error"`},
		"on this host": {run: hang, reason: "its runs on this host do not end"},
		"elsewhere":    {run: hang, reason: "every slot is held, the one that ends first by other/1/x", prime: occupy},
		"without store": {run: fail, reason: "no host claims its ticks; this host skips them: store",
			prime: func(_ *virtualFleet, h *host) { h.Link.Inject(dlocktest.Hang) }},
		"never": {run: fail, after: timer.NoLimit},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				reg := prometheus.NewRegistry()
				h := f.start(timer.Config{DrainTimeout: time.Minute, Registerer: reg}, timer.Timer{Name: "a",
					Schedule: schedule.Every(time.Minute), AlarmAfter: c.after, MaxRunTime: 30 * time.Second,
					OnStoreDown: timer.StoreDownSkip, Run: succeedOnce(c.run)})
				time.Sleep(time.Minute) // the only success
				if c.prime != nil {
					c.prime(f, h)
				}
				time.Sleep(4*time.Minute + time.Second)
				if err := h.TimersSucceed(); err != nil {
					t.Errorf("after four ticks: %v", err)
				}
				if v := gauge(t, reg, "tickslot_alarm_active"); !math.IsNaN(v) { // the series is absent
					t.Errorf("after four ticks the metric is %v", v)
				}
				time.Sleep(3 * time.Minute)
				err := h.TimersSucceed()
				if v := gauge(t, reg, "tickslot_alarm_active"); (v == 1) != (c.reason != "") {
					t.Errorf("the metric is %v, and TimersSucceed returns %v", v, err)
				}
				if c.reason == "" {
					if err != nil {
						t.Error(err)
					}
				} else if err == nil || !strings.Contains(err.Error(), c.reason) ||
					!strings.Contains(err.Error(), "since 2000-01-01T00:0") || strings.Contains(err.Error(), "secret") {
					t.Errorf("it says %v, want %s", err, c.reason)
				}
				h.Link.Heal()
				f.Stop()
			})
		})
	}
}

// succeedOnce returns a handler that succeeds in its first run, and calls then in later runs.
func succeedOnce(then func(context.Context) error) func(context.Context) error {
	done := false
	return func(ctx context.Context) error {
		if !done {
			done = true
			return nil
		}
		return then(ctx)
	}
}

// occupy takes the slot and never releases it, like a host whose handler does not return.
func occupy(f *virtualFleet, _ *host) {
	store := f.store
	session := otherSession(f.t, store)
	if _, err := session.Semaphore("timer:a", 1).TryAcquire(f.t.Context()); err != nil {
		f.t.Error(err)
	}
}

// A success on one host is known to all other hosts, even to hosts that never get a tick.
//
// Fails when the release does not report the success, or when views do not read it.
func TestSuccessElsewhereCounts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var failing atomic.Bool
		for range 3 {
			f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.Every(time.Minute),
				Run: func(context.Context) error {
					if failing.Load() {
						return errors.New("no")
					}
					return nil
				}})
		}
		time.Sleep(2 * time.Hour)
		for i, h := range f.Hosts {
			if st := h.Status().Timers[0]; st.TicksSinceSuccess > 1 || h.TimersSucceed() != nil {
				t.Errorf("host %d, which ran it %d times: silent for %d ticks, %v", i, st.Started, st.TicksSinceSuccess,
					h.TimersSucceed())
			}
		}
		failing.Store(true)
		time.Sleep(10 * time.Minute)
		for i, h := range f.Hosts {
			if h.TimersSucceed() == nil {
				t.Errorf("host %d does not know that the timer fails everywhere", i)
			}
		}
		f.Stop()
	})
}

// A handler that ignores its context past MaxRunTime is logged immediately and at 1.5 × MaxRunTime.
// It keeps its place on this host but not its slot, and does not affect other timers.
//
// Fails when outOfTime does not stop the renewal, or when nothing is logged at 1.5 × MaxRunTime.
func TestI10OverrunIsLoudAndHarmless(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log testkit.Log
		f := newFleet(t)
		end := make(chan struct{})
		h := f.start(timer.Config{Logger: textLogger(&log)},
			timer.Timer{Name: "stuck", Schedule: schedule.Every(time.Minute), MaxRunTime: 40 * time.Second,
				Run: func(context.Context) error { <-end; return nil }},
			timer.Timer{Name: "other", Schedule: schedule.Every(time.Second), Run: f.handler(0)})
		time.Sleep(10 * time.Minute)
		synctest.Wait() // wait until the log is written
		st, _ := h.Status().Timer("stuck")
		if len(st.Running) != 1 || !st.Running[0].Overdue || st.Running[0].Valid ||
			st.Skipped[timer.ReasonHostFull] < 8 {
			t.Errorf("%+v", st)
		}
		if list, _ := f.store.List(t.Context(), "timer:stuck", 1); len(list) != 0 {
			t.Errorf("its slot is still renewed: %+v", list)
		}
		if other, _ := h.Status().Timer("other"); other.Started < 599 {
			t.Errorf("the other timer started %d times in 10 minutes", other.Started)
		}
		for line, want := range map[string]int{"reached its MaxRunTime": 1, "past 1.5 × MaxRunTime": 1} {
			if n := strings.Count(log.String(), line); n != want {
				t.Errorf("%q logged %d times, want %d:\n%s", line, n, want, log.String())
			}
		}
		close(end)
		f.Stop()
	})
}

// If another host holds a slot for longer than 1.5 × MaxRunTime, that is logged once. If the holder
// lets its slot expire, that is counted.
//
// Fails when warnHeldLong logs every refusal, or when expired slots are not counted.
func TestOverlongHoldsAreReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log testkit.Log
		f := newFleet(t)
		session := otherSession(t, f.store)
		lease, err := session.Semaphore("timer:a", 1).TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		reg := newRegistry()
		f.start(timer.Config{Logger: textLogger(&log), Registerer: reg},
			timer.Timer{Name: "a", Schedule: schedule.Every(10 * time.Second), MaxRunTime: time.Minute,
				Run: f.handler(0)})
		time.Sleep(5 * time.Minute)
		synctest.Wait() // wait until the log is written
		if n := strings.Count(log.String(), "longer than 1.5 × MaxRunTime"); n != 1 {
			t.Errorf("told %d times:\n%s", n, log.String())
		}
		lease.StopRenewing() // as if the holder had been killed
		time.Sleep(time.Minute)
		got := values(t, reg)
		if got["tickslot_leases_expired_total memory"] != 1 || got["tickslot_holds_overlong_total a"] != 1 ||
			got["tickslot_hosts"] != 1 {
			t.Errorf("expired %v, overlong %v, hosts %v; want 1 of each", got["tickslot_leases_expired_total memory"],
				got["tickslot_holds_overlong_total a"], got["tickslot_hosts"])
		}
		f.Stop()
	})
}

// Runs that take many intervals, but less than MaxRunTime, raise no alarm on any host. Runs that
// fail count once each.
//
// Fails when a tick counts although runs within their MaxRunTime hold its slots, or although its
// run is in progress.
func TestLongRunsRaiseNoAlarm(t *testing.T) {
	for name, c := range map[string]struct {
		limit, perHost int
		local, fails   bool
	}{
		"one": {limit: 1}, "three": {limit: 3}, "ten on one host": {limit: 10, perHost: 10, local: true},
		"local":   {limit: 1, local: true},
		"failing": {limit: 1, fails: true}, "failing locally": {limit: 10, perHost: 10, local: true, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				run := func(ctx context.Context) error {
					err := sleep(ctx, 20*time.Second)
					if c.fails {
						err = errors.New("no")
					}
					return err
				}
				work := timer.Timer{Name: "a", Schedule: schedule.Every(time.Second), MaxConcurrency: c.limit,
					MaxPerTick: 1, MaxPerHost: c.perHost, LocalOnly: c.local, Run: run}
				for range 2 {
					f.start(timer.Config{}, work)
				}
				degraded := 0
				for range 600 {
					time.Sleep(time.Second)
					for _, h := range f.Hosts {
						if h.TimersSucceed() != nil {
							degraded++
						}
					}
				}
				if c.fails {
					// Which host gets a tick is random: 31 rounds gave 490 to 857. Without the
					// alarm there are 0.
					if degraded < 300 {
						t.Errorf("reported in %d of 1,200 probes, although all runs fail", degraded)
					}
				} else if degraded > 0 {
					t.Errorf("degraded in %d of 1,200 probes, though every run succeeds: %v, %v", degraded,
						f.Hosts[0].TimersSucceed(), f.Hosts[1].TimersSucceed())
				}
				f.Stop()
			})
		})
	}
}
