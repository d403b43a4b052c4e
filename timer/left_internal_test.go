package timer

import "fmt"

// Left says what a Scheduler whose Run has returned still keeps; "": nothing.
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
	add("reserved", len(g.line.reserved))
	add("in line", g.line.len())
	add("pending", len(s.waits.timers))
	if s.acquirer.session != nil {
		add("in flight", s.acquirer.inFlight)
		add("queued", len(s.acquirer.queue.ticks)+len(s.acquirer.queue.triggers))
	}
	for name, e := range g.entries {
		if e.settings.Load().removed() {
			add("removed "+name, 1)
		}
		add("places of "+name, int(e.places.Load()))
		add("places of the registration of "+name, int(e.settings.Load().registration.places))
		if e.pending.Load() != nil {
			add("pending of "+name, 1)
		}
		for _, r := range e.runs {
			if r != nil {
				add("run of "+name, 1)
			}
		}
	}
	s.limits.mu.Lock()
	defer s.limits.mu.Unlock()
	for _, l := range s.limits.byName {
		add("runs in limit "+l.Name, l.runs)
	}
	fixed := 0
	for e := range s.planner.fixed {
		if g.entries[e.settings.Load().timer.Name] != e {
			fixed++
		}
	}
	add("fixed delays of nothing", fixed)
	return left
}

// Misplanned says what is wrong with the heap of a Scheduler in which nothing is under way.
func Misplanned(s *Scheduler) (wrong string) {
	p := s.planner
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return ""
	}
	live, later := map[*entry]int{}, map[*entry]int{}
	for i, it := range p.heap {
		if i > 0 && p.heap[(i-1)/4].when > it.when {
			wrong += "heap order; "
		}
		switch {
		case it.again != nil:
			later[it.e]++
		case it.when == it.e.planned:
			live[it.e]++
		}
	}
	for _, set := range s.registry.all() {
		e := set.entry
		next, _ := e.ticks.read()
		if int(e.later) != later[e] {
			wrong += fmt.Sprintf("%s: later %d, in heap %d; ", set.timer.Name, e.later, later[e])
		}
		if set.removed() && (e.planned != 0 || later[e] != 0 || p.fixed[e] != nil) {
			wrong += fmt.Sprintf("%s: removed, planned %d, later %d; ", set.timer.Name, e.planned, later[e])
		}
		if !set.removed() && (e.failures != 0 || next != 0 && (live[e] == 0 || e.planned == 0)) {
			wrong += fmt.Sprintf("%s: failures %d next %d planned %d live %d; ", set.timer.Name, e.failures, next,
				e.planned, live[e])
		}
		if _, fixed := set.delay(); !set.removed() && fixed != (p.fixed[e] != nil) {
			wrong += fmt.Sprintf("%s: fixed %v %v; ", set.timer.Name, fixed, p.fixed[e] != nil)
		}
		if w := e.pending.Load(); w != nil && w.s != set {
			wrong += fmt.Sprintf("%s: pending with old settings; ", set.timer.Name)
		}
	}
	if n := len(p.heap); n > 200 {
		wrong += fmt.Sprintf("%d items; ", n)
	}
	return wrong
}
