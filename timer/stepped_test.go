package timer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// The clocks of all hosts and of the store are set forward or back together, and later corrected,
// because they are on one machine or follow the same wrong server. After either step every timer
// runs again within its own interval, once per tick. The dead-man's check is right: it reports
// nothing while runs succeed, and raises an alarm when they fail, whatever the store recorded while
// its clock was ahead.
//
// Fails when the store accepts an instant in its own future, when a host plans by a clock that has
// since been changed, or when a success in the future counts as a recent one.
func TestClocksThatStepTogether(t *testing.T) {
	for _, by := range []time.Duration{2 * time.Second, 10 * time.Minute, 2 * time.Hour, 400 * 24 * time.Hour} {
		for _, by := range []time.Duration{by, -by} {
			t.Run(fmt.Sprint(by), func(t *testing.T) { bubble(t, func(t *testing.T) { clocksStep(t, by) }) })
		}
	}
}

func clocksStep(t *testing.T, by time.Duration) {
	f := newFleet(t)
	var wrong atomic.Int64 // the current error of all clocks
	f.store.Clock = func() time.Time { return time.Now().Add(time.Duration(wrong.Load())) }
	var failing atomic.Bool
	var mu sync.Mutex
	ran := map[string]time.Time{}
	var timers []timer.Timer
	for name, s := range map[string]schedule.Schedule{"every": schedule.Every(time.Minute), "cron": minutely(),
		"after": schedule.After(time.Minute)} {
		timers = append(timers, timer.Timer{Name: name, Schedule: s, Run: func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if ran[name] = time.Now(); failing.Load() {
				return errors.New("no paper")
			}
			return nil
		}})
	}
	hosts := []*host{f.start(named("a"), timers...), f.start(named("b"), timers...)}
	steps := func(d time.Duration) {
		wrong.Add(int64(d))
		for _, h := range hosts {
			timer.SetSkew(h.Scheduler, time.Duration(wrong.Load()))
		}
	}
	// runAgain waits for one interval, and for the 10 s within which hosts read their clocks.
	runAgain := func(after string) {
		t.Helper()
		began := time.Now()
		time.Sleep(70 * time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		for _, tm := range timers {
			if !ran[tm.Name].After(began) {
				t.Errorf("%s: %s has not run in its interval: the last run was %v before", after, tm.Name,
					began.Sub(ran[tm.Name]))
			}
		}
		for _, h := range hosts {
			if err := h.TimersSucceed(); err != nil {
				t.Errorf("%s: %v", after, err)
			}
		}
	}
	time.Sleep(10 * time.Minute)
	for round := range 2 {
		steps(by)
		runAgain(fmt.Sprintf("round %d, when clocks were set by %v", round, by))
		time.Sleep(5*time.Minute + 17*time.Second)
		failing.Store(round == 1)
		steps(-by)
		if x, err := hosts[0].Explain(t.Context(), "cron", time.Time{}); err != nil ||
			strings.Contains(x.Text, "the store's clock was ahead") != (by > 5*time.Second) {
			t.Errorf("%v, %v: must report that the store's clock was ahead, if it was", x, err)
		}
		if round == 0 {
			runAgain("when clocks were right again")
			time.Sleep(5 * time.Minute)
		}
	}
	failed := time.Now()
	time.Sleep(16 * time.Minute) // two hosts share the ticks, and five without a success raise an alarm
	alarms := errors.Join(hosts[0].TimersSucceed(), hosts[1].TimersSucceed())
	for _, tm := range timers {
		if alarms == nil || !strings.Contains(alarms.Error(), fmt.Sprintf("timer %q", tm.Name)) {
			t.Errorf("%s: every run fails, and the alarm is: %v", tm.Name, alarms)
		}
	}
	for _, h := range hosts {
		for _, s := range h.Status().Timers {
			if s.LastSuccessAt.After(failed) {
				t.Errorf("%s: the last success was at %v, and none was since %v", s.Name, s.LastSuccessAt, failed)
			}
		}
	}
	f.Stop()
}
