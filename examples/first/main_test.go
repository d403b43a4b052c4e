//go:build unix

package main

import (
	"log"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/internal/testkit"
)

// The README's program runs its timer, and ends on a signal.
func TestItRunsAndEnds(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreAnyFunction("os/signal.loop"))
	var out testkit.Log
	log.SetOutput(&out)
	defer log.SetOutput(os.Stderr)
	ended := make(chan struct{})
	go func() { defer close(ended); main() }()
	testkit.Eventually(t, testkit.Patience, "a run", func() bool {
		return strings.Contains(out.String(), "processing")
	})
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("it does not end")
	}
}
