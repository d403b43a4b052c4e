package durable

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// never is the wait for what nobody knows to be due.
const never = time.Duration(math.MaxInt64)

// A loop calls the step of a part: when its interval has passed, when the next thing that the step
// knows of is due, or when somebody wakes it. A step makes a few calls to the database, each
// bounded by CallTimeout.
type loop struct {
	name     string
	interval time.Duration
	jitter   float64
	step     func() (next time.Duration) // in how long the next thing is due; never: it knows of none
	wakes    chan struct{}
	madeAt   time.Time
	stepAt   atomic.Int64 // when the step under way began, in ns since madeAt; 0: none is
}

func newLoop(name string, interval time.Duration, jitter float64, step func() time.Duration) *loop {
	return &loop{name: name, interval: interval, jitter: jitter, step: step, wakes: make(chan struct{}, 1),
		madeAt: time.Now()}
}

// wake has the loop take a step now, and after the one under way if there is one.
func (l *loop) wake() {
	select {
	case l.wakes <- struct{}{}:
	default: // it has been woken
	}
}

// run takes steps until stop is closed. It does not cut off a step.
func (l *loop) run(stop <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		case <-l.wakes:
		}
		select {
		case <-stop: // both are ready
			return
		default:
		}
		l.stepAt.Store(int64(time.Since(l.madeAt)) | 1)
		next := l.step()
		l.stepAt.Store(0)
		timer.Reset(max(0, min(next, l.pause())))
	}
}

// pause returns how long to wait for what nobody has announced. It is drawn anew each time, so that
// workers that began together drift apart.
func (l *loop) pause() time.Duration { return jittered(l.interval, l.jitter) }

// jittered returns d, longer or shorter by up to a share of it.
func jittered(d time.Duration, share float64) time.Duration {
	spread := time.Duration(float64(d) * share)
	return d - spread + rand.N(2*spread+1)
}

// stepTook returns for how long the step under way has been going on; 0: none is.
func (l *loop) stepTook() time.Duration {
	at := l.stepAt.Load()
	if at == 0 {
		return 0
	}
	return time.Since(l.madeAt) - time.Duration(at)
}
