package lifecycle_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/internal/lifecycle"
)

// Fails when the first call is delayed, when each of many hints calls the database, or when a hint
// given during a call is dropped although that call may have come too early for it.
func TestHintIsAtOnceAndThenOneForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		var calls []time.Duration
		var takes atomic.Int64
		var hint lifecycle.Hint
		call := func(context.Context) error {
			mu.Lock()
			calls = append(calls, time.Since(began))
			mu.Unlock()
			time.Sleep(time.Duration(takes.Load()))
			return errors.New("no database")
		}
		at := func(d time.Duration, times int) {
			time.Sleep(time.Until(began.Add(d)))
			for range times {
				hint.Give(call)
			}
		}
		const ms = time.Millisecond
		at(0, 3)
		at(4*ms, 5)
		at(100*ms, 1)
		takes.Store(int64(50 * ms))
		at(200*ms, 1)
		at(220*ms, 5)
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		if want := []time.Duration{0, 10 * ms, 100 * ms, 200 * ms, 260 * ms}; !slices.Equal(calls, want) {
			t.Errorf("the database was called after %v, want %v", calls, want)
		}
	})
}

// The application's code in its driver panics or ends its goroutine while the database is called.
//
// Fails when that ends the process, or when no later call is made.
func TestHintWhoseCallPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hint lifecycle.Hint
		var calls atomic.Int64
		for _, fail := range []func(){func() { panic("a tracer") }, runtime.Goexit} {
			hint.Give(func(context.Context) error {
				fail()
				return nil
			})
			time.Sleep(time.Second)
			hint.Give(func(context.Context) error {
				calls.Add(1)
				return nil
			})
			time.Sleep(time.Second)
		}
		if n := calls.Load(); n != 2 {
			t.Errorf("%d calls came after those that failed, want 2", n)
		}
	})
}
