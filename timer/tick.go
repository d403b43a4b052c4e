package timer

import (
	"log/slog"
	"math"
	"time"

	"github.com/tickslot/tickslot/schedule"
)

// A tick is its scheduled instant, the same on every host. When a host comes to it is another
// matter: Delay moves it, a host may have been asleep, or stand back for others.

// A dueTick is a tick on its way through the doors.
type dueTick struct {
	at     int64 // µs
	missed int64 // µs, when it came due, if this host was not there then; else 0
	stood  bool  // this host has stood back for others
}

// abandoned is why a tick is skipped that waited when nothing more was to start.
func (t dueTick) abandoned() Reason {
	if t.missed != 0 || t.stood {
		return ReasonDraining
	}
	return ReasonQuarantine
}

// overtaken is why a tick is skipped that waited, and that a later one has overtaken.
func (t dueTick) overtaken() Reason {
	if t.missed != 0 || t.stood {
		return ReasonMissed
	}
	return ReasonQuarantine
}

// A plan is what comes next of a timer.
type plan struct {
	tick   time.Time // zero: nothing
	due    time.Time // when this host comes to it
	missed dueTick   // one that came due before this host was there, to be run if nobody had it; zero: none
}

// A coming is what has come due of a timer.
type coming struct {
	first, last time.Time     // ticks; the latest is tried
	missed      uint64        // from first to last, without it
	due         time.Time     // when this host was to come to the last
	late        time.Duration // how late this host is to the last
	dark        error         // the blackout it falls into, or nil
	next        plan
	err         error // of the schedule
}

// comeDue asks the schedule and the blackouts about a tick that was to be tried at due. Called
// without mu.
func (s *Scheduler) comeDue(e *entry, tick, due, now time.Time) (c coming) {
	var next time.Time
	c.first = tick
	c.last, next, c.missed, c.err = schedule.Advance(e.timer.Schedule, tick, now.Add(-e.spread(s.config.Holder)))
	if !c.last.Equal(tick) {
		due = s.comes(e, c.last)
		if due.After(now) { // its jitter still delays the last, so the one before it is tried
			c.last, next, c.missed, c.err = schedule.Advance(e.timer.Schedule, tick, c.last.Add(-time.Microsecond))
			due = s.comes(e, c.last)
		}
	}
	c.due, c.late = due, now.Sub(due)
	c.dark = s.blackout(e, due)
	if c.dark == nil && c.late > lateGrace && c.late <= e.catchUpWindow() {
		c.dark = s.blackout(e, now) // what is made up for starts now
	}
	c.next = s.planned(e, next)
	return c
}

// first asks the schedule for the first tick, of those after a given one, to which this host has
// yet to come. Called without mu.
func (s *Scheduler) first(e *entry, now, after time.Time) (plan, error) {
	if e.timer.Schedule == nil {
		return plan{}, nil
	}
	next, err := schedule.Next(e.timer.Schedule, later(now.Add(-e.spread(s.config.Holder)), after))
	if err != nil {
		return plan{}, err
	}
	if late := s.delayed(e, now, next); late.After(after) {
		next = late
	}
	return s.planned(e, next), nil
}

// delayed returns the tick before next if its jitter still delays it, or the zero time.
func (s *Scheduler) delayed(e *entry, now, next time.Time) time.Time {
	if e.timer.Delay.Jitter == 0 || next.IsZero() {
		return time.Time{}
	}
	reached := now.Add(-e.spread(s.config.Holder))
	most := float64(next.Sub(reached)) * e.timer.Delay.Jitter / (1 - e.timer.Delay.Jitter) // how long ago it can have been
	last := schedule.Latest(e.timer.Schedule, reached, time.Duration(min(most, math.MaxInt64/2)))
	if last.IsZero() || !s.comes(e, last).After(now) {
		return time.Time{}
	}
	return last
}

// planned adds when this host comes to a tick. Called without mu.
func (s *Scheduler) planned(e *entry, tick time.Time) plan {
	if tick.IsZero() {
		return plan{}
	}
	return plan{tick: tick, due: s.comes(e, tick)}
}

// comes is when this host comes to a tick. Called without mu.
func (s *Scheduler) comes(e *entry, tick time.Time) time.Time {
	return tick.Add(e.spread(s.config.Holder) + e.jitter(tick))
}

const (
	// firstAskAgain and lastAskAgain are the pauses after which a schedule that failed is asked
	// again: each is twice as long as the one before.
	firstAskAgain = time.Minute
	lastAskAgain  = time.Hour
)

// scheduleFailed has a schedule asked again later. Called with mu held.
func (s *Scheduler) scheduleFailed(e *entry, err error) {
	if e.scheduleFault == "" {
		s.log.later(slog.LevelError, "timer: its schedule failed, so the timer is not due until that works again", "timer", e.timer.Name, "err", err)
	}
	e.scheduleFault = err.Error()
	e.askPause = min(max(2*e.askPause, firstAskAgain), lastAskAgain)
	s.heap.push(item{when: s.now().Add(e.askPause).UnixMicro(), e: e})
}

// askAgain asks a schedule that failed for the tick after the latest that came due, so that those
// are counted which came due meanwhile. If it fails there, too, what matters is whether it works
// now. Called without mu.
func (s *Scheduler) askAgain(e *entry, due, now time.Time) (plan, error) {
	if !due.IsZero() {
		if next, err := schedule.Next(e.timer.Schedule, due); err == nil {
			return s.planned(e, next), nil
		}
	}
	p, err := s.first(e, now, due)
	if err == nil && due.IsZero() {
		p.missed = s.lastMissed(e, now)
	}
	return p, err
}

// setNext takes in what comes next. Called with mu held.
func (s *Scheduler) setNext(e *entry, p plan, err error) {
	e.next = 0
	if e.gone.Load() {
		return
	}
	if err != nil {
		s.scheduleFailed(e, err)
		return
	}
	if e.scheduleFault != "" {
		e.scheduleFault, e.askPause = "", 0
		s.log.later(slog.LevelInfo, "timer: the schedule works again", "timer", e.timer.Name)
	}
	if !p.tick.IsZero() {
		e.next = p.tick.UnixMicro()
	}
	if s.registry.current() == created { // Run begins with asking all schedules
		return
	}
	if e.next != 0 {
		s.heap.push(item{when: p.due.UnixMicro(), e: e})
	}
	if p.missed.at != 0 && e.due == 0 { // also one that was the last
		e.due = p.missed.at
		s.ledger.cameLate(&e.state.record)
		s.tryLater(s.now(), e, p.missed)
	}
}
