package demo

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
)

// A wire is a host's connection to the store. It implements a store that forwards every call until
// it is cut.
type wire struct {
	store dlock.DistributedLock
	isCut atomic.Bool
}

// cut is permanent: afterwards, no request arrives and no answer returns.
func (w *wire) cut() { w.isCut.Store(true) }

var errNoAnswer = errors.New("no answer in time")

// pass makes a call. If the wire is cut before or during the call, pass blocks until ctx ends.
func pass[T any](ctx context.Context, w *wire, call func() (T, error)) (T, error) {
	var none T
	if !w.isCut.Load() {
		if answer, err := call(); !w.isCut.Load() {
			return answer, err
		}
	}
	<-ctx.Done()
	return none, errNoAnswer
}

func (w *wire) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return pass(ctx, w, func() (driver.Grant, error) { return w.store.TryAcquire(ctx, req) })
}

func (w *wire) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	return pass(ctx, w, func() ([]driver.Result, error) { return w.store.Extend(ctx, ttl, grants...) })
}

func (w *wire) Release(ctx context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	return pass(ctx, w, func() ([]driver.Result, error) { return w.store.Release(ctx, grants...) })
}
