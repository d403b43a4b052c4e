package timer

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// After an outage, runs that went on without the store get a slot before this host starts a new run
// of their timer. If no slot is free, nothing new starts until they end. So the number of runs
// above the limit can only fall.

// rejoining reports whether a timer has to wait because a run of its own needs a slot and the store
// can grant one. A run past its MaxRunTime gets no slot, so nothing waits for it, just as nothing
// waits for a run whose lease has expired.
func (n *runner) rejoining(s *settings) bool {
	return s.shared() && n.withoutSlot(s) != nil && n.store.serves(s)
}

// limitsRejoining reports whether a timer has to wait because a run of another timer with which it
// shares a limit needs a slot, and the store can grant one.
func (n *runner) limitsRejoining(s *settings) bool {
	waits := func(l *sharedLimit) bool { return l.degraded.Load() > 0 }
	// Else every tick would look at every timer. Timers that share a limit are on one server.
	if n.store == nil || !slices.ContainsFunc(s.limits(), waits) || !n.store.serves(s) {
		return false
	}
	for _, other := range n.registry.all() {
		if sharesLimit(other, s) && n.rejoining(other) {
			return true
		}
	}
	return false
}

// withoutSlot returns the oldest run that needs a slot; nil: there is none.
func (n *runner) withoutSlot(s *settings) *Run {
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	return n.oldestWithoutSlot(s)
}

// oldestWithoutSlot is called with entry.mu held. It leaves out a run that began with other limits:
// a lease acquired with these has no permits of those.
func (n *runner) oldestWithoutSlot(s *settings) (oldest *Run) {
	for _, r := range s.entry.runs {
		wants := r != nil && r.Degraded() && !r.over && r.ctx.cause() == nil &&
			slices.Equal(r.settings.limits(), s.limits())
		if wants && (oldest == nil || r.startedAt.Before(oldest.startedAt)) {
			oldest = r
		}
	}
	return oldest
}

// handOver gives a slot that was acquired for a new run to a run that has none. It reports false if
// there is no such run.
func (n *runner) handOver(s *settings, lease *dlock.Lease) bool {
	if lease == nil {
		return false
	}
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	r := n.oldestWithoutSlot(s)
	if r == nil {
		return false
	}
	n.attach(s, r, lease)
	return true
}

// attach gives a lease to a run that went on without the store. Called with entry.mu held.
func (n *runner) attach(s *settings, r *Run, lease *dlock.Lease) {
	n.hold(s, r, lease)
	r.degraded.Store(false) // after the lease is stored: Valid checks this first
	s.entry.view.down = false
	n.store.views.endDegraded(s)
	n.log.laterLimited(&n.reacquisitions, slog.LevelInfo,
		"timer: a run that went on without the store has a slot again",
		r.info().line("running_for", time.Since(r.startedAt).Round(time.Millisecond))...)
}

// hold stores the lease of a run and watches it. Called with entry.mu held.
func (n *runner) hold(s *settings, r *Run, lease *dlock.Lease) {
	r.lease.Store(lease)
	r.holding = true
	if r.unwatch != nil {
		r.unwatch()
	}
	// The run has settings of its own; the lease may have been acquired with others.
	r.unwatch = context.AfterFunc(lease.Context(), func() { n.lost(r.settings, r, lease) })
}

// timersWithoutSlots returns the timers, removed ones included, that have runs without a slot.
func (n *runner) timersWithoutSlots() []*settings {
	var list []*settings
	if !n.store.isWell() || n.store.views.degradedRuns() == 0 {
		return nil
	}
	for _, s := range n.registry.all() {
		if n.withoutSlot(s) != nil {
			list = append(list, s)
		}
	}
	return list
}
