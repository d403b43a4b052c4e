package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	goredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
)

// Heartbeats: each of N leases is renewed once in a window. The value is this process's CPU time
// (ms) per 10,000 renewals.

// beatTTL is the length of leases in child processes. Heartbeats without -short use twice that.
const beatTTL = 3 * time.Second

// countingStore counts renewals.
type countingStore struct {
	*redislock.Store
	renewed    atomic.Int64
	lost       atomic.Int64
	goroutines atomic.Int64  // the maximum when a call began or ended
	answered   chan struct{} // signaled after each call
}

func (c *countingStore) countGoroutines() {
	if n := int64(runtime.NumGoroutine()); n > c.goroutines.Load() { // one beat at a time
		c.goroutines.Store(n)
	}
}

func (c *countingStore) Extend(
	ctx context.Context, ttl time.Duration, grants ...driver.Grant,
) ([]driver.Result, error) {
	c.countGoroutines()
	results, err := c.Store.Extend(ctx, ttl, grants...)
	c.countGoroutines()
	if err != nil {
		c.lost.Add(1)
	}
	for _, r := range results {
		if r.Outcome != driver.GrantOK {
			c.lost.Add(1)
		}
	}
	c.renewed.Add(int64(len(grants)))
	select {
	case c.answered <- struct{}{}:
	default:
	}
	return results, err
}

// leaseName includes the process ID, so that the control has its own leases.
func leaseName(i int) string { return fmt.Sprintf("beat-%d-%d", os.Getpid(), i) }

type tickslotHeart struct {
	store      *countingStore
	leases     []*dlock.Lease
	goroutines int
}

func tickslotBeats(s spec) (runner, error) {
	client := newClient(s.Redis)
	store := &countingStore{
		Store:    redislock.New(client, redislock.Options{QuarantineTTL: 3 * s.Every, PoolSize: poolSize}),
		answered: make(chan struct{}, 1),
	}
	session, err := dlock.NewSession(store, dlock.SessionOptions{TTL: 3 * s.Every, StoreTimeout: s.Every})
	if err != nil {
		return nil, err
	}
	h := &tickslotHeart{store: store, leases: make([]*dlock.Lease, s.N), goroutines: runtime.NumGoroutine()}
	err = parallel(s.N, func(i int) (err error) {
		h.leases[i], err = session.Mutex(leaseName(i)).TryAcquire(ctx)
		return err
	})
	return h, err
}

// parallel calls f with 0 to n-1, 32 at a time.
func parallel(n int, f func(int) error) error {
	const workers = 32
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; i < n && errs[w] == nil; i += workers {
				errs[w] = f(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// measure lasts until every lease has been renewed, and for at least a window. If the window ends
// during a beat, it counts only the renewals made by then.
func (t *tickslotHeart) measure(window time.Duration) (sample, error) {
	t.store.goroutines.Store(0)
	renewed, used, began := t.store.renewed.Load(), cpu(), time.Now()
	did := func() int { return int(t.store.renewed.Load() - renewed) }
	time.Sleep(window) // polling would cost as much as the renewals
	for did() < len(t.leases) && time.Since(began) < 4*window {
		select {
		case <-t.store.answered:
		case <-time.After(window):
		}
	}
	usedNow, all := cpu()-used, did()
	if all < len(t.leases) {
		return sample{}, fmt.Errorf("%d of %d leases were renewed", all, len(t.leases))
	}
	if n := t.store.lost.Load(); n > 0 {
		return sample{}, fmt.Errorf("%d were not renewed", n)
	}
	for i, l := range t.leases {
		if !l.Valid() {
			return sample{}, fmt.Errorf("lease %d is not valid: %w", i, l.Err())
		}
	}
	return beatSample(usedNow, float64(all), int(t.store.goroutines.Load())-t.goroutines), nil
}

func beatSample(used time.Duration, did float64, goroutines int) sample {
	return sample{Value: used.Seconds() * 1e3 / did * 10_000, Did: did,
		Extra: map[string]float64{"goroutines": float64(goroutines)}}
}

// perLease has a goroutine per lease, like most libraries. Each goroutine renews its lease once per
// window, at a random time. The signals that start and end a window are part of the benchmark and
// do not count.
type perLease struct {
	windows []chan time.Duration
	errs    []error
	ready   sync.WaitGroup
	done    sync.WaitGroup
}

// lead is how long the goroutines have to fall asleep before the first renewal.
const lead = 100 * time.Millisecond

func newPerLease(n int, renew func(i int) error) *perLease {
	p := &perLease{windows: make([]chan time.Duration, n), errs: make([]error, n)}
	for i := range p.windows {
		p.windows[i] = make(chan time.Duration, 1)
		go func() {
			for window := range p.windows[i] {
				p.ready.Done()
				time.Sleep(lead + rand.N(window))
				p.errs[i] = renew(i)
				p.done.Done()
			}
		}()
	}
	return p
}

func (p *perLease) measure(window time.Duration) (sample, error) {
	n := len(p.windows)
	p.ready.Add(n)
	p.done.Add(n)
	for _, w := range p.windows {
		w <- window
	}
	p.ready.Wait()
	used := cpu()
	p.done.Wait()
	usedNow := cpu() - used
	if i := slices.IndexFunc(p.errs, func(err error) bool { return err != nil }); i >= 0 {
		return sample{}, fmt.Errorf("lease %d was not renewed: %w", i, p.errs[i])
	}
	return beatSample(usedNow, float64(n), n), nil
}

func (p *perLease) close() error { return nil }

func (t *tickslotHeart) close() error { return nil }

func redsyncBeats(s spec) (runner, error) {
	rs := redsync.New(goredis.NewPool(newClient(s.Redis)))
	mutexes := make([]*redsync.Mutex, s.N)
	err := parallel(s.N, func(i int) error {
		mutexes[i] = rs.NewMutex(leaseName(i), redsync.WithExpiry(time.Minute))
		return mutexes[i].TryLockContext(ctx)
	})
	return newPerLease(s.N, func(i int) error {
		if ok, err := mutexes[i].ExtendContext(ctx); err != nil || !ok {
			return fmt.Errorf("extend: %v %w", ok, err)
		}
		return nil
	}), err
}

func bsmBeats(s spec) (runner, error) {
	locker := bsm.New(newClient(s.Redis))
	locks := make([]*bsm.Lock, s.N)
	err := parallel(s.N, func(i int) (err error) {
		locks[i], err = locker.Obtain(ctx, leaseName(i), time.Minute, nil)
		return err
	})
	return newPerLease(s.N, func(i int) error { return locks[i].Refresh(ctx, time.Minute, nil) }), err
}
