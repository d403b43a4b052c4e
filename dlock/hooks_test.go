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
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// calls records the calls that a hook reports.
type calls struct {
	mu   sync.Mutex
	list []dlock.StoreCall
}

func (c *calls) add(call dlock.StoreCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, call)
}

// of returns the recorded calls of an operation and clears the record.
func (c *calls) of(op dlock.StoreOp) (some []dlock.StoreCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.list {
		if call.Op == op {
			some = append(some, call)
		}
	}
	c.list = nil
	return some
}

// The hook reports every call to the store once, with its result, including calls that panic and
// calls with invalid answers.
//
// Fails when report is deferred after recovered, when many does not check the number of results,
// and when report ignores ctx.
func TestHooksAreToldOfEveryCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &oddStore{DistributedLock: memlock.New()}
		var told calls
		session, err := dlock.NewSession(store, dlock.SessionOptions{Hooks: dlock.Hooks{Called: told.add}})
		if err != nil {
			t.Fatal(err)
		}
		lease, err := session.Mutex("a").TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := told.of(dlock.StoreOpAcquire); len(got) != 1 || got[0].Name != "a" || got[0].Err != nil ||
			got[0].Refused() {
			t.Errorf("an acquire: %+v", got)
		}
		_, err = session.Mutex("a").TryAcquire(t.Context())
		if got := told.of(dlock.StoreOpAcquire); !errors.Is(err, dlock.ErrNotAcquired) || len(got) != 1 ||
			!got[0].Refused() {
			t.Errorf("one that is refused: %+v, %v", got, err)
		}
		time.Sleep(dlock.DefaultTTL/3 + time.Second)
		if got := told.of(dlock.StoreOpExtend); len(got) != 1 || len(got[0].Grants) != 1 || len(got[0].Results) != 1 ||
			got[0].Results[0].Outcome != driver.GrantOK {
			t.Errorf("a heartbeat: %+v", got)
		}
		store.answer(func() ([]driver.Result, error) { panic("oh") })
		time.Sleep(dlock.DefaultTTL / 3)
		if got := told.of(dlock.StoreOpExtend); len(got) == 0 || got[0].Err == nil || got[0].Canceled {
			t.Errorf("one that panics: %+v", got)
		}
		store.answer(func() ([]driver.Result, error) { return nil, nil })
		time.Sleep(dlock.DefaultTTL / 6)
		if got := told.of(dlock.StoreOpExtend); len(got) == 0 || got[0].Err == nil {
			t.Errorf("one with too few results: %+v", got)
		}
		store.answer(nil)
		time.Sleep(dlock.DefaultTTL / 6)
		told.of(dlock.StoreOpExtend)
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if got := told.of(dlock.StoreOpRelease); len(got) != 1 || got[0].Name != "a" || got[0].Err != nil {
			t.Errorf("a release: %+v", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		if _, err := session.Mutex("hangs").TryAcquire(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that went away: %v", err)
		}
		if got := told.of(dlock.StoreOpAcquire); len(got) == 0 || !got[0].Canceled {
			t.Errorf("a caller that went away: %+v", got)
		}
		if err := session.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A panic in a hook has no other effect.
//
// Fails when called does not recover.
func TestHookThatPanicsHarmsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		panics := func(dlock.StoreCall) { panic("a hook") }
		session, err := dlock.NewSession(memlock.New(), dlock.SessionOptions{Hooks: dlock.Hooks{Called: panics}})
		if err != nil {
			t.Fatal(err)
		}
		lease, err := session.Mutex("a").TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * dlock.DefaultTTL)
		if !lease.Valid() {
			t.Errorf("the lease is lost: %v", lease.Err())
		}
		if err := errors.Join(lease.Release(t.Context()), session.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// oddStore answers heartbeats as configured. It never answers an acquire of "hangs".
type oddStore struct {
	dlock.DistributedLock
	mu  sync.Mutex
	odd func() ([]driver.Result, error)
}

func (s *oddStore) answer(odd func() ([]driver.Result, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.odd = odd
}

func (s *oddStore) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if req.Name == "hangs" {
		<-ctx.Done()
		return driver.Grant{}, ctx.Err()
	}
	return s.DistributedLock.TryAcquire(ctx, req)
}

func (s *oddStore) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	s.mu.Lock()
	odd := s.odd
	s.mu.Unlock()
	if odd != nil {
		return odd()
	}
	return s.DistributedLock.Extend(ctx, ttl, grants...)
}

func ExampleHooks() {
	session, err := dlock.NewSession(memlock.New(), dlock.SessionOptions{Hooks: dlock.Hooks{
		Called: func(c dlock.StoreCall) { fmt.Println(c.Op, c.Name, "refused:", c.Refused()) },
	}})
	if err != nil {
		panic(err)
	}
	lease, err := session.Mutex("report").TryAcquire(context.Background())
	if err != nil {
		panic(err)
	}
	_ = lease.Release(context.Background())
	_ = session.Close(context.Background())
	// Output:
	// acquire report refused: false
	// release report refused: false
}
