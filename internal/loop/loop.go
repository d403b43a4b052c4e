// Package loop calls a step again and again: when its interval has passed, when the next thing that
// the step knows of is due, or when Wake is called.
package loop

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Never is the result of a step that knows of nothing that will be due.
const Never = time.Duration(math.MaxInt64)

// A Loop calls the step of a part. Its methods may be called from any goroutine. A step makes a few
// calls to a database, each of which is bounded.
type Loop struct {
	Name     string
	interval time.Duration
	jitter   float64
	step     func() (next time.Duration) // in how long the next thing is due; Never: it knows of none
	wakes    chan struct{}
	madeAt   time.Time
	stepAt   atomic.Int64 // when the step in progress began, in ns since madeAt; 0: none is
}

// New returns a loop whose pauses are an interval, longer or shorter by a share of it.
func New(name string, interval time.Duration, jitter float64, step func() time.Duration) *Loop {
	return &Loop{Name: name, interval: interval, jitter: jitter, step: step, wakes: make(chan struct{}, 1),
		madeAt: time.Now()}
}

// Wake makes the loop take a step now. If a step is in progress, another one follows it.
func (l *Loop) Wake() {
	select {
	case l.wakes <- struct{}{}:
	default: // it was woken already
	}
}

// Run takes steps until ctx ends. It does not cut off a step.
func (l *Loop) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-l.wakes:
		}
		if ctx.Err() != nil { // both are ready
			return
		}
		l.stepAt.Store(int64(time.Since(l.madeAt)) | 1)
		next := l.step()
		l.stepAt.Store(0)
		// It is random each time, so that workers that started together drift apart.
		timer.Reset(max(0, min(next, Jittered(l.interval, l.jitter))))
	}
}

// Jittered returns d, longer or shorter by up to a share of it.
func Jittered(d time.Duration, share float64) time.Duration {
	spread := time.Duration(float64(d) * share)
	return d - spread + rand.N(2*spread+1)
}

// Backoff returns how long to wait after a number of failed attempts: first, doubled for each
// attempt after the first one, never more than most, and shortened at random by up to half.
func Backoff(first, most time.Duration, attempts int) time.Duration {
	wait := first
	for range attempts - 1 {
		if wait >= most/2 {
			wait = most
			break
		}
		wait *= 2
	}
	return wait - rand.N(wait/2+1)
}

// StepTook returns how long the step in progress has taken; 0: none is.
func (l *Loop) StepTook() time.Duration {
	at := l.stepAt.Load()
	if at == 0 {
		return 0
	}
	return time.Since(l.madeAt) - time.Duration(at)
}

// StallAfter returns how long a step, or a call, may last if a call takes at most callTimeout.
func StallAfter(callTimeout time.Duration) time.Duration { return max(time.Minute, 5*callTimeout) }

// Stalled returns an error if a step of a loop lasts too long, although its calls take at most
// callTimeout: only a restart of the process helps then.
func Stalled(callTimeout time.Duration, loops ...*Loop) error {
	for _, l := range loops {
		if took := l.StepTook(); took > StallAfter(callTimeout) {
			return fmt.Errorf("the %s has stalled for %v", l.Name, took.Round(time.Second))
		}
	}
	return nil
}
