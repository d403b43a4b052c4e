package testkit

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

const (
	// Patience bounds the wait for what takes no time on an idle machine. A test that says how long
	// something may take at most measures that itself.
	Patience = 30 * time.Second

	// minPause and maxPause bound the time between two looks. In between it is four times what a
	// look takes, so that those who wait leave the machine to what they wait for.
	minPause = 5 * time.Millisecond
	maxPause = 100 * time.Millisecond

	// lastLook is how long the last call of a condition may take, which begins when the time is up.
	lastLook = time.Second
)

// A Condition returns true, or nil, when what is waited for has happened. Its context ends a second
// after the time is up.
type Condition interface {
	func() bool | func() error | func(context.Context) error
}

// Eventually waits until something has happened, and fails the test at once if it has not within
// limit.
func Eventually[C Condition](t testing.TB, limit time.Duration, what string, happened C) {
	t.Helper()
	if err := Poll(limit, what, happened); err != nil {
		t.Fatal(err)
	}
}

// EventuallyAll waits until happened returns n, and fails the test at once if the number stays the
// same for limit: however slow the machine is, what makes progress is not taken for stuck.
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

// Poll is Eventually for programs, and for tests that go on after a failure: it returns an error
// that says what has not happened, and the condition's last error. It looks once more when the time
// is up: a busy machine may have kept it from looking.
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

// errNotYet stands for false.
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
