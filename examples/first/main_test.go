//go:build unix

package main

import (
	"bytes"
	"log"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The program of the README runs its timer, and ends on a signal.
func TestItRunsAndEnds(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreAnyFunction("os/signal.loop"))
	out := &buffer{wanted: "processing", found: make(chan struct{})}
	log.SetOutput(out)
	defer log.SetOutput(os.Stderr)
	ended := make(chan struct{})
	go func() { defer close(ended); main() }()
	select {
	case <-out.found:
	case <-time.After(30 * time.Second):
		t.Fatal("nothing ran")
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("it does not end")
	}
}

// A buffer closes found once the expected text was written.
type buffer struct {
	mu     sync.Mutex
	buf    bytes.Buffer
	wanted string
	found  chan struct{}
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := strings.Contains(b.buf.String(), b.wanted)
	n, err := b.buf.Write(p)
	if !was && strings.Contains(b.buf.String(), b.wanted) {
		close(b.found)
	}
	return n, err
}
