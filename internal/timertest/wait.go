package timertest

import (
	"sync"
	"testing"
	"time"
)

// patience bounds every wait for something that takes no time on an idle machine.
const patience = time.Minute

// receive waits for a value.
func receive[V any](t *testing.T, what string, from <-chan V) V {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
		panic("unreachable")
	}
}

// A pulse detects stalls of this process: it can meet a deadline only while it runs.
type pulse struct {
	mu     sync.Mutex
	last   time.Time
	stalls []stall
}

type stall struct{ from, to time.Time }

const (
	beat = 5 * time.Millisecond
	// worthIt is the shortest stall that is remembered.
	worthIt = 30 * time.Millisecond
)

func newPulse(t *testing.T) *pulse {
	p := &pulse{last: time.Now()}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(beat)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				p.beat()
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
		var worst time.Duration
		for _, s := range p.stalls {
			worst = max(worst, s.to.Sub(s.from))
		}
		t.Logf("the longest of %d stalls: %v", len(p.stalls), worst)
	})
	return p
}

func (p *pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Sub(p.last) > worthIt {
		p.stalls = append(p.stalls, stall{p.last, now})
	}
	p.last = now
}

// stood returns how long this process stood still since then, in all.
func (p *pulse) stood(since time.Time) (d time.Duration) {
	p.beat() // it may be standing still now, and we are the first to run again
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.stalls {
		if s.to.After(since) {
			d += s.to.Sub(s.from)
		}
	}
	return d
}
