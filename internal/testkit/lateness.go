package testkit

import (
	"sync"
	"testing"
	"time"
)

// nap is how long the probe sleeps.
const nap = 5 * time.Millisecond

// A Lateness measures how late the machine wakes sleeping goroutines: one that takes short naps
// adds up by how much each was too long.
type Lateness struct {
	slight time.Duration // a nap that is too long by no more than this does not count

	mu   sync.Mutex
	last time.Time // when the probe was awake last
	late []overshoot
}

type overshoot struct {
	at time.Time
	by time.Duration
}

// MeasureLateness measures until the test ends. Naps that are too long by no more than slight do
// not count; 10 ms happen on an idle machine.
func MeasureLateness(t testing.TB, slight time.Duration) *Lateness {
	l, stop, stopped := newLateness(slight), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		l.probe(stop)
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
	})
	return l
}

func newLateness(slight time.Duration) *Lateness { return &Lateness{slight: slight, last: time.Now()} }

// probe sleeps until stop is closed.
func (l *Lateness) probe(stop <-chan struct{}) {
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
	if by := now.Sub(l.last) - nap; by > l.slight {
		l.late = append(l.late, overshoot{now, by})
	}
	l.last = now
}

// Since returns by how much the naps after an instant were too long, the present one included. If a
// nap began before the instant, only the part after it counts.
func (l *Lateness) Since(from time.Time) (late time.Duration) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if by := now.Sub(l.last) - nap; by > l.slight {
		late = min(by, now.Sub(from))
	}
	for i := len(l.late) - 1; i >= 0 && l.late[i].at.After(from); i-- {
		late += min(l.late[i].by, l.late[i].at.Sub(from))
	}
	return late
}
