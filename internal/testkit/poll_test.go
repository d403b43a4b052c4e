package testkit

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Fails when an event that happened in time is missed because the machine was busy.
func TestPollLooksOnceMore(t *testing.T) {
	t.Parallel()
	looks := 0
	second := func() bool {
		if looks++; looks == 1 {
			time.Sleep(100 * time.Millisecond) // as if the machine were busy
		}
		return looks == 2
	}
	if err := Poll(50*time.Millisecond, "the second look", second); err != nil {
		t.Error(err)
	}
}

// Fails when the error does not say what was waited for, for how long, and why it has not happened.
func TestPollSaysWhatHasNotHappened(t *testing.T) {
	t.Parallel()
	reason := errors.New("the last reason")
	err := Poll(time.Millisecond, "a grant", func() error { return reason })
	if !errors.Is(err, reason) || err.Error() != "not within 1ms: a grant: the last reason" {
		t.Errorf("with a reason: %v", err)
	}
	err = Poll(time.Millisecond, "a grant", func() bool { return false })
	if err == nil || err.Error() != "not within 1ms: a grant" {
		t.Errorf("without: %v", err)
	}
}

// Fails when a condition that waits for its context waits forever, or when the last call gets an
// ended context.
func TestPollBoundsItsCondition(t *testing.T) {
	t.Parallel()
	err := Poll(-time.Hour, "an answer", func(ctx context.Context) error {
		if ctx.Err() != nil {
			return errors.New("it has no time")
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestEventuallyFailsTheTest(t *testing.T) {
	t.Parallel()
	in, out := &recorder{TB: t}, &recorder{TB: t}
	Eventually(in, time.Minute, "now", func() bool { return true })
	Eventually(out, time.Millisecond, "never", func() bool { return false })
	if in.failed || !out.failed {
		t.Errorf("what had happened failed: %t, what had not: %t", in.failed, out.failed)
	}
}
