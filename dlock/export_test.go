package dlock

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/suspend"
)

// FakeSleep lets a test simulate sleep of the machine. Each call of the returned function adds to
// the time slept. If exact is false, the platform can only compare its clocks, so a step of the
// wall clock looks like sleep. Call FakeSleep outside the bubble.
//
// It affects all sessions of the process, so the test must not be parallel. Setenv enforces this.
func FakeSleep(t *testing.T, exact bool) func(time.Duration) {
	t.Setenv("DLOCK_TEST_SLEEP", "fake")
	var slept atomic.Int64
	useSleep(t, &sleep{func() time.Duration { return time.Duration(slept.Load()) }, exact})
	return func(d time.Duration) { slept.Add(int64(d)) }
}

// A sleep replaces the platform's measure of sleep.
type sleep struct {
	measured func() time.Duration
	exact    bool
}

// fakeSleep replaces the platform's measure of sleep unless it is nil. It is atomic because timers
// of earlier tests may still read the clock.
var fakeSleep atomic.Pointer[sleep]

func init() {
	suspended = func() time.Duration {
		if fake := fakeSleep.Load(); fake != nil {
			return fake.measured()
		}
		return suspend.Suspended()
	}
	suspendIsExact = func() bool {
		if fake := fakeSleep.Load(); fake != nil {
			return fake.exact
		}
		return suspend.Exact
	}
}

func useSleep(t *testing.T, fake *sleep) {
	fakeSleep.Store(fake)
	t.Cleanup(func() { fakeSleep.Store(nil) })
}

// Suspended returns the platform's measure of sleep.
func Suspended() time.Duration { return suspend.Suspended() }

// StoreTimeout returns the session's StoreTimeout.
func (s *Session) StoreTimeout() time.Duration { return s.storeTimeout }

// Idle reports whether the session has no leases, no pending releases and no running timer.
func (s *Session) Idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for h := range s.allHeartbeats {
		if !h.idle() || h.beating || !h.timerAt.IsZero() {
			return false
		}
	}
	return s.expiryQueue.len == 0 && s.sleepTimer == nil
}

const (
	BeatBatch  = beatBatch
	MaxPending = maxPending
)

// CountLooks counts how often a session reads the machine's sleep time. See FakeSleep.
func CountLooks(t *testing.T, n *atomic.Int64) {
	t.Setenv("DLOCK_TEST_SLEEP", "counted")
	useSleep(t, &sleep{func() time.Duration { n.Add(1); return 0 }, suspend.Exact})
}

// RenewAll renews every lease once, immediately.
func (s *Session) RenewAll() {
	s.mu.Lock()
	t := time.Now()
	s.renewNow(t)
	for s.main.beating || s.main.renewQueue.len > 0 && !s.main.renewQueue.first.due.After(t) {
		s.mu.Unlock()
		s.main.beat() // unless its timer was first
		s.mu.Lock()
	}
	s.mu.Unlock()
}

// LazyDeadline returns the context that sessions pass to the store, and the function that ends it.
func LazyDeadline(parent context.Context, at time.Time) (context.Context, func()) {
	c := &lazyDeadline{parent: parent, at: at}
	return c, c.end
}
