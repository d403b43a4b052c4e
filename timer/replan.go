package timer

import (
	"log/slog"
	"time"
)

// replan calls all schedules again after the clock was set back. Otherwise no tick would be due
// until the clock reaches the planned times again.
func (p *planner) replan(now time.Time) {
	p.log.Warn("timer: the wall clock was set back: asking all schedules again")
	p.registry.mu.Lock()
	p.heap, p.dropped = nil, 0
	p.waiting.tryAll()
	after := make(map[*settings]time.Time)
	for _, s := range p.registry.list() {
		if s.removed() {
			continue
		}
		e := s.entry
		e.planned = 0
		if e.failures == planning {
			continue // proceed is about to plan it by the new time; if both did, it would run early
		}
		after[s] = e.ticks.tried(now, e.ticks.interval())
	}
	p.registry.mu.Unlock()
	for s, done := range after {
		next, err := p.schedules.first(s, now, done)
		p.registry.mu.Lock()
		p.setNext(s, 0, next, err)
		p.registry.mu.Unlock()
	}
	p.log.flush()
}

// planning is the value of failures while Update calls a timer's new schedule for the first tick.
const planning = -1

// update replaces the settings of a timer, and returns the old ones. If both have the same
// schedule, the next tick remains. interval is the time between the latest and the next tick of the
// old schedule. The caller holds the registry's mutex.
func (p *planner) update(s *settings) (old *settings, interval time.Duration, err error) {
	if old, err = p.registry.update(s); err != nil {
		return nil, 0, err
	}
	e := s.entry
	interval = e.ticks.interval()
	if _, fixed := s.delay(); !fixed {
		delete(p.fixed, e)
	}
	e.ticks.setFault("")
	e.blackoutFailed.Store(false)
	e.failures = 0
	if p.started {
		e.failures = planning // before Run, begin calls the schedule instead
	}
	if s.nth != old.nth {
		e.ticks.set(0, time.Time{})
	}
	return old, interval, nil
}

// proceed plans the first tick of an updated timer. It calls the schedule, so the caller must hold
// no mutex.
func (p *planner) proceed(old, s *settings, interval time.Duration) {
	e := s.entry
	for again := true; again; {
		now := p.now()
		p.registry.mu.Lock()
		begun := e.begun
		p.registry.mu.Unlock()
		next, err := p.schedules.updated(old, s, now, interval, begun)
		p.registry.mu.Lock()
		again = s.current() && p.now().Before(now)
		if !again && s.current() && (e.failures == planning || !p.started) {
			e.failures = 0
			p.setNext(s, 0, next, err)
			p.fixed.updated(p, e)
		}
		p.registry.mu.Unlock()
	}
	p.bell.ring()
}

// dropNext makes the item of a timer's next tick stale, but leaves it in the heap. Stale items are
// removed when they are due, or when they make up half of the heap. The caller holds the registry's
// mutex.
func (p *planner) dropNext(e *entry) {
	if e.planned == 0 {
		return
	}
	e.planned = 0
	if p.dropped++; p.dropped > len(p.heap)/2 {
		p.dropped = 0
		p.heap.removeStale()
	}
}

// keepFinished is the minimum time for which a timer remains registered after its schedule.At has
// no tick left. It leaves time to scrape the metrics of the last run, and to call Explain. Any
// other schedule may have further ticks, even if it has just returned none.
const keepFinished = 10 * time.Minute

// finish removes a timer whose schedule has no tick left. If a run is in progress, or a tick is to
// be tried again, finish is called again later. The caller holds the registry's mutex.
func (p *planner) finish(e *entry) {
	if !p.registry.retire(e) {
		p.plan(e, p.now().Add(keepFinished).UnixMicro())
		return
	}
	p.log.later(slog.LevelDebug, "timer: removed: its last instant has passed",
		"timer", e.settings.Load().timer.Name)
}
