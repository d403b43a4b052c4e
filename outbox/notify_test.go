package outbox_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/outbox"
)

// Fails when the first call waits, when each of many is one of the database, or when one that came
// while another was under way, and may have been too late for it, is dropped.
func TestNotifyIsAtOnceAndThenOneForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		var calls []time.Duration
		var takes atomic.Int64
		notify := outbox.Notifier(func(context.Context) error {
			mu.Lock()
			calls = append(calls, time.Since(began))
			mu.Unlock()
			time.Sleep(time.Duration(takes.Load()))
			return errReceiver
		})
		at := func(d time.Duration, times int) {
			time.Sleep(time.Until(began.Add(d)))
			for range times {
				notify()
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
