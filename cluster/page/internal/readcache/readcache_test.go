package readcache_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
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
// context of a caller ends the read, when what fails is asked at the same pace, and when Forget has
// no effect.
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
		fail = nil
		time.Sleep(time.Second)
		get(2, true) // it is not asked again so soon
		time.Sleep(time.Second)
		get(5, false)
	})
}

// A read that began before Forget may have seen what was before a change.
//
// Fails when Get waits for such a read, when its result takes the place of a newer one, or when
// what was read before is passed off as new.
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
		cache.Forget()
		ctx := readcache.WithPatience(t.Context(), readcache.Patience)
		never := func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }
		if r := cache.Get(ctx, "key", never); !errors.Is(r.Err, readcache.ErrNoAnswer) {
			t.Errorf("what was read before the change is shown as new: %+v", r)
		}
		time.Sleep(time.Minute) // it ends
	})
}

// Viewers wait for a read that hangs once, and for no longer than their patience, however many
// reads they need. While it hangs, they get what was read last at once; when that is old, with the
// error that there is no answer. There is one read at a time, also of one that ignores its context
// or ends its goroutine.
//
// Fails when Get waits for a read that takes long, begins another one beside it, passes off what is
// old as new, or never reads again.
func TestViewersDoNotWaitForWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var caches [3]readcache.Cache[int]
		var calls atomic.Int32
		var hang atomic.Pointer[chan struct{}]
		stop := func() (goOn func()) {
			stopped := make(chan struct{})
			hang.Store(&stopped)
			return func() { hang.Store(nil); close(stopped); synctest.Wait() }
		}
		goOn := stop()
		load := func(context.Context) (int, error) {
			n := calls.Add(1)
			if stopped := hang.Load(); stopped != nil {
				<-*stopped
			}
			return int(n), nil
		}
		get := func(value int, failed error, waits time.Duration) {
			t.Helper()
			began := time.Now()
			ctx := readcache.WithPatience(t.Context(), readcache.Patience)
			for i := range caches {
				if r := caches[i].Get(ctx, "key", load); (value > 0) != (r.Value > 0) || !errors.Is(r.Err, failed) {
					t.Errorf("%+v, want %d, %v", r, value, failed)
				}
			}
			if waited := time.Since(began); waited != waits {
				t.Errorf("it waited for %v, want %v", waited, waits)
			}
		}
		get(0, readcache.ErrNoAnswer, readcache.Patience) // nothing was read yet
		get(0, readcache.ErrNoAnswer, readcache.Patience) // the reads of the others have just begun
		for range 10 {
			get(0, readcache.ErrNoAnswer, 0)
		}
		if n := calls.Load(); n != int32(len(caches)) {
			t.Errorf("%d calls", n)
		}
		time.Sleep(time.Second)
		goOn()
		time.Sleep(time.Minute)
		goOn = stop()                    // or a read could have been faster than the look at it
		get(1, readcache.ErrNoAnswer, 0) // the last read was slow
		goOn()
		time.Sleep(time.Second)
		get(1, nil, 0)
		synctest.Wait()
		goOn = stop()
		time.Sleep(time.Second)
		get(1, nil, readcache.Patience) // it is not old yet
		time.Sleep(time.Minute)
		get(1, readcache.ErrNoAnswer, 0)
		goOn()

		var cache readcache.Cache[int]
		for range 2 {
			r := cache.Get(t.Context(), "key", func(context.Context) (int, error) { runtime.Goexit(); return 0, nil })
			if r.Err == nil {
				t.Errorf("%+v", r)
			}
			time.Sleep(time.Second)
		}
	})
}
