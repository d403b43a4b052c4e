package timer

import (
	"log/slog"
	"time"
)

// replan asks all schedules again after the clock was set back: otherwise no tick would come due
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
			continue // proceed is about to plan it by the new time; if it were planned twice, it would run early
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

// planning is the value of failures while Update asks a timer's new schedule for the first tick.
const planning = -1

// update swaps the settings of a timer, and returns the old ones. If both have the same schedule,
// the next tick stays. interval is the time between the latest and the next tick of the old
// schedule. Called with the registry's mutex held.
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
		e.failures = planning // before Run, begin asks its schedule instead
	}
	if s.nth != old.nth {
		e.ticks.set(0, time.Time{})
	}
	return old, interval, nil
}

// proceed plans the first tick of an updated timer. It asks the schedule, so call it without a
// mutex.
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

// dropNext leaves the item of a timer's next tick in the heap. It no longer counts there, and is
// removed when it is due, or when such items make up half of the heap. Called with the registry's
// mutex held.
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

// keepFinished is the shortest time for which a timer stays registered when its schedule.At has no
// tick left: long enough for the metrics of its last run to be scraped, and for an operator to call
// Explain. Any other schedule may have further ticks, even if it has just returned none.
const keepFinished = 10 * time.Minute

// finish removes a timer whose schedule has no tick left. If a run is in progress, or a tick is to
// be tried again, it looks again later instead. Called with the registry's mutex held.
func (p *planner) finish(e *entry) {
	if !p.registry.retire(e) {
		p.plan(e, p.now().Add(keepFinished).UnixMicro())
		return
	}
	p.log.later(slog.LevelDebug, "timer: removed: its last instant has passed",
		"timer", e.settings.Load().timer.Name)
}
