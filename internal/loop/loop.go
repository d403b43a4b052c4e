// Package loop calls a step repeatedly: after each interval, when the next item known to the step
// is due, or when Wake is called.
package loop

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Never is the result of a step for which nothing will become due.
const Never = time.Duration(math.MaxInt64)

// A Loop calls the step of a part. Its methods may be called from any goroutine. A step makes a few
// calls to a database, each with a bounded duration.
type Loop struct {
	Name     string
	interval time.Duration
	jitter   float64
	step     func() (next time.Duration) // returns the time until the next item is due, or Never
	wakes    chan struct{}
	madeAt   time.Time
	stepAt   atomic.Int64 // when the current step began, in ns since madeAt; 0 if none
}

// New returns a loop. Its pauses vary randomly around interval by the share jitter.
func New(name string, interval time.Duration, jitter float64, step func() time.Duration) *Loop {
	return &Loop{Name: name, interval: interval, jitter: jitter, step: step, wakes: make(chan struct{}, 1),
		madeAt: time.Now()}
}

// Wake makes the loop take a step now. If a step is in progress, another one follows.
func (l *Loop) Wake() {
	select {
	case l.wakes <- struct{}{}:
	default: // already woken
	}
}

// Run takes steps until ctx ends. It does not interrupt a step.
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
		// The pause is random, so that workers that started together drift apart.
		timer.Reset(max(0, min(next, Jittered(l.interval, l.jitter))))
	}
}

// Jittered returns d, randomly lengthened or shortened by up to the given share.
func Jittered(d time.Duration, share float64) time.Duration {
	spread := time.Duration(float64(d) * share)
	return d - spread + rand.N(2*spread+1)
}

// Backoff returns the wait after a number of failed attempts. It starts at first, doubles with each
// further attempt up to most, and is randomly shortened by up to half.
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

// StepTook returns how long the current step has taken so far, or 0 if none is in progress.
func (l *Loop) StepTook() time.Duration {
	at := l.stepAt.Load()
	if at == 0 {
		return 0
	}
	return time.Since(l.madeAt) - time.Duration(at)
}

// StallAfter returns the maximum duration of a step or a call, if a call takes at most callTimeout.
func StallAfter(callTimeout time.Duration) time.Duration { return max(time.Minute, 5*callTimeout) }

// Stalled returns an error if a step of a loop takes too long, although its calls take at most
// callTimeout. Only a restart of the process resolves that.
func Stalled(callTimeout time.Duration, loops ...*Loop) error {
	for _, l := range loops {
		if took := l.StepTook(); took > StallAfter(callTimeout) {
			return fmt.Errorf("the %s has stalled for %v", l.Name, took.Round(time.Second))
		}
	}
	return nil
}
