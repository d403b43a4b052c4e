package dlock

import "time"

const (
	// sleepCheck is how often a session checks whether the machine was asleep. It checks only while
	// a caller waits for the end of a lease.
	sleepCheck = 500 * time.Millisecond
	// sleepNoise is how much two readings may differ without sleep. The causes are rounding and,
	// where sleep is only estimated, a wall clock that is being slewed. Without this tolerance,
	// every check would cause a heartbeat.
	sleepNoise = 10 * time.Millisecond
)

// expireAt makes sure that expireLeases runs by the given time. The caller holds mu.
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

// expireLeases ends the leases whose trust windows have closed and sets the timer for the next one.
// It also runs when the machine may have been asleep. Its timer is separate from the heartbeat,
// which may be waiting for the store. A renewal does not move the timer. When the timer fires too
// early, it is set again.
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
		break // the other windows close later
	}
	s.mu.Unlock()
	for _, l := range closed {
		l.cancelContext()
	}
}

// watch starts checks for sleep of the machine. They end with the last lease that a caller waits
// for.
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
		s.expireLeases() // the machine may have slept while there were no checks
	}
}

// checkSleep ends leases and renews early if the machine was asleep, because the expiry timer
// stopped during the sleep and is late. It has its own timer, because the heartbeat may be waiting
// for the store.
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
