package dlock

import "time"

const (
	// sleepCheck is how often, while somebody waits for a lease to end, a session looks whether the
	// machine was asleep.
	sleepCheck = 500 * time.Millisecond
	// sleepNoise is what may come between two looks without sleep: rounding, and where sleep is
	// only an estimate a wall clock that is being slewed. It would otherwise cause a heartbeat at
	// every look.
	sleepNoise = 10 * time.Millisecond
)

// closeAt has closeWindows come at that time at the latest. It must be called with mu held.
func (s *Session) closeAt(at time.Time) {
	if !s.closerAt.IsZero() && !at.Before(s.closerAt) {
		return
	}
	s.closerAt = at
	wait := max(0, time.Until(at))
	if s.closer == nil {
		s.closer = time.AfterFunc(wait, s.closeWindows)
	} else {
		s.closer.Reset(wait)
	}
}

// closeWindows loses the leases whose trust windows have closed, and comes back when the next one
// will. It runs on a timer of its own, whatever the heartbeat waits for, and whenever the machine
// may have been asleep. A renewal does not move the timer: when it goes off, there is time left.
func (s *Session) closeWindows() {
	var closed []*Lease
	s.mu.Lock()
	t := now()
	s.closerAt = time.Time{}
	for l := range s.windows.all {
		left, doubt := l.check(t)
		if left <= 0 {
			s.forget(l)
			closed = append(closed, l)
			continue
		}
		if doubt {
			s.hurry(t.mono)
		}
		s.closeAt(t.mono.Add(left))
		break // what began later closes later
	}
	s.mu.Unlock()
	for _, l := range closed {
		l.tell()
	}
}

// watch looks for sleep of the machine from now on, until the last lease of which somebody waits
// for the end is gone.
func (s *Session) watch(l *Lease) {
	s.mu.Lock()
	if !s.windows.has(l) {
		s.mu.Unlock()
		return
	}
	l.counted = true
	s.watched++
	first := s.sleeper == nil
	if first {
		s.slept = suspended()
		s.sleeper = time.AfterFunc(sleepCheck, s.checkSleep)
	}
	s.mu.Unlock()
	if first {
		s.closeWindows() // the machine may have slept while nobody looked
	}
}

// checkSleep looks, off the heartbeat because that may be waiting for the store, whether the
// machine was asleep: the closer has then stood still and goes off too late.
func (s *Session) checkSleep() {
	slept := suspended()
	s.mu.Lock()
	if s.sleeper == nil {
		s.mu.Unlock()
		return
	}
	s.sleeper.Reset(sleepCheck)
	asleep := slept > s.slept+sleepNoise
	s.slept = slept
	s.mu.Unlock()
	if !asleep {
		return
	}
	s.closeWindows()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hurry(time.Now())
}
