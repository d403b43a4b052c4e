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
// All sessions of the process sleep, so the test must not be parallel; Setenv sees to that.
func FakeSleep(t *testing.T, exact bool) func(time.Duration) {
	t.Setenv("DLOCK_TEST_SLEEP", "fake")
	var slept atomic.Int64
	useSleep(t, &sleep{func() time.Duration { return time.Duration(slept.Load()) }, exact})
	return func(d time.Duration) { slept.Add(int64(d)) }
}

// A sleep stands for the platform's way of measuring how long it has slept.
type sleep struct {
	measured func() time.Duration
	exact    bool
}

// fakeSleep is used instead of the platform's; nil: the platform's is used. It is atomic, because
// timers of earlier tests may still read the clock.
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

// CountLooks counts how often a session reads how long the machine slept. See FakeSleep.
func CountLooks(t *testing.T, n *atomic.Int64) {
	t.Setenv("DLOCK_TEST_SLEEP", "counted")
	useSleep(t, &sleep{func() time.Duration { n.Add(1); return 0 }, suspend.Exact})
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
