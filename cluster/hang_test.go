package cluster_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/cluster"
)

// stuck is a store whose calls ignore their context.
type stuck struct {
	cluster.Store
	release chan struct{}
}

func (s *stuck) Write(ctx context.Context, b cluster.Batch) (cluster.Written, error) {
	<-s.release
	return s.Store.Write(ctx, b)
}

func (s *stuck) Read(ctx context.Context, q cluster.Query) (cluster.Rows, error) {
	<-s.release
	return s.Store.Read(ctx, q)
}

// A store that does not return in time delays neither Run nor a viewer, and is not called
// repeatedly in the meantime.
//
// Fails when Run or Snapshot waits for the store, or when each attempt leaves a goroutine behind.
func TestStoreThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // not parallel, because it counts goroutines
		f := newFleet(t)
		store := &stuck{f.store, make(chan struct{})}
		h := f.start(cluster.Config{Store: store})
		began := time.Now()
		if s, err := h.Snapshot(t.Context()); err == nil || s == nil || time.Since(began) > 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		time.Sleep(time.Minute)
		before := runtime.NumGoroutine()
		time.Sleep(time.Hour)
		if n := runtime.NumGoroutine() - before; n > 20 { // each of 360 heartbeats would leave one
			t.Errorf("%d goroutines more", n)
		}
		began = time.Now()
		h.stop()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("Run took %v to return", took)
		}
		close(store.release)
	})
}

// A store that works again after its calls have hung is used again.
//
// Fails when the registry still waits for an abandoned call that has returned.
func TestStoreThatReturnsLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		store := &stuck{f.store, make(chan struct{})}
		h := f.start(cluster.Config{Store: store})
		time.Sleep(10 * time.Minute)
		close(store.release)
		time.Sleep(time.Minute)
		if s := h.state(h); s != cluster.HostAlive {
			t.Errorf("it is %q", s)
		}
		f.end()
	})
}
