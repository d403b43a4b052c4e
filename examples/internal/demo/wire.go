package demo

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// A wire is the only connection of a host to the store.
type wire struct {
	store dlock.DistributedLock

	once sync.Once
	gone chan struct{} // closed when it is cut
}

func newWire(store dlock.DistributedLock) *wire {
	return &wire{store: store, gone: make(chan struct{})}
}

// cut is permanent: no request arrives any more, and no answer comes back.
func (w *wire) cut() { w.once.Do(func() { close(w.gone) }) }

var errSilence = errors.New("no answer in time")

// pass makes a call, and drops its answer if the wire is cut meanwhile.
func pass[T any](ctx context.Context, w *wire, call func() (T, error)) (T, error) {
	var none T
	select {
	case <-w.gone:
	default:
		if answer, err := call(); !w.isCut() {
			return answer, err
		}
	}
	<-ctx.Done()
	return none, errSilence
}

func (w *wire) isCut() bool {
	select {
	case <-w.gone:
		return true
	default:
		return false
	}
}

func (w *wire) TryAcquire(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
	return pass(ctx, w, func() (dlock.Grant, error) { return w.store.TryAcquire(ctx, req) })
}

func (w *wire) Extend(ctx context.Context, ttl time.Duration, grants ...dlock.Grant) ([]dlock.Result, error) {
	return pass(ctx, w, func() ([]dlock.Result, error) { return w.store.Extend(ctx, ttl, grants...) })
}

func (w *wire) Release(ctx context.Context, grants ...dlock.Grant) ([]dlock.Result, error) {
	return pass(ctx, w, func() ([]dlock.Result, error) { return w.store.Release(ctx, grants...) })
}
