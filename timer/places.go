package timer

import (
	"context"
)

// An attempt to start a run takes a place, and the run keeps it. Each timer has as many as may go
// on at once on this host, and all together have MaxRuns. Run and Remove wait until the places are
// free.

// await waits until a removed timer has at most callers places taken, or ctx ends.
func (g *registry) await(ctx context.Context, r *registration, callers int32) error {
	g.mu.Lock()
	if r.places <= callers {
		g.mu.Unlock()
		return nil
	}
	waits := &removal{callers: callers, done: make(chan struct{})}
	r.removal = waits
	g.mu.Unlock()
	select {
	case <-waits.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// enter takes one of at most limit places of a timer; "" means that it did.
func (g *registry) enter(s *settings, limit int) Reason {
	g.mu.Lock()
	defer g.mu.Unlock()
	if why := g.whyNot(s, limit); why != "" {
		return why
	}
	if g.waiting.isFull() {
		return ReasonMaxRuns
	}
	s.takePlace()
	g.places++
	g.active.n++
	return ""
}

// leave gives a place back, to the registration that it was taken for.
func (g *registry) leave(s *settings) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leaveLocked(s)
}

// leaveLocked is leave, with mu held.
func (g *registry) leaveLocked(s *settings) {
	g.places--
	s.entry.places.Add(-1)
	g.entries.forget(s.entry, g.labels)
	r := s.registration
	if r.places--; r.removal != nil && r.places <= r.removal.callers {
		close(r.removal.done)
		r.removal = nil
	}
	g.waiting.givePlaces()
	g.active.end()
}

// join makes Run wait until done is called, for work that is not a run. It reports false if nothing
// may start any more.
func (g *registry) join() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.starting() {
		return false
	}
	g.active.n++
	return true
}

func (g *registry) done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.active.end()
}

// An activity counts what Run waits for: places, and background calls. Guarded by registry.mu.
type activity struct {
	n    int
	idle chan struct{} // closed when n is 0; nil: nobody waits
}

func (a *activity) end() {
	a.n--
	if a.n == 0 && a.idle != nil {
		close(a.idle)
		a.idle = nil
	}
}

// whenIdle returns a channel that is closed when Run need not wait any longer. It is called when
// nothing may start any more.
func (g *registry) whenIdle() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	idle := make(chan struct{})
	if g.active.n == 0 {
		close(idle)
	} else {
		g.active.idle = idle
	}
	return idle
}

// reserve reserves a place for something of a timer. Called with mu held.
func (g *registry) reserve(e *entry) {
	g.places++
	g.active.n++ // Run waits for what follows
	g.reserved[e]++
}

// unreserve is called with mu held.
func (g *registry) unreserve(e *entry) {
	if g.reserved[e]--; g.reserved[e] == 0 {
		delete(g.reserved, e)
	}
}

// enterReserved is enter for a tick or a Trigger that has a place reserved. Otherwise the
// caller calls giveUp.
func (g *registry) enterReserved(s *settings, limit int) Reason {
	g.mu.Lock()
	defer g.mu.Unlock()
	why := g.whyNot(s, limit)
	if why == "" {
		g.unreserve(s.entry)
		s.takePlace()
	}
	return why
}

// whyNot returns why nothing of a timer may take a place, apart from MaxRuns; "": it may. Called
// with mu held.
func (g *registry) whyNot(s *settings, limit int) Reason {
	switch {
	case !g.mayStart(s):
		return ReasonDraining
	case s.placesTaken() >= limit:
		return ReasonHostFull
	}
	return ""
}

// takePlace is called with registry.mu held.
func (s *settings) takePlace() {
	s.registration.places++
	s.entry.places.Add(1)
}

// giveUp gives the place back that was reserved for something of a timer.
func (g *registry) giveUp(s *settings) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.giveUpTurn(s.entry)
}

// giveUpTurn is giveUp, with mu held.
func (g *registry) giveUpTurn(e *entry) {
	g.unreserve(e)
	g.places--
	g.waiting.givePlaces()
	g.active.end()
}
