package testkit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// WorkOff runs a service in virtual time until no work is left, but at most for atMost, and then
// stops it. look says whether work is left and when it is due, with the zero time for soon. Outside
// of a bubble, where the wait would take real hours, the test fails immediately.
func WorkOff(t testing.TB, run func(context.Context) error, atMost time.Duration,
	look func() (left bool, dueAt time.Time)) {
	t.Helper()
	if !settled() {
		t.Fatal("WorkOff needs virtual time: call it in the function that is passed to synctest.Test")
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	defer func() { // deferred, because look may end the test
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	const shortest, longest = 10 * time.Millisecond, time.Minute
	pause := shortest
	for until := time.Now().Add(atMost); len(ended) == 0; {
		settled()
		left, dueAt := look()
		now := time.Now()
		if !left || !now.Before(until) {
			return
		}
		wait := pause
		if dueAt.After(now) {
			wait, pause = max(shortest, dueAt.Sub(now)), shortest
		} else {
			pause = min(2*pause, longest)
		}
		time.Sleep(min(wait, until.Sub(now)))
	}
}

// settled waits until all other goroutines of the bubble are blocked. It returns false outside of a
// bubble.
func settled() (inBubble bool) {
	defer func() { inBubble = recover() == nil }()
	synctest.Wait()
	return
}
