// The tests of this package run on memlock in a bubble's virtual time, through a store that fails
// on demand. Each test's comment says what it tests and which change to the code makes it fail.
// Each of these changes was tried.
package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// In most tests, a lease is trusted for 5.4 s and renewed every 2 s. An unanswered heartbeat is
// repeated after 0.6 to 0.9 s.
const (
	ttl     = 6 * time.Second
	timeout = time.Second
	trusted = ttl - ttl/10
	beat    = ttl / 3
)

var (
	bg      = context.Background()
	errDown = errors.New("the store is down")
	down    = dlocktest.Error(errDown)
)

// A host is one process of a fleet. It has a session, and a store whose calls can be made to fail
// for this host alone.
type host struct {
	*dlock.Session
	store  dlock.DistributedLock // the store that all hosts share
	spy    *spy
	faulty *dlocktest.Faulty
}

// beforeAcquire calls a function before each acquire.
type beforeAcquire struct {
	*memlock.Store
	do func()
}

func (b beforeAcquire) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	b.do()
	return b.Store.TryAcquire(ctx, req)
}

// newHost returns a new host. Call it inside the bubble.
func newHost(t *testing.T, store dlock.DistributedLock, opts dlock.SessionOptions) host {
	t.Helper()
	if opts.TTL == 0 {
		opts.TTL, opts.StoreTimeout = ttl, timeout
	}
	faulty := dlocktest.NewFaulty(store)
	spy := &spy{store: faulty}
	session, err := dlock.NewSession(spy, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		faulty.Heal()
		session.Close(bg)
	})
	return host{session, store, spy, faulty}
}

func (h host) take(t *testing.T, name string, slots int) *dlock.Lease {
	t.Helper()
	lease, err := h.Semaphore(name, slots).TryAcquire(bg)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// A spy records a session's calls to its store, including those that fail.
type spy struct {
	store dlock.DistributedLock

	mu        sync.Mutex
	grants    []driver.Grant // returned by successful acquires
	extends   []call
	releases  []call
	extending int // calls of Extend in progress
	most      int // maximum of extending

	// Set the hooks before the calls that they should see.
	onAcquire func(context.Context)
	onExtend  func([]driver.Result, error) ([]driver.Result, error)
	onRelease func(context.Context)
}

type call struct {
	at     time.Time
	grants []driver.Grant
}

func (s *spy) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	g, err := s.store.TryAcquire(ctx, req)
	if err == nil {
		s.mu.Lock()
		s.grants = append(s.grants, g)
		s.mu.Unlock()
	}
	if s.onAcquire != nil {
		s.onAcquire(ctx)
	}
	return g, err
}

func (s *spy) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	s.mu.Lock()
	s.extends = append(s.extends, call{time.Now(), append([]driver.Grant(nil), grants...)})
	s.extending++
	s.most = max(s.most, s.extending)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.extending--
		s.mu.Unlock()
	}()
	results, err := s.store.Extend(ctx, ttl, grants...)
	if s.onExtend != nil {
		return s.onExtend(results, err)
	}
	return results, err
}

func (s *spy) Release(ctx context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	s.mu.Lock()
	s.releases = append(s.releases, call{time.Now(), append([]driver.Grant(nil), grants...)})
	s.mu.Unlock()
	if s.onRelease != nil {
		s.onRelease(ctx)
	}
	return s.store.Release(ctx, grants...)
}

// extended returns the calls of Extend so far.
func (s *spy) extended() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]call(nil), s.extends...)
}

// released returns the calls of Release so far.
func (s *spy) released() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]call(nil), s.releases...)
}

// granted returns the latest grant.
func (s *spy) granted() driver.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grants[len(s.grants)-1]
}

// advance moves virtual time forward and lets everything that is due happen.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// A rival is another host that wants the only slot of a name. It takes the slot at the first
// instant at which the store grants it.
type rival struct {
	done  chan struct{}
	at    time.Time // when the store granted it
	valid bool      // whether the lease was valid at that instant
	cause error
}

func newRival(t *testing.T, store *memlock.Store, lease *dlock.Lease) *rival {
	r := &rival{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		for {
			_, err := store.TryAcquire(bg, driver.Request{Name: lease.Name(), Slots: 1, Token: "rival", TTL: time.Hour})
			if err == nil {
				r.at, r.valid, r.cause = time.Now(), lease.Valid(), context.Cause(lease.Context())
				return
			}
			held, ok := errors.AsType[*dlock.NotAcquiredError](err)
			if !ok {
				t.Error(err)
				return
			}
			time.Sleep(held.ExpiresIn)
		}
	}()
	return r
}

// check waits for the rival. It reports an error if the lease was still valid when the rival's
// began.
func (r *rival) check(t *testing.T) {
	t.Helper()
	<-r.done
	if r.valid {
		t.Error("two at work: the lease was valid when the store granted the slot to another")
	}
	if !errors.Is(r.cause, dlock.ErrLost) {
		t.Errorf("two at work: the cause of the lease's context was %v when the store granted the slot to another",
			r.cause)
	}
}

// wantHeld reports an error unless the lease is valid.
func wantHeld(t *testing.T, l *dlock.Lease) {
	t.Helper()
	if !l.Valid() || l.Err() != nil || l.Context().Err() != nil {
		t.Errorf("want the lease held: Valid %v, Err %v, context %v", l.Valid(), l.Err(), l.Context().Err())
	}
}

// wantLost reports an error unless the lease is lost, and returns its LostError.
func wantLost(t *testing.T, l *dlock.Lease) *dlock.LostError {
	t.Helper()
	if l.Valid() {
		t.Error("the lease is valid, want it lost")
	}
	if !errors.Is(context.Cause(l.Context()), dlock.ErrLost) || !errors.Is(l.Err(), dlock.ErrLost) {
		t.Fatalf("cause %v, Err %v, want ErrLost", context.Cause(l.Context()), l.Err())
	}
	select {
	case <-l.Done():
	default:
		t.Error("Done is open although the lease is lost")
	}
	how, ok := errors.AsType[*dlock.LostError](l.Err())
	if !ok {
		t.Fatalf("Err is a %T, want a *LostError", l.Err())
	}
	return how
}

// free returns how many slots another host could take now.
func free(t *testing.T, store *memlock.Store, name string, slots int) int {
	t.Helper()
	held, err := store.List(bg, name, slots)
	if err != nil {
		t.Fatal(err)
	}
	return slots - len(held)
}

// wantStoreError reports an error unless err is exactly a StoreError for op.
func wantStoreError(t *testing.T, err error, op dlock.StoreOp) {
	t.Helper()
	failed, ok := errors.AsType[*dlock.StoreError](err)
	if !ok || failed.Op != op {
		t.Fatalf("got %v (%T), want a *StoreError of %s", err, err, op)
	}
	if errors.Is(err, dlock.ErrNotAcquired) || errors.Is(err, dlock.ErrLost) {
		t.Errorf("%v: a failure of the store must not look like its answer", err)
	}
}

// wantAtMost reports an error if the call takes longer than limit.
func wantAtMost(t *testing.T, limit time.Duration, what string, call func()) {
	t.Helper()
	start := time.Now()
	call()
	if took := time.Since(start); took > limit {
		t.Errorf("%s took %v, want at most %v", what, took, limit)
	}
}

func names(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return list
}
