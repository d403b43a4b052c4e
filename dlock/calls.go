package dlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// storeCalls calls the store. It recovers panics of the store, rejects invalid answers, and reports
// each call.
type storeCalls struct {
	store DistributedLock
	hook  func(StoreCall) // Hooks.Called
}

// report passes a finished call to the hook.
func (s storeCalls) report(ctx context.Context, call StoreCall, began time.Time) {
	if s.hook == nil {
		return
	}
	defer func() { _ = recover() }()
	call.Context, call.StartedAt, call.Took = ctx, began, time.Since(began)
	call.Canceled = errors.Is(ctx.Err(), context.Canceled)
	s.hook(call)
}

func (s storeCalls) acquire(ctx context.Context, req driver.Request) (g driver.Grant, err error) {
	began := time.Now()
	defer func() { s.report(ctx, StoreCall{Op: StoreOpAcquire, Name: req.Name, Err: err}, began) }()
	defer recovered(&err)
	g, err = s.store.TryAcquire(ctx, req)
	_ = errors.Is(err, ErrNotAcquired) // a panic of the error's Is or Unwrap happens here and is recovered
	return g, err
}

// extend renews leases of one shard. It returns when the session's life ends.
func (s storeCalls) extend(
	life context.Context, timeout, ttl time.Duration, grants []driver.Grant,
) ([]driver.Result, error) {
	ctx, cancel := context.WithTimeout(life, timeout)
	defer cancel()
	return s.many(ctx, StoreOpExtend, grants, func() ([]driver.Result, error) {
		return s.store.Extend(ctx, ttl, grants...)
	})
}

func (s storeCalls) release(ctx context.Context, grants []driver.Grant) ([]driver.Result, error) {
	return s.many(ctx, StoreOpRelease, grants, func() ([]driver.Result, error) {
		return s.store.Release(ctx, grants...)
	})
}

func (s storeCalls) many(
	ctx context.Context, op StoreOp, grants []driver.Grant, call func() ([]driver.Result, error),
) (results []driver.Result, err error) {
	began := time.Now()
	defer func() {
		s.report(ctx, StoreCall{Op: op, Name: firstName(grants), Grants: grants, Results: results, Err: err}, began)
	}()
	defer recovered(&err)
	results, err = call()
	_ = errors.Is(err, ErrNotAcquired) // as above
	if err == nil && len(results) != len(grants) {
		err = fmt.Errorf("the store answered %d of %d", len(results), len(grants))
	}
	return results, err
}

func firstName(grants []driver.Grant) string {
	if len(grants) == 0 {
		return ""
	}
	return grants[0].Name
}

// recovered turns a panic of the store into an error, so that it ends neither the heartbeat nor the
// caller's goroutine.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("the store panicked: %v", p)
	}
}
