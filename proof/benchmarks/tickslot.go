package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
)

// ours is tickslot as users run it: a Session on a store, with its heartbeat, trust window and
// cleanup.
type ours struct {
	slots int // 0: a mutex
	tick  bool
	names func(worker int) string
}

func (o ours) nameList(workers int) (list []string) {
	seen := map[string]bool{}
	for w := range workers {
		if name := o.names(w); !seen[name] {
			seen[name], list = true, append(list, name)
		}
	}
	return list
}

// on returns the cycles of this many workers.
func (o ours) on(r *redisServer, workers int) (*cycles, error) {
	if err := r.known(o.slots, o.nameList(workers)...); err != nil {
		return nil, err
	}
	store := r.store(redislock.Options{})
	take, stop, err := o.session(store, workers)
	if err != nil {
		return nil, err
	}
	return &cycles{workers: workers, take: take, proof: r.commands(), stop: []func() error{store.Close, stop}}, nil
}

func (o ours) session(store dlock.DistributedLock, workers int) (taker, func() error, error) {
	session, err := dlock.NewSession(store, dlock.SessionOptions{StoreTimeout: 5 * time.Second})
	if err != nil {
		return nil, nil, err
	}
	locks := make([]func() (*dlock.Lease, error), workers)
	for w := range workers {
		name := o.names(w)
		mutex, semaphore := session.Mutex(name), session.Semaphore(name, max(1, o.slots))
		switch {
		case o.slots == 0:
			locks[w] = func() (*dlock.Lease, error) { return mutex.TryAcquire(ctx) }
		case o.tick:
			locks[w] = func() (*dlock.Lease, error) {
				return semaphore.TryAcquireTick(ctx, driver.Tick{At: time.Now(), Max: 1})
			}
		default:
			locks[w] = func() (*dlock.Lease, error) { return semaphore.TryAcquire(ctx) }
		}
	}
	take := func(w int) (func() error, error) {
		lease, err := locks[w]()
		if errors.Is(err, dlock.ErrNotAcquired) {
			if no, ok := errors.AsType[*dlock.NotAcquiredError](err); !ok || no.Reason != dlock.ReasonFull {
				return nil, err // any other reason is an error in the benchmark
			}
			return nil, errBusy
		}
		if err != nil {
			return nil, err
		}
		return func() error { return lease.Release(ctx) }, nil
	}
	return take, func() error { return session.Close(ctx) }, nil
}

// each gives every worker its own lock.
func each(kind string) func(int) string {
	return func(worker int) string { return fmt.Sprintf("timer:%s-%d", kind, worker) }
}

// shared gives all workers the same lock.
func shared(name string) func(int) string { return func(int) string { return "timer:" + name } }
