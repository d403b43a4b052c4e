package timertest

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// The ticks of three hosts are refused for reasons that depend on the store (full, tick taken,
// store down), and missed while a host is stalled. The counts are checked against the schedule's
// grid, for the number of due ticks, and against the handlers, for the number of runs.
//
// Fails when the acquirer does not count a refusal, when a run is counted twice, and when missed
// ticks are not counted.
func accounting(s *suite, t *testing.T) {
	f := s.fleet(t)
	every := schedule.Every(s.Period)
	short := func(context.Context) error { return nil }
	timers := []timer.Timer{
		{Name: "full", Schedule: every, OnStoreDown: timer.StoreDownSkip, Run: job(10*time.Millisecond, 4*s.Period)},
		{Name: "taken", Schedule: every, MaxConcurrency: 3, MaxPerTick: 1, OnStoreDown: timer.StoreDownSkip,
			Run: short},
		{Name: "local", Schedule: every, OnStoreDown: timer.StoreDownRunLocal, Run: short},
	}
	for range 3 {
		slow := &slowSchedule{Schedule: every, took: 4 * s.Period}
		timers := append(slices.Clone(timers), timer.Timer{Name: "slow", Schedule: slow,
			OnStoreDown: timer.StoreDownSkip, Run: short})
		h := f.start(timer.Config{}, timers...)
		f.until("the first ticks are planned", func() bool {
			return !slices.ContainsFunc(h.Status().Timers, func(st timer.TimerStatus) bool { return st.Next.IsZero() })
		})
		h.ready = time.Now()
		slow.once.Store(true)
	}
	f.until("ticks were skipped for every reason", func() bool {
		return skipped("full", timer.ReasonFull, f.Hosts...) > 0 &&
			skipped("full", timer.ReasonHostFull, f.Hosts...) > 0 &&
			skipped("taken", timer.ReasonTickTaken, f.Hosts...) > 0 &&
			skipped("taken", timer.ReasonMissed, f.Hosts...) > 0
	})
	victim := f.Hosts[0]
	victim.Link.Inject(dlocktest.Error(errors.New("connection refused")))
	at := time.Now()
	f.until("the store is missed", func() bool {
		return skipped("taken", timer.ReasonStoreDown, victim) >= 3 &&
			f.watch.runs("local", func(v *visit) bool { return v.Degraded() && v.began.After(at) }) >= 3
	})
	victim.Link.Heal()
	at = time.Now()
	f.until("the host is back", func() bool {
		return f.watch.runs("taken", func(v *visit) bool { return v.host == victim && v.began.After(at) }) > 0
	})
	f.stop()

	for i, h := range f.Hosts {
		for _, st := range h.Status().Timers {
			if Unaccounted(st) != 0 {
				t.Errorf("host %d, %s: %d ticks, but %d started, skipped %v", i, st.Name, st.Ticks, st.Started,
					st.Skipped)
			}
			// The number of a grid's ticks must match the distance between the first and the next
			// tick.
			if first := st.Next.Add(-time.Duration(st.Ticks) * s.Period); !first.After(h.began) ||
				first.After(h.ready.Add(s.Period)) {
				t.Errorf("host %d, %s: %d ticks up to %v make the first %v; Run began at %v", i, st.Name, st.Ticks,
					st.Next, first, h.began)
			}
			ticks := map[time.Time]bool{}
			f.watch.runs(st.Name, func(v *visit) bool {
				if v.host == h {
					ticks[v.Tick()] = true
				}
				return false
			})
			ran := f.watch.runs(st.Name, func(v *visit) bool { return v.host == h })
			if uint64(ran) != st.Started || len(ticks) != ran {
				t.Errorf("host %d, %s: %d started, but the handlers saw %d runs of %d ticks", i, st.Name, st.Started,
					ran, len(ticks))
			}
		}
	}
}

// A slowSchedule delays its first call, and with it the goroutine that schedules all timers.
type slowSchedule struct {
	schedule.Schedule
	took time.Duration
	once atomic.Bool
}

func (s *slowSchedule) Next(t time.Time) time.Time {
	if s.once.CompareAndSwap(true, false) {
		time.Sleep(s.took) // the stall
	}
	return s.Schedule.Next(t)
}
