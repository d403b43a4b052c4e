package dlock

import "time"

const (
	// sleepCheck is how often a session checks whether the machine was asleep, while a caller waits
	// for a lease to end.
	sleepCheck = 500 * time.Millisecond
	// sleepNoise is how much two readings may differ without sleep: by rounding and, where sleep is
	// only estimated, by a wall clock that is being slewed. Without it every check would cause a
	// heartbeat.
	sleepNoise = 10 * time.Millisecond
)

// expireAt makes expireLeases run at that time at the latest. Called with mu held.
func (s *Session) expireAt(at time.Time) {
	if !s.expiryTimerAt.IsZero() && !at.Before(s.expiryTimerAt) {
		return
	}
	s.expiryTimerAt = at
	wait := max(0, time.Until(at))
	if s.expiryTimer == nil {
		s.expiryTimer = time.AfterFunc(wait, s.expireLeases)
	} else {
		s.expiryTimer.Reset(wait)
	}
}

// expireLeases ends the leases whose trust windows have closed, and schedules itself for the next
// one. It has a timer of its own, so that a heartbeat which waits for the store cannot delay it,
// and it runs when the machine may have been asleep. A renewal does not move the timer: when it
// fires, there is time left, and it is set again.
func (s *Session) expireLeases() {
	var closed []*Lease
	s.mu.Lock()
	t := now()
	s.expiryTimerAt = time.Time{}
	for l := range s.expiryQueue.all {
		left, doubt := l.expireIfDue(t)
		if left <= 0 {
			s.forget(l)
			closed = append(closed, l)
			continue
		}
		if doubt {
			s.renewNow(t.mono)
		}
		s.expireAt(t.mono.Add(left))
		break // the windows of the rest close later
	}
	s.mu.Unlock()
	for _, l := range closed {
		l.cancelContext()
	}
}

// watch checks for sleep of the machine from now on, until every lease that a caller watches has
// ended.
func (s *Session) watch(l *Lease) {
	s.mu.Lock()
	if !s.expiryQueue.has(l) {
		s.mu.Unlock()
		return
	}
	l.counted = true
	s.watched++
	first := s.sleepTimer == nil
	if first {
		s.slept = suspended()
		s.sleepTimer = time.AfterFunc(sleepCheck, s.checkSleep)
	}
	s.mu.Unlock()
	if first {
		s.expireLeases() // the machine may have slept while nobody checked
	}
}

// checkSleep checks whether the machine was asleep: the expiry timer was then stopped, too, and is
// late. It does not run on the heartbeat, which may be waiting for the store.
func (s *Session) checkSleep() {
	slept := suspended()
	s.mu.Lock()
	if s.sleepTimer == nil {
		s.mu.Unlock()
		return
	}
	s.sleepTimer.Reset(sleepCheck)
	asleep := slept > s.slept+sleepNoise
	s.slept = slept
	s.mu.Unlock()
	if !asleep {
		return
	}
	s.expireLeases()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewNow(time.Now())
}
