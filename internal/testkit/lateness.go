package testkit

import (
	"sync"
	"testing"
	"time"
)

// nap is how long the probe sleeps.
const nap = 5 * time.Millisecond

// A Lateness measures how late the machine wakes sleeping goroutines. A goroutine takes short naps
// and adds up by how much each was too long.
type Lateness struct {
	slight time.Duration // naps that are too long by at most this do not count

	mu   sync.Mutex
	last time.Time // when the probe was last awake
	late []overshoot
}

type overshoot struct {
	at time.Time
	by time.Duration
}

// MeasureLateness measures until the test ends. Naps that are too long by at most slight do not
// count. On an idle machine, 10 ms are normal.
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

// probe takes naps until stop is closed.
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

// awake records that the probe has woken up.
func (l *Lateness) awake(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if by := now.Sub(l.last) - nap; by > l.slight {
		l.late = append(l.late, overshoot{now, by})
	}
	l.last = now
}

// Since returns by how much the naps after an instant were too long, including the current one. For
// a nap that began before the instant, only the part after it counts.
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
