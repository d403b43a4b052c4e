package dlock

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/suspend"
)

// FakeSleep lets a test put the machine to sleep: each call of the function that it returns adds to
// the time slept. With exact false the platform is one that can only compare its clocks, where a
// step of the wall clock looks the same. Call it outside the bubble.
//
// It replaces variables of the package, so the test must not be parallel; Setenv sees to that.
func FakeSleep(t *testing.T, exact bool) func(time.Duration) {
	t.Setenv("DLOCK_TEST_SLEEP", "fake")
	var slept atomic.Int64
	wasSuspended, wasExact := suspended, suspendIsExact
	suspended = func() time.Duration { return time.Duration(slept.Load()) }
	suspendIsExact = exact
	t.Cleanup(func() { suspended, suspendIsExact = wasSuspended, wasExact })
	return func(d time.Duration) { slept.Add(int64(d)) }
}

// Suspended is how the platform measures sleep.
func Suspended() time.Duration { return suspend.Suspended() }

// StoreTimeout is the session's.
func (s *Session) StoreTimeout() time.Duration { return s.storeTimeout }

// Idle reports that the session holds nothing, owes nothing and has no timer running.
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

// CountLooks counts how often it is asked how long the machine slept. See FakeSleep.
func CountLooks(t *testing.T, n *atomic.Int64) {
	t.Setenv("DLOCK_TEST_SLEEP", "counted")
	was := suspended
	suspended = func() time.Duration { n.Add(1); return 0 }
	t.Cleanup(func() { suspended = was })
}

// RenewAll renews every lease once, now.
func (s *Session) RenewAll() {
	s.mu.Lock()
	t := time.Now()
	s.renewNow(t)
	for s.main.beating || s.main.renewQueue.len > 0 && !s.main.renewQueue.first.due.After(t) {
		s.mu.Unlock()
		s.main.beat() // unless its timer was faster
		s.mu.Lock()
	}
	s.mu.Unlock()
}

// LazyDeadline returns the context that the store is called with, and its end.
func LazyDeadline(parent context.Context, at time.Time) (context.Context, func()) {
	c := &lazyDeadline{parent: parent, at: at}
	return c, c.end
}
