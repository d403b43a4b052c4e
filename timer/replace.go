package timer

import (
	"fmt"
	"time"
)

// planning is the askPause of an entry whose first tick is being looked for, because Update has put
// it in the place of another.
const planning = -1

// takeOver puts e in the place of the timer of its name, which it returns, and takes over its state
// and its places. If mine is not nil, that timer has to be mine, or what has replaced it.
func (s *settings) takeOver(g *registry, mine *settings) (old *settings, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.current(); p == PhaseDraining || p == PhaseStopped {
		return nil, errShuttingDown
	}
	old = g.entries[s.timer.Name]
	if old == nil || mine != nil && mine.latest() != old {
		return nil, fmt.Errorf("%w: %q", ErrNoTimer, s.timer.Name)
	}
	s.entry, s.places = old.entry, old.places
	old.places = 0
	g.entries[s.timer.Name] = s
	old.successor.Store(s)
	if s.id != old.id {
		s.entry.knownAt.Store(0)
	}
	return old, nil
}

// replace puts e in the place of the timer of its name, which it returns. If both have the same
// schedule, e goes on with the ticks: those that have come due and wait in the heap, and the next
// one. Otherwise those that wait are skipped. See takeOver for mine.
func (p *planner) replace(mine, s *settings) (old *settings, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old, err = s.takeOver(p.registry, mine); err != nil {
		return nil, err
	}
	s.ticks.takeOver(&old.ticks, s.id == old.id)
	if _, fixed := s.delay(); !fixed {
		delete(p.fixed, s.entry)
	}
	if s.begun = old.begun; p.started {
		s.askPause = planning // otherwise begin asks its schedule
	}
	if s.id != old.id {
		p.forget(old)
		return old, nil
	}
	if old.later > 0 {
		for i := range p.heap {
			if it := &p.heap[i]; it.e == old && it.again != nil {
				it.e = s
			}
		}
		s.later, old.later = old.later, 0
	}
	p.dropNext(old)
	return old, nil
}

// takeOver sets the ticks of a timer that replaces another: the latest tick that came due, which
// must not be tried twice, and the next one if the schedule is the same.
func (c *tickTimes) takeOver(old *tickTimes, sameSchedule bool) {
	next, due := old.read()
	if !sameSchedule {
		next = 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next, c.due = next, due
}

// proceed plans the first tick of an entry that has replaced another. It asks the schedule, so it
// is called without a mutex.
func (p *planner) proceed(old, s *settings) {
	for again := true; again; {
		now := p.now()
		p.mu.Lock()
		begun := s.begun
		p.mu.Unlock()
		next, err := p.timetable.replaced(old, s, now, begun)
		p.mu.Lock()
		if again = p.now().Before(now); !again && (s.askPause == planning || !p.started) {
			s.askPause = 0
			p.setNext(s, 0, next, err)
			p.fixed.replaced(p, s)
		}
		p.mu.Unlock()
	}
	p.poke()
}

// replaced returns the first tick of a timer that has replaced another. begun is whether Run has
// planned the old one; if not, the new one is planned as a timer that was there when Run started.
func (tt *timetable) replaced(old, s *settings, now time.Time, begun bool) (plan, error) {
	if !begun {
		first, err := tt.first(s, now, time.Time{})
		first.atOnce = tt.atOnce(s, now)
		return first, err
	}
	next, _ := s.ticks.read()
	if tick := time.UnixMicro(next); next != 0 && !tick.After(now) {
		// It has come due, and its delay is not over, or this host has not come to it yet.
		when := tt.startsAt(s, tick)
		if was := tt.startsAt(old, tick); was.After(when) { // so it is not as late as it seems
			when = later(when, earlier(was, now))
		}
		return plan{tick: tick, due: when}, nil
	}
	if _, fixed := s.delay(); fixed && next != 0 && tt.blackout(old, now) == nil {
		return tt.planned(s, time.UnixMicro(next)), nil // the store told when, or a run that ended here
	}
	first, err := tt.first(s, now, old.ticks.tried(now)) // by the old interval
	if err == nil && s.id == old.id {
		first.atOnce = tt.lastMissed(s, now)
	}
	return first, err
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// carry lets the entry that goes on with a timer's ticks try one that the timer, which Update has
// replaced, tries no more. It reports false if there is none.
func (p *planner) carry(s *settings, t dueTick) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := s.heir()
	if p.stopped || h == nil || h == s {
		return false
	}
	t.carried, t.yielded = true, false // its blackouts may be others
	p.push(p.now(), h, t)
	p.poke()
	return true
}

// forget removes a timer's ticks from the heap, and skips those that were to be tried again. Called
// with mu held.
func (p *planner) forget(s *settings) {
	if s.later == 0 {
		p.dropNext(s)
		return
	}
	for _, t := range p.heap.removeAll(s) {
		s.later--
		p.ledger.skip(s, t.at, t.abandoned(), nil)
	}
}

// dropNext leaves the item of a timer's next tick in the heap, because finding it would take long,
// until it is due or half of the heap consists of such items. Called with mu held.
func (p *planner) dropNext(s *settings) {
	if s.timer.Schedule != nil {
		p.dropped++
	}
	if p.dropped > len(p.heap)/2 {
		p.dropped = 0
		p.heap.removeGone()
	}
}
