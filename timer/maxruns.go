package timer

import (
	"context"
	"time"
)

// defaultMaxWait is the default of Config.MaxWait.
const defaultMaxWait = time.Hour

// A MaxRunsPolicy decides what happens to a tick or a Trigger while Config.MaxRuns runs are in
// progress.
type MaxRunsPolicy uint8

const (
	// MaxRunsWait makes the tick or Trigger wait in line until a run ends, at most for
	// Config.MaxWait. After that, the tick is skipped or the Trigger refused, as with MaxRunsSkip.
	// At most one tick of each timer waits. A later tick replaces the earlier one, which is
	// skipped. A tick that waits in this line is not claimed, so another host may run it.
	MaxRunsWait MaxRunsPolicy = iota
	// MaxRunsSkip skips the tick or refuses the Trigger (ReasonMaxRuns).
	MaxRunsSkip
)

func (m MaxRunsPolicy) String() string {
	switch m {
	case MaxRunsWait:
		return "wait"
	case MaxRunsSkip:
		return "skip"
	default:
		return "unknown"
	}
}

// The placeQueue is the line for the MaxRuns places. A tick waits in it before it becomes an
// attempt. Until then the tick is not claimed, so another host may run it. When a tick or a Trigger
// reaches the head of the line, a place is reserved for it. It then takes that place or gives it
// up.

// isFull reports whether no run may start, because MaxRuns places are taken or others are waiting.
// The caller holds the registry's mutex.
func (w *waiting) isFull() bool {
	return w.maxPlaces > 0 && (w.registry.places >= w.maxPlaces || w.placeQueue.n+len(w.placeQueue.triggers) > 0)
}

// queued returns how many ticks and Trigger calls wait for a place, and whether another one would
// have to wait.
func (w *waiting) queued() (waiting int, full bool) {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	return w.placeQueue.n + len(w.placeQueue.triggers), w.isFull()
}

// awaitPlace waits until a place is reserved for a Trigger. It returns false if ctx has ended, the
// wait has lasted too long, the timer was removed, or the host drains.
func (w *waiting) awaitPlace(ctx context.Context, s *settings) bool {
	g := w.registry
	g.mu.Lock()
	switch {
	case w.onMaxRuns != MaxRunsWait || !g.mayStart(s):
		g.mu.Unlock()
		return false
	case !w.isFull():
		g.reserve(s.entry)
		g.mu.Unlock()
		return true
	}
	t := w.placeQueue.enqueue(s)
	g.mu.Unlock()
	tooLong := time.NewTimer(w.maxWait)
	defer tooLong.Stop()
	select {
	case <-t.ready:
	case <-ctx.Done():
	case <-tooLong.C:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return w.placeQueue.leave(t)
}

// givePlaces gives free places to the ticks and triggers that wait for one. The caller holds the
// registry's mutex.
func (w *waiting) givePlaces() {
	g := w.registry
	for w.maxPlaces > 0 && g.places < w.maxPlaces && g.starting() {
		switch p, t := w.placeQueue.serve(); {
		case p != nil:
			p.turn = true
			g.reserve(p.s.entry)
			w.at(p, w.clock.now())
		case t != nil:
			g.reserve(t.s.entry)
		default:
			return
		}
	}
}
