package timer

import "time"

// yieldStep is how much longer a host waits than the one that ran a tick earlier,
// maxYield the most.
const (
	yieldStep = 4 * time.Millisecond
	maxYield  = 100 * time.Millisecond
)

// yield has a tick wait a little if this host ran one of the latest, and reports whether it does.
func (g *gate) yield(e *entry, t dueTick) bool {
	if !e.timer.LeastRecentFirst || t.yielded || !e.shared() || g.store.isOpen(e) {
		return false
	}
	since, ran := g.ledger.sinceRun(&e.state.record)
	if !ran {
		return false
	}
	hosts := max(1, g.store.hostsSeen())
	rank := hosts - int(min(since, uint64(hosts))) // 0: it has been this host's turn for long
	if rank <= 0 {
		return false
	}
	step := min(yieldStep, min(maxYield, e.clock.interval()/4)/time.Duration(hosts))
	t.yielded = true
	return g.planner.tryLater(time.Duration(rank)*step, e, t)
}
