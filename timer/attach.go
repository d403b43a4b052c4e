package timer

import (
	"context"
	"log/slog"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// After an outage, runs that went on without the store take a slot before this host starts anything
// new of their timer. Where none is free, nothing new starts until they end: so what goes on beyond
// the limit only gets less.

// rejoining reports whether a timer has to wait for its runs without a slot: the store answers, and
// they may get one. One that is past its MaxRunTime gets none, and is not waited for, just as
// nobody waits for one whose slot has run out.
func (n *runner) rejoining(e *entry) bool {
	return e.shared() && n.withoutSlot(e) != nil && n.store.serves(e)
}

// withoutSlot returns the oldest run that could use a slot; nil: there is none.
func (n *runner) withoutSlot(e *entry) *Run {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.oldestWithoutSlot(e)
}

// oldestWithoutSlot is called with mu held.
func (n *runner) oldestWithoutSlot(e *entry) (oldest *Run) {
	for _, r := range e.state.runs {
		wants := r != nil && r.Degraded() && !r.over && r.ctx.cause() == nil
		if wants && (oldest == nil || r.started.Before(oldest.started)) {
			oldest = r
		}
	}
	return oldest
}

// handOver gives a slot that was meant for a new run to one that has none.
func (n *runner) handOver(e *entry, lease *dlock.Lease) bool {
	if lease == nil {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.oldestWithoutSlot(e)
	if r == nil {
		return false
	}
	n.attach(e, r, lease)
	return true
}

// attach makes a run that went on without the store an ordinary one. Called with mu held.
func (n *runner) attach(e *entry, r *Run, lease *dlock.Lease) {
	n.hold(e, r, lease)
	r.degraded.Store(false) // only now: Valid asks this first
	n.store.views.upAgain(e)
	n.store.views.endDegraded(e)
	n.log.laterFew(&n.adoptions, slog.LevelInfo, "timer: a run that went on without the store has a slot again",
		"timer", e.timer.Name, "slot", lease.Slot(), "running_for", time.Since(r.started).Round(time.Millisecond))
}

// hold ties a run to a lease. Called with mu held.
func (n *runner) hold(e *entry, r *Run, lease *dlock.Lease) {
	r.lease.Store(lease)
	r.holding = true
	if r.unwatch != nil {
		r.unwatch()
	}
	// Of which timer it was, if e has taken its place.
	r.unwatch = context.AfterFunc(lease.Context(), func() { n.lost(r.entry, r, lease) })
}

// timersWithoutSlots returns the timers that have runs without a slot, also those that were
// removed.
func (n *runner) timersWithoutSlots() []*entry {
	var list []*entry
	if !n.store.isWell() || n.store.views.degradedRuns() == 0 {
		return nil
	}
	for _, e := range n.registry.all() {
		if n.withoutSlot(e) != nil {
			list = append(list, e)
		}
	}
	return list
}
