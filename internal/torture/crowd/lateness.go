package crowd

import (
	"sync"
	"time"
)

const (
	// margin is how much longer than its bound something may take on a machine that is not late:
	// for what comes after the timer that ends it.
	margin = 500 * time.Millisecond
	// nap is how long the probe sleeps.
	nap = 5 * time.Millisecond
	// slight is by how much a sleep may be late on a machine that is idle.
	slight = 10 * time.Millisecond
)

// inTime reports whether something that has to end within a bound did. The machine's lateness
// meanwhile is no fault of the store's: whatever has to end then could not run. Nothing else is
// added for a busy machine, or a call that waits for a dead connection would pass.
func inTime(took, bound, late time.Duration) bool { return took <= bound+margin+late }

// A lateness measures how late the machine wakes those who sleep: a goroutine that takes short naps
// adds up by how much each was too long.
type lateness struct {
	mu   sync.Mutex
	last time.Time // when the probe was awake last
	late []overshoot
}

type overshoot struct {
	at time.Time
	by time.Duration
}

func newLateness() *lateness { return &lateness{last: time.Now()} }

// probe sleeps until stop is closed.
func (l *lateness) probe(stop <-chan struct{}) {
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
func (l *lateness) awake(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if by := now.Sub(l.last) - nap; by > slight {
		l.late = append(l.late, overshoot{now, by})
	}
	l.last = now
}

// since returns by how much the naps that ended after an instant, and the present one, are too
// long. Of one that began before, only what is after the instant counts.
func (l *lateness) since(from time.Time) (late time.Duration) {
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
