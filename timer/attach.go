package timer

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// After an outage, runs that continued without the store get slots before this host starts a new
// run of the same timer. If no slot is free for such a run, no new run starts until it ends.
// Therefore the number of runs above the limit never grows.

// rejoining reports whether a timer has to wait because one of its own runs needs a slot and the
// store can grant one. It ignores a run past its MaxRunTime, because such a run gets no slot.
func (r *runner) rejoining(s *settings) bool {
	return s.shared() && r.withoutSlot(s) != nil && r.store.serves(s)
}

// limitsRejoining reports whether a timer has to wait because another timer shares a limit with it,
// a run of that timer needs a slot, and the store can grant one.
func (r *runner) limitsRejoining(s *settings) bool {
	waits := func(l *sharedLimit) bool { return l.degraded.Load() > 0 }
	// Without this check, every tick would scan all timers. Timers that share a limit are on one
	// server.
	if r.store == nil || !slices.ContainsFunc(s.limits(), waits) || !r.store.serves(s) {
		return false
	}
	for _, other := range r.registry.all() {
		if sharesLimit(other, s) && r.rejoining(other) {
			return true
		}
	}
	return false
}

// withoutSlot returns the oldest run that needs a slot, or nil if there is none.
func (r *runner) withoutSlot(s *settings) *Run {
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	return r.oldestWithoutSlot(s)
}

// oldestWithoutSlot is withoutSlot for a caller that holds entry.mu. It ignores a run that began
// with different limits, because a lease that is acquired with the current limits has no permits
// for the old ones.
func (r *runner) oldestWithoutSlot(s *settings) (oldest *Run) {
	for _, run := range s.entry.runs {
		wants := run != nil && run.Degraded() && !run.over && run.ctx.cause() == nil &&
			slices.Equal(run.settings.limits(), s.limits())
		if wants && (oldest == nil || run.startedAt.Before(oldest.startedAt)) {
			oldest = run
		}
	}
	return oldest
}

// handOver gives a slot that was acquired for a new run to a run that has no slot. It returns false
// if every run has one.
func (r *runner) handOver(s *settings, lease *dlock.Lease) bool {
	if lease == nil {
		return false
	}
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	run := r.oldestWithoutSlot(s)
	if run == nil {
		return false
	}
	r.attach(s, run, lease)
	return true
}

// attach gives a lease to a run that has continued without the store. The caller holds entry.mu.
func (r *runner) attach(s *settings, run *Run, lease *dlock.Lease) {
	r.hold(s, run, lease)
	run.degraded.Store(false) // after hold has stored the lease, because Valid checks degraded first
	s.entry.view.down = false
	r.store.views.endDegraded(s)
	r.log.laterLimited(&r.reacquisitions, slog.LevelInfo,
		"timer: a run that continued without the store has a slot again",
		run.info().line("running_for", time.Since(run.startedAt).Round(time.Millisecond))...)
}

// hold stores the lease of a run and watches it. The caller holds entry.mu.
func (r *runner) hold(s *settings, run *Run, lease *dlock.Lease) {
	run.lease.Store(lease)
	run.holding = true
	if run.unwatch != nil {
		run.unwatch()
	}
	// Pass the run's own settings. The lease may have been acquired with newer settings.
	run.unwatch = context.AfterFunc(lease.Context(), func() { r.lost(run.settings, run, lease) })
}

// timersWithoutSlots returns the timers that have runs without a slot, including removed timers.
func (r *runner) timersWithoutSlots() []*settings {
	var list []*settings
	if !r.store.isWell() || r.store.views.degradedRuns() == 0 {
		return nil
	}
	for _, s := range r.registry.all() {
		if r.withoutSlot(s) != nil {
			list = append(list, s)
		}
	}
	return list
}
