package timertest

import (
	"context"
	"maps"
	"sync"
	"testing"

	"github.com/tickslot/tickslot/timer"
)

// A told records what a host's hooks report about ticks. Hooks are called one at a time, and the
// test reads it when Run has returned.
type told struct {
	ticks   map[string]*toldOf // by timer
	removed sync.Map           // names of removed timers; a new one of that name counts from 0
}

type toldOf struct {
	started uint64
	skipped map[timer.Reason]uint64
}

func (x *told) of(name string) *toldOf {
	if x.ticks == nil {
		x.ticks = map[string]*toldOf{}
	}
	if x.ticks[name] == nil {
		x.ticks[name] = &toldOf{skipped: map[timer.Reason]uint64{}}
	}
	return x.ticks[name]
}

// listen adds hooks that count ticks.
func (x *told) listen(hooks *timer.Hooks) {
	started, skipped := hooks.RunStarted, hooks.TickSkipped
	hooks.RunStarted = func(r timer.RunInfo) {
		if !r.Tick.IsZero() {
			x.of(r.Timer).started++
		}
		if started != nil {
			started(r)
		}
	}
	hooks.TickSkipped = func(s timer.SkipInfo) {
		x.of(s.Timer).skipped[s.Reason] += s.Ticks
		if skipped != nil {
			skipped(s)
		}
	}
}

// check fails the test unless the hooks reported exactly the ticks that Status counts. Run must
// have returned.
func (x *told) check(t *testing.T, st timer.Status) {
	t.Helper()
	for _, s := range st.Timers {
		if _, removed := x.removed.Load(s.Name); removed || st.DroppedEvents > 0 {
			continue
		}
		if got := x.of(s.Name); got.started != s.Started || !maps.Equal(got.skipped, s.Skipped) {
			t.Errorf("timer %s: hooks were told of %d starts and %v, but %d and %v are counted", s.Name, got.started,
				got.skipped, s.Started, s.Skipped)
		}
	}
}

// Remove removes a timer.
func (h *Host[Link]) Remove(ctx context.Context, name string) error {
	h.told.removed.Store(name, true)
	return h.Scheduler.Remove(ctx, name)
}
