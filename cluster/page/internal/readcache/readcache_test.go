package readcache_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/cluster/page/internal/readcache"
)

// All who come while a read is under way, or within TTL after it, share it. When one fails, or
// panics, what was read before is still there, with the error. A caller whose context ends gets the
// last value, and the read goes on for the others.
//
// Fails when Get reads for each caller, when a failure forgets the value, when the end of the
// context of a caller ends the read, and when Forget has no effect.
func TestReadsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cache readcache.Cache[int]
		calls := 0
		var fail error
		load := func(ctx context.Context) (int, error) {
			calls++
			n := calls
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			if n == 4 {
				panic("no")
			}
			return n, fail
		}
		get := func(want int, failed bool) {
			t.Helper()
			if r := cache.Get(t.Context(), "key", load); r.Value != want || (r.Err != nil) != failed || r.At.IsZero() {
				t.Errorf("%+v, want %d, failed %v", r, want, failed)
			}
		}
		hasty, stop := context.WithCancel(t.Context())
		stop()
		if r := cache.Get(hasty, "key", load); !errors.Is(r.Err, context.Canceled) || !r.At.IsZero() {
			t.Errorf("%+v", r)
		}
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { get(1, false) })
		}
		all.Wait()
		time.Sleep(900 * time.Millisecond)
		get(1, false)
		cache.Forget()
		get(2, false)
		time.Sleep(time.Second)
		fail = errors.New("down")
		get(2, true)
		time.Sleep(time.Second)
		get(2, true) // it panics
		time.Sleep(time.Second)
		fail = nil
		get(5, false)
	})
}

// A read that began before Forget may have seen what was before a change.
//
// Fails when Get waits for such a read, or when its result takes the place of a newer one.
func TestForgetWhileReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cache readcache.Cache[string]
		old := make(chan struct{})
		go cache.Get(t.Context(), "key", func(context.Context) (string, error) { <-old; return "old", nil })
		synctest.Wait()
		cache.Forget()
		fresh := func(context.Context) (string, error) { return "new", nil }
		for range 2 {
			if r := cache.Get(t.Context(), "key", fresh); r.Value != "new" || r.Err != nil {
				t.Errorf("%+v", r)
			}
			if old != nil {
				close(old)
				old = nil
				synctest.Wait()
			}
		}
	})
}
