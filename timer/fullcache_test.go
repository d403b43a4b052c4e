package timer_test

import (
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// If a timer is due often and finds all slots held, each host calls the store once a second. Every
// tick is counted, and the dead-man's check counts all of them when the store next answers.
//
// Fails when views.remember does nothing (600 calls), when stillFull never ends, or when ticks for
// which the store was not called are not counted.
func TestFullTimerAsksRarely(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		job := timer.Timer{Name: "a", Schedule: schedule.Every(100 * time.Millisecond), AlarmAfter: 700,
			MaxRunTime: 50 * time.Millisecond, Run: f.handler(0)}
		var stores []*countingLock
		for range 3 {
			s := &countingLock{DistributedLock: f.store, name: "timer:a"}
			stores = append(stores, s)
			f.startOn(s, timer.Config{}, job)
		}
		time.Sleep(10 * time.Second) // runs succeed
		occupy(f, nil)
		before := make([]int64, 3)
		for i, s := range stores {
			before[i] = s.calls.Load()
		}
		time.Sleep(time.Minute)
		for i, s := range stores {
			if n := s.calls.Load() - before[i]; n < 50 || n > 61 {
				t.Errorf("host %d called the store %d times in a minute", i, n)
			}
			if st, _ := f.Hosts[i].Status().Timer("a"); st.Skipped[timer.ReasonFull] < 590 {
				t.Errorf("host %d: %+v", i, st)
			}
			if err := f.Hosts[i].TimersSucceed(); err != nil {
				t.Errorf("host %d, after 600 ticks: %v", i, err)
			}
		}
		time.Sleep(12 * time.Second)
		for i, h := range f.Hosts {
			if err := h.TimersSucceed(); err == nil {
				t.Errorf("host %d reports no error after 720 ticks", i)
			}
			st, _ := h.Status().Timer("a")
			if st.TicksSinceSuccess < 700 || st.TicksSinceSuccess > 725 {
				t.Errorf("host %d counts %d ticks", i, st.TicksSinceSuccess)
			}
		}
		f.ended()
	})
}

// A host learns of successes on other hosts although it rarely calls the store. A timer whose runs
// are longer than its period raises no alarm.
//
// Fails when waitOrSkip counts such a tick immediately.
func TestRunsLongerThanThePeriodRaiseNoAlarm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		job := timer.Timer{Name: "a", Schedule: schedule.Every(100 * time.Millisecond), AlarmAfter: 20,
			Run: f.handler(1500 * time.Millisecond)}
		for range 3 {
			f.start(timer.Config{}, job)
		}
		time.Sleep(5 * time.Second)
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			for i, h := range f.Hosts {
				if err := h.TimersSucceed(); err != nil {
					t.Fatalf("host %d: %v", i, err)
				}
			}
		}
		f.ended()
	})
}

// A "full" answer is cached for at most a second, and not beyond the lease that ends first. When a
// run on this host ends, the answer is dropped.
//
// Fails when views.remember takes the longer of the two, or when runner.finish does not drop the
// answer.
func TestFullIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		job := timer.Timer{Name: "a", Schedule: schedule.Every(100 * time.Millisecond).Offset(0), Run: f.handler(0)}
		h := f.start(timer.Config{}, job)
		take := func(ttl time.Duration, slots int) driver.Grant {
			t.Helper()
			g, err := f.store.TryAcquire(t.Context(), driver.Request{Name: "timer:a", Slots: slots, Token: "x",
				TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		since := func(what string, from time.Time, most time.Duration) {
			t.Helper()
			st, _ := h.Status().Timer("a")
			before := st.Started
			testkit.Eventually(t, 3*time.Second, what,
				func() bool { st, _ := h.Status().Timer("a"); return st.Started > before })
			if took := time.Since(from); took > most {
				t.Errorf("%s: it ran again after %v", what, took)
			}
		}
		time.Sleep(time.Second + 50*time.Millisecond)
		take(230*time.Millisecond, 1) // the holder dies
		since("a lease that ends soon", time.Now(), 330*time.Millisecond)

		time.Sleep(time.Second)
		g := take(15*time.Second, 1)
		time.Sleep(3500 * time.Millisecond)
		released := time.Now()
		if _, err := f.store.Release(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		since("a slot that is released", released, 1100*time.Millisecond)
		f.ended()

		// There are two slots, and another session holds one of them.
		f = newFleet(t)
		job.MaxConcurrency, job.MaxPerTick, job.Run = 2, 2, f.handler(350*time.Millisecond)
		h = f.start(timer.Config{}, job)
		take(time.Hour, 2)
		time.Sleep(time.Minute)
		if st, _ := h.Status().Timer("a"); st.Started < 145 || st.Skipped[timer.ReasonFull] < 400 { // one per 400 ms
			t.Errorf("%+v", st)
		}
		f.ended()
	})
}

// Only "full" is cached. Every tick of a paused timer is counted as paused, and ticks run as soon
// as the pause has ended.
//
// Fails when views.remember ignores the reason.
func TestOnlyFullIsRemembered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.Every(100 * time.Millisecond).Offset(0),
			Run: f.handler(0)})
		time.Sleep(time.Second + 50*time.Millisecond)
		if err := h.Control().Pause(t.Context(), "a", time.Now().Add(time.Minute), ann); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		before, _ := h.Status().Timer("a")
		time.Sleep(time.Second)
		st, _ := h.Status().Timer("a")
		if st.Skipped[timer.ReasonPaused] < 599 || st.Skipped[timer.ReasonFull] != 0 || st.Started-before.Started < 10 {
			t.Errorf("%+v", st)
		}
		f.ended()
	})
}

// A timer that is due every ten seconds or less often calls the store for every tick. So does a
// timer that gets slots.
//
// Fails when views.remember ignores the interval.
func TestInfrequentTimersAlwaysAsk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		s := &countingLock{DistributedLock: f.store, name: "timer:a"}
		f.startOn(s, timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.Every(10 * time.Second),
			Run: f.handler(0)})
		often := &countingLock{DistributedLock: f.store, name: "timer:b"}
		f.startOn(often, timer.Config{}, timer.Timer{Name: "b", Schedule: schedule.Every(10 * time.Millisecond),
			Run: f.handler(0)})
		occupy(f, nil)
		time.Sleep(time.Minute)
		if n := s.calls.Load(); n != 6 {
			t.Errorf("called %d times for 6 ticks", n)
		}
		if n := often.calls.Load(); n != 6000 {
			t.Errorf("called %d times for 6,000 ticks that were granted", n)
		}
		f.ended()
	})
}

// If runs are shorter than the interval, a "full" answer does not cost the next tick, because the
// store is called again.
//
// Fails when views.remember ignores how long the slot has been held.
func TestShortRunsAreNotRemembered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		job := timer.Timer{Name: "a", Schedule: schedule.Every(100 * time.Millisecond), MaxPerTick: timer.NoLimit,
			Run: f.handler(30 * time.Millisecond)}
		s := &countingLock{DistributedLock: f.store, name: "timer:a"}
		f.start(timer.Config{}, job)
		f.startOn(s, timer.Config{}, job)
		time.Sleep(time.Minute)
		if n := s.calls.Load(); n < 599 {
			t.Errorf("called for %d of 600 ticks", n)
		}
		f.Stop()
	})
}
