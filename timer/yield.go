package timer

import "time"

// yieldStep is how much longer a host waits than the host that ran the tick before; maxYield is the
// longest wait.
const (
	yieldStep = 4 * time.Millisecond
	maxYield  = 100 * time.Millisecond
)

// yield makes a tick wait if this host ran one of the latest ticks, and reports whether it does.
func (g *gate) yield(t tick) bool {
	s := t.s
	if !s.timer.LeastRecentFirst || t.yielded || !s.shared() || g.store.isOpen(s) {
		return false
	}
	since, ran := g.ledger.sinceRun(s.entry)
	if !ran {
		return false
	}
	hosts := max(1, g.store.hostsSeen())
	rank := hosts - int(min(since, uint64(hosts))) // 0: every other host has had a turn since
	if rank <= 0 {
		return false
	}
	step := min(yieldStep, min(maxYield, s.entry.ticks.interval()/4)/time.Duration(hosts))
	t.yielded = true
	return g.waiting.later(t, time.Duration(rank)*step)
}

// letTriggersFirst makes a tick wait if a trigger waits for what its run would take, and reports
// whether it does. One that has yielded waits only while such a trigger is being started here.
func (g *gate) letTriggersFirst(t tick, yielded bool) bool {
	wait := g.triggers.goFirst(t.s, yielded)
	t.yielded = true
	return wait > 0 && g.waiting.later(t, wait)
}
