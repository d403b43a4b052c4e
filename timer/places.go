package timer

import (
	"context"
)

// An attempt to start a run takes a place, and the run keeps it. Each timer has as many places as
// runs may be in progress on this host. All timers together have MaxRuns places. Run and Remove
// wait until the places are free.

// await waits until the registration of a removed timer has at most callers places taken, or until
// ctx ends.
func (r *registry) await(ctx context.Context, reg *registration, callers int32) error {
	r.mu.Lock()
	if reg.places <= callers {
		r.mu.Unlock()
		return nil
	}
	waits := &removal{callers: callers, done: make(chan struct{})}
	reg.removal = waits
	r.mu.Unlock()
	select {
	case <-waits.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// enter takes one of at most limit places of a timer. It returns "" if it has taken the place, and
// otherwise the reason.
func (r *registry) enter(s *settings, limit int) Reason {
	r.mu.Lock()
	defer r.mu.Unlock()
	if why := r.whyNot(s, limit); why != "" {
		return why
	}
	if r.waiting.isFull() {
		return ReasonMaxRuns
	}
	s.takePlace()
	r.places++
	r.active.n++
	return ""
}

// leave frees a place of the registration for which it was taken.
func (r *registry) leave(s *settings) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaveLocked(s)
}

// leaveLocked is leave for a caller that holds mu.
func (r *registry) leaveLocked(s *settings) {
	r.places--
	s.entry.places.Add(-1)
	r.entries.forget(s.entry, r.labels)
	reg := s.registration
	if reg.places--; reg.removal != nil && reg.places <= reg.removal.callers {
		close(reg.removal.done)
		reg.removal = nil
	}
	r.waiting.givePlaces()
	r.active.end()
}

// join makes Run wait until done is called, for work that is not a run. It returns false if no
// further work may start.
func (r *registry) join() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.starting() {
		return false
	}
	r.active.n++
	return true
}

func (r *registry) done() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active.end()
}

// An activity counts what Run waits for: places and background calls. registry.mu guards it.
type activity struct {
	n    int
	idle chan struct{} // closed when n is 0; nil if Run is not waiting
}

func (a *activity) end() {
	a.n--
	if a.n == 0 && a.idle != nil {
		close(a.idle)
		a.idle = nil
	}
}

// whenIdle returns a channel that is closed when Run no longer has to wait. Call it only after the
// start of further work has been prevented.
func (r *registry) whenIdle() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	idle := make(chan struct{})
	if r.active.n == 0 {
		close(idle)
	} else {
		r.active.idle = idle
	}
	return idle
}

// reserve reserves a place for a tick or a Trigger of a timer. The caller holds mu.
func (r *registry) reserve(e *entry) {
	r.places++
	r.active.n++ // Run waits for the reservation, and for the run that uses it
	r.reserved[e]++
}

// unreserve removes a reservation. The caller holds mu.
func (r *registry) unreserve(e *entry) {
	if r.reserved[e]--; r.reserved[e] == 0 {
		delete(r.reserved, e)
	}
}

// enterReserved is like enter, for a tick or a Trigger with a reserved place. If it returns a
// reason, the caller must call giveUp.
func (r *registry) enterReserved(s *settings, limit int) Reason {
	r.mu.Lock()
	defer r.mu.Unlock()
	why := r.whyNot(s, limit)
	if why == "" {
		r.unreserve(s.entry)
		s.takePlace()
	}
	return why
}

// whyNot returns why no run of a timer may take a place, or "" if one may. It does not check
// MaxRuns. The caller holds mu.
func (r *registry) whyNot(s *settings, limit int) Reason {
	switch {
	case !r.mayStart(s):
		return ReasonDraining
	case s.placesTaken() >= limit:
		return ReasonHostFull
	}
	return ""
}

// takePlace counts one more place as taken. The caller holds registry.mu.
func (s *settings) takePlace() {
	s.registration.places++
	s.entry.places.Add(1)
}

// giveUp frees the place that was reserved for a tick or a Trigger of a timer.
func (r *registry) giveUp(s *settings) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.giveUpTurn(s.entry)
}

// giveUpTurn is giveUp for a caller that holds mu.
func (r *registry) giveUpTurn(e *entry) {
	r.unreserve(e)
	r.places--
	r.waiting.givePlaces()
	r.active.end()
}
