package timer

import (
	"fmt"
	"slices"
)

// Left describes what a Scheduler still holds after its Run has returned. It returns "" if nothing
// is left.
func Left(s *Scheduler) (left string) {
	g := s.registry
	g.mu.Lock()
	defer g.mu.Unlock()
	add := func(what string, n int) {
		if n != 0 {
			left += fmt.Sprintf("%d %s; ", n, what)
		}
	}
	add("places", g.places)
	add("active", g.active.n)
	add("reserved", len(g.reserved))
	add("in line", s.waiting.placeQueue.n+len(s.waiting.placeQueue.triggers))
	add("waiting for a run", len(s.waiting.forRun))
	add("asking", len(s.waiting.asking))
	add("in flight", s.waiting.inFlight)
	add("waiting for a call", s.waiting.callQueue.n+len(s.waiting.callQueue.triggers))
	for name, e := range g.entries {
		if e.settings.Load().removed() {
			add("removed "+name, 1)
		}
		add("places of "+name, int(e.places.Load()))
		add("places of the registration of "+name, int(e.settings.Load().registration.places))
		if e.pending != nil {
			add("pending of "+name, 1)
		}
		for _, r := range e.runs {
			if r != nil {
				add("run of "+name, 1)
			}
		}
	}
	for _, l := range s.limits.byName {
		add("runs in limit "+l.Name, l.runs)
	}
	fixed := 0
	for e := range s.planner.fixed {
		if g.entries[e.settings.Load().timer.Name] != e {
			fixed++
		}
	}
	add("fixed delays without a timer", fixed)
	return left
}

// Misplanned describes the faults in the heap of a Scheduler in which no call is in progress, or
// returns "".
func Misplanned(s *Scheduler) (wrong string) {
	p := s.planner
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	if p.stopped {
		return ""
	}
	live := map[*entry]int{}
	for i, it := range p.heap {
		if i > 0 && p.heap[(i-1)/4].when > it.when {
			wrong += "heap order; "
		}
		if it.when == it.e.planned {
			live[it.e]++
		}
	}
	for _, set := range s.registry.list() {
		e := set.entry
		next, _ := e.ticks.read()
		if set.removed() && (e.planned != 0 || p.fixed[e] != nil) {
			wrong += fmt.Sprintf("%s: removed, planned %d; ", set.timer.Name, e.planned)
		}
		if !set.removed() && (e.failures != 0 || next != 0 && (live[e] == 0 || e.planned == 0)) {
			wrong += fmt.Sprintf("%s: failures %d next %d planned %d live %d; ", set.timer.Name, e.failures, next,
				e.planned, live[e])
		}
		if _, fixed := set.delay(); !set.removed() && fixed != (p.fixed[e] != nil) {
			wrong += fmt.Sprintf("%s: fixed %v %v; ", set.timer.Name, fixed, p.fixed[e] != nil)
		}
		wrong += s.waiting.misplaced(set)
	}
	if n := len(p.heap); n > 200 {
		wrong += fmt.Sprintf("%d items; ", n)
	}
	return wrong
}

// misplaced describes what is wrong with the waiting tick of a timer, or returns "". The caller
// holds the registry's mutex.
func (w *waiting) misplaced(s *settings) (wrong string) {
	p := s.entry.pending
	if p == nil {
		return ""
	}
	_, due := s.entry.ticks.read()
	if p.s != s || s.removed() || due != p.at {
		wrong += fmt.Sprintf("%s: tick %d waits, of old settings or not the latest, %d; ", s.timer.Name, p.at, due)
	}
	if p.on != forCall && w.asking[s.entry] != p && !slices.Contains(w.byTime, item{when: p.until, e: s.entry}) {
		wrong += s.timer.Name + ": a tick waits forever; "
	}
	return wrong
}
