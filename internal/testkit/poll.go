package testkit

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

const (
	// Patience bounds the wait for an event that takes no time on an idle machine. A test with a
	// requirement for the duration measures it separately.
	Patience = 30 * time.Second

	// minPause and maxPause bound the pause between two calls of a condition. The pause is four
	// times the duration of a call, so that polling leaves the machine to the code under test.
	minPause = 5 * time.Millisecond
	maxPause = 100 * time.Millisecond

	// lastLook is the maximum duration of the last call of a condition, which begins after the time
	// limit.
	lastLook = time.Second
)

// A Condition returns true or nil when the event has happened. Its context ends one second after
// the time limit.
type Condition interface {
	func() bool | func() error | func(context.Context) error
}

// Eventually waits until something has happened. If it has not happened within limit, the test
// fails and ends.
func Eventually[C Condition](t testing.TB, limit time.Duration, what string, happened C) {
	t.Helper()
	if err := Poll(limit, what, happened); err != nil {
		t.Fatal(err)
	}
}

// EventuallyAll waits until happened returns n. If the number stays the same for limit, the test
// fails and ends. So slow progress does not count as being stuck.
func EventuallyAll(t testing.TB, limit time.Duration, what string, n int, happened func() int) {
	t.Helper()
	for last := happened(); last != n; {
		Eventually(t, limit, what, func() error {
			now := happened()
			if now == last {
				return fmt.Errorf("%d of %d", now, n)
			}
			last = now
			return nil
		})
	}
}

// Poll is like Eventually, for programs and for tests that continue after a failure. It returns an
// error that says what has not happened, with the condition's last error. It calls the condition
// once more after the time limit, because a busy machine may have delayed the call.
func Poll[C Condition](limit time.Duration, what string, happened C) error {
	ctx, cancel := context.WithTimeout(context.Background(), max(0, limit)+lastLook)
	defer cancel()
	for deadline := time.Now().Add(limit); ; {
		began := time.Now()
		last := began.After(deadline)
		err := look(ctx, happened)
		switch {
		case err == nil:
			return nil
		case last && err == errNotYet:
			return fmt.Errorf("not within %v: %s", limit, what)
		case last:
			return fmt.Errorf("not within %v: %s: %w", limit, what, err)
		}
		time.Sleep(min(max(minPause, 4*time.Since(began)), maxPause))
	}
}

// errNotYet is the error for a condition that returned false.
var errNotYet = errors.New("not yet")

func look[C Condition](ctx context.Context, happened C) error {
	switch happened := any(happened).(type) {
	case func() bool:
		if happened() {
			return nil
		}
		return errNotYet
	case func() error:
		return happened()
	case func(context.Context) error:
		return happened(ctx)
	}
	panic("unreachable: these are all types of a Condition")
}
