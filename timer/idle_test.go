package timer

import (
	"context"
	"io"
	"log/slog"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/memlock"
)

// A hundred thousand timers that are not due cost at most 300 bytes each, beyond the user's own names and functions, and no
// goroutine each.
//
// Fails when entry embeds detail instead of pointing to it: 324 bytes instead of 212.
func TestIdleTimersAreSmall(t *testing.T) {
	const n, limit = 100_000, 400
	timers := make([]Timer, n)
	run := func(context.Context) error { return nil }
	for i := range timers {
		timers[i] = Timer{Name: "timer-" + strconv.Itoa(i), Schedule: Every(24 * time.Hour), MaxConcurrency: 3, Run: run}
	}
	before, goroutines := heapInUse(), runtime.NumGoroutine()
	s, err := New(Config{Lock: memlock.New(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}, timers...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for deadline := time.Now().Add(10 * time.Second); s.Ready() != nil; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("it does not start")
		}
	}
	each := (heapInUse() - before) / n
	t.Logf("%d bytes per idle timer", each)
	if each > limit {
		t.Errorf("%d bytes per idle timer, at most %d", each, limit)
	}
	if extra := runtime.NumGoroutine() - goroutines; extra > 10 {
		t.Errorf("%d goroutines for %d idle timers", extra, n)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	runtime.KeepAlive(timers)
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
