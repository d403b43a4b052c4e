package testkit

import (
	"sync"
	"time"
)

const (
	// nap is how long the probe sleeps.
	nap = 5 * time.Millisecond
	// slight is by how much a sleep may be late on a machine that is idle.
	slight = 10 * time.Millisecond
)

// A Lateness measures how late the machine wakes those who sleep: a goroutine that takes short naps
// adds up by how much each was too long.
type Lateness struct {
	mu   sync.Mutex
	last time.Time // when the probe was awake last
	late []overshoot
}

type overshoot struct {
	at time.Time
	by time.Duration
}

// NewLateness returns a Lateness; call Probe in a goroutine.
func NewLateness() *Lateness { return &Lateness{last: time.Now()} }

// Probe sleeps until stop is closed.
func (l *Lateness) Probe(stop <-chan struct{}) {
	ticks := time.NewTimer(nap)
	defer ticks.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticks.C:
			l.awake(time.Now())
			ticks.Reset(nap)
		}
	}
}

// awake notes that the probe has woken.
func (l *Lateness) awake(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if by := now.Sub(l.last) - nap; by > slight {
		l.late = append(l.late, overshoot{now, by})
	}
	l.last = now
}

// Since returns by how much the naps that ended after an instant, and the present one, are too
// long. Of one that began before, only what is after the instant counts.
func (l *Lateness) Since(from time.Time) (late time.Duration) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if by := now.Sub(l.last) - nap; by > slight {
		late = min(by, now.Sub(from))
	}
	for i := len(l.late) - 1; i >= 0 && l.late[i].at.After(from); i-- {
		late += min(l.late[i].by, l.late[i].at.Sub(from))
	}
	return late
}
