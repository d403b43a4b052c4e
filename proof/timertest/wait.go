package timertest

import (
	"testing"
	"time"
)

// patience bounds every wait for something that is immediate on an idle machine.
const patience = time.Minute

// receive waits for a value.
func receive[V any](t *testing.T, what string, from <-chan V) V {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
		panic("unreachable")
	}
}

// minStall is the shortest stall of the machine that counts as an excuse.
const minStall = 30 * time.Millisecond
