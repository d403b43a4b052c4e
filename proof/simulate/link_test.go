package simulate

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// A link is a host's network to the store. It implements dlock.DistributedLock.
type link struct {
	w *world
	h *host

	mu     sync.Mutex
	random *rand.Rand
	fault  fault
	until  time.Time
}

// A fault is a fault of a link.
type fault string

const (
	none         fault = ""
	cutOff       fault = "host_cut_off"      // an error at once
	silent       fault = "host_silent"       // requests and replies are lost
	lostReplies  fault = "lost_replies"      // requests arrive, replies are lost
	lossy        fault = "lossy"             // every third request or reply is lost
	slow         fault = "slow"              // up to the timeout and beyond
	late         fault = "late_requests"     // requests arrive after their callers have given up
	twice        fault = "requests_twice"    // requests arrive a second time, later
	stalledBeats fault = "stalled_heartbeat" // only heartbeats, as if their goroutine were stuck
	nonsense     fault = "nonsense"          // wrong answers, and panics in the driver
	lastWords    fault = "last_words"        // one reply at the last moment, then silence
)

var linkFaults = []fault{cutOff, silent, lostReplies, lossy, slow, late, twice, stalledBeats, nonsense, lastWords}

var (
	errRefused  = errors.New("connection refused")
	errNonsense = errors.New("nonsense")
)

// timerName returns the timer of a lock, or "" if the lock is not a timer's.
func timerName(lock string) string {
	name, _ := strings.CutPrefix(lock, "timer:")
	if name == lock {
		return ""
	}
	return name
}

func (l *link) breakFor(f fault, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault, l.until = f, time.Now().Add(d)
}

// draw chooses what happens to one call.
func (l *link) draw() (f fault, there, back time.Duration, third, half bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ms := func(most int) time.Duration { return time.Duration(l.random.IntN(most)+1) * time.Millisecond }
	there, back = ms(4), ms(4)
	third, half = l.random.IntN(3) == 0, l.random.IntN(2) == 0
	if time.Now().Before(l.until) {
		f = l.fault
	}
	switch most := int(l.w.storeTimeout.Milliseconds()); f {
	case slow:
		there, back = ms(most*2/3), ms(most*2/3)
	case late:
		there = time.Duration(most)*time.Millisecond + ms(2*int(ttl.Milliseconds()))
	case twice:
		back = ms(2 * int(ttl.Milliseconds())) // delay of the second arrival
	case lastWords:
		back = ms(most * 9 / 10)
		l.fault, l.until = silent, time.Now().Add(2*ttl)
	}
	return f, there, back, third, half
}

// call carries a request to the store and its answer back. do is the store's part. It is called
// once, twice, late or never.
func call[A any](ctx context.Context, l *link, lock string, beat bool, do func() (A, error)) (A, error) {
	var zero A
	l.checkDeadline(ctx)
	if l.h.isDead() {
		<-ctx.Done()
		return zero, ctx.Err()
	}
	f, there, back, third, half := l.draw()
	w := l.w
	w.mu.Lock()
	down := w.down
	w.report.Calls++
	if f != none && (f != stalledBeats || beat) {
		w.report.Faults.count("calls_" + string(f))
	}
	if down != up {
		w.report.Faults.count("calls_in_outage")
	}
	w.mu.Unlock()
	if f == none && down == up && timerName(lock) == "" {
		// Calls that hosts make all the time, other than for timers, get no delay, because it would
		// take most of the machine's time.
		return do()
	}
	silence := func() (A, error) {
		<-ctx.Done()
		return zero, ctx.Err()
	}
	switch {
	case down == refuses || f == cutOff:
		wait(ctx, there)
		return zero, errRefused
	case down == hangs || f == silent || f == stalledBeats && beat || f == lossy && third && half:
		return silence()
	case f == late:
		time.AfterFunc(there, func() { _, _ = do() })
		return silence()
	case f == nonsense && third:
		panic("the driver has a bug")
	}
	if !wait(ctx, there) { // a request in flight when the caller gave up still arrives
		time.AfterFunc(there, func() { _, _ = do() })
		return zero, ctx.Err()
	}
	a, err := do()
	switch {
	case f == lostReplies || f == lossy && third:
		return silence()
	case f == twice:
		time.AfterFunc(back, func() { _, _ = do() })
		back = time.Millisecond
	case f == nonsense && half:
		return zero, nil
	case f == nonsense:
		return zero, errNonsense
	}
	if !wait(ctx, back) {
		return zero, ctx.Err()
	}
	return a, err
}

// checkDeadline reports a call without a deadline, or with one later than StoreTimeout, because it
// could block for too long (I7).
func (l *link) checkDeadline(ctx context.Context) {
	ends, ok := ctx.Deadline()
	if left := time.Until(ends); !ok || left > l.w.storeTimeout {
		l.w.mu.Lock()
		defer l.w.mu.Unlock()
		l.w.broken(&l.w.report.LongCalls, "a call with a deadline in %v (%v)", left, ok)
	}
}

// wait waits for d, and returns false if ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (l *link) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return call(ctx, l, req.Name, false, func() (driver.Grant, error) { return l.w.acquire(l.h, req) })
}

func (l *link) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	return call(ctx, l, first(grants), true, func() ([]driver.Result, error) { return l.w.extend(ttl, grants) })
}

func (l *link) Release(ctx context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	return call(ctx, l, first(grants), false, func() ([]driver.Result, error) { return l.w.release(grants) })
}

// first returns the name of the first timer lock among the grants.
func first(grants []driver.Grant) string {
	for _, g := range grants {
		if timerName(g.Name) != "" {
			return g.Name
		}
	}
	return ""
}
