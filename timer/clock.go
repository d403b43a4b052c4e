package timer

import "time"

// A clock goes off when a run reaches its MaxRunTime. Nearly all runs are over long before, so a run that nobody else waits for is given one only once
// it has gone on for a while, by the scheduling goroutine, which is awake every maxSleep at least. A run with a lease gets its clock at once: it must
// not hold a slot of the fleet for too long because a schedule blocks that goroutine.

// lateClock is the shortest MaxRunTime with which a run may wait for its clock: it has one after twice maxSleep.
const lateClock = 3 * maxSleep

// youngRuns are those without a clock, by age.
type youngRuns struct{ oldest, youngest *Run }

func (y *youngRuns) add(r *Run) {
	r.young = true
	r.older = y.youngest
	if r.older == nil {
		y.oldest = r
	} else {
		r.older.younger = r
	}
	y.youngest = r
}

func (y *youngRuns) remove(r *Run) {
	if r.older == nil {
		y.oldest = r.younger
	} else {
		r.older.younger = r.younger
	}
	if r.younger == nil {
		y.youngest = r.older
	} else {
		r.younger.older = r.older
	}
	r.young, r.older, r.younger = false, nil, nil
}

// startClock sees to it that a run is noticed which reaches its MaxRunTime. Called with mu held.
func (s *Scheduler) startClock(r *Run) {
	if r.local && r.entry.timer.MaxRunTime >= lateClock && s.starting() {
		s.young.add(r)
		return
	}
	s.giveClock(r)
}

func (s *Scheduler) giveClock(r *Run) {
	r.clock = time.AfterFunc(time.Until(r.ends()), func() { s.outOfTime(r.entry, r) })
}

// giveClocks gives clocks to those that have gone on for so long. Called with mu held.
func (s *Scheduler) giveClocks(age time.Duration) {
	for r := s.young.oldest; r != nil && time.Since(r.started) >= age; r = s.young.oldest {
		s.young.remove(r)
		s.giveClock(r)
	}
}

// stopClock is called when a run is over. Called with mu held.
func (s *Scheduler) stopClock(r *Run) {
	if r.young {
		s.young.remove(r)
	} else {
		r.clock.Stop()
	}
}
