package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// holding returns how many leases of a name exist.
func holding(t *testing.T, store *memlock.Store, name string) int {
	t.Helper()
	list, err := store.List(t.Context(), name, 1)
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// joint returns a session and a semaphore of two names. Calls to its store can be made to fail.
func joint(t *testing.T) (*memlock.Store, *dlocktest.Faulty, *dlock.Session, dlock.Semaphore) {
	t.Helper()
	store := memlock.New()
	faulty := dlocktest.NewFaulty(store)
	session, err := dlock.NewSession(faulty, dlock.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return store, faulty, session, session.Semaphore("job", 5).With(dlock.SemaphoreSpec{Name: "smtp", Slots: 2})
}

// A lease of several locks is renewed by one call and released by one call.
//
// Fails when the heartbeat leaves out the further grants.
func TestLeaseOfSeveralLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, faulty, session, both := joint(t)
		lease, err := both.TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if shared := lease.Shared(); len(shared) != 1 || shared[0].Name != "smtp" || shared[0].Fence == 0 ||
			shared[0].Token != "" {
			t.Errorf("Shared: %+v", shared)
		}
		time.Sleep(10 * dlock.DefaultTTL)
		if !lease.Valid() || holding(t, store, "job") != 1 || holding(t, store, "smtp") != 1 {
			t.Errorf("after ten TTLs: valid %v, %d and %d leases", lease.Valid(), holding(t, store, "job"),
				holding(t, store, "smtp"))
		}
		if n := faulty.Calls(dlocktest.OpExtend); n > 31 {
			t.Errorf("%d calls to renew one lease for ten TTLs", n)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if n := faulty.Calls(dlocktest.OpRelease); n != 1 || holding(t, store, "job")+holding(t, store, "smtp") != 0 {
			t.Errorf("%d calls to release, %d and %d leases are left", n, holding(t, store, "job"),
				holding(t, store, "smtp"))
		}
		if err := session.Close(t.Context()); err != nil || !session.Idle() {
			t.Errorf("Close: %v, idle %v", err, session.Idle())
		}
	})
}

// I2: a lease of several locks is lost with any of them, before the store grants that lock to
// another holder.
//
// Fails when only the outcome of the first grant counts.
func TestLeaseIsLostWithAnyOfItsLocks(t *testing.T) {
	for _, name := range []string{"job", "smtp"} {
		synctest.Test(t, func(t *testing.T) {
			store, _, session, both := joint(t)
			defer session.Close(t.Context())
			lease, err := both.TryAcquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			fence := lease.Fence()
			if name == "smtp" {
				fence = lease.Shared()[0].Fence
			}
			by := driver.Cause{By: "ana", Note: "enough"}
			if err := store.Revoke(t.Context(), name, 0, fence, by); err != nil {
				t.Fatal(err)
			}
			<-lease.Done()
			lost, ok := errors.AsType[*dlock.LostError](lease.Err())
			if !ok || lost.Name != name || lost.RevokedBy == nil || *lost.RevokedBy != by || lease.Valid() {
				t.Errorf("%s revoked: %v, valid %v", name, lease.Err(), lease.Valid())
			}
			if holding(t, store, "job") != 1 || holding(t, store, "smtp") != 1 {
				t.Errorf("%s revoked: a lock is free while the handler may go on", name)
			}
			_ = lease.Release(t.Context()) // releases the lock that was not revoked, too
			if holding(t, store, "job")+holding(t, store, "smtp") != 0 {
				t.Errorf("%s revoked: after the release %d and %d leases", name, holding(t, store, "job"),
					holding(t, store, "smtp"))
			}
		})
	}
}

// If the reply of an acquire of several locks is lost, no slot of any lock stays taken.
//
// Fails when only Name is released by its token.
func TestLostReplyOfSeveralLocks(t *testing.T) {
	for name, fault := range map[string]dlocktest.Fault{"lost": dlocktest.LostReply, "silent": dlocktest.SilentReply,
		"late": dlocktest.Late(3 * time.Second)} {
		synctest.Test(t, func(t *testing.T) {
			store, faulty, session, both := joint(t)
			defer session.Close(t.Context())
			faulty.InjectN(1, fault, dlocktest.OpAcquire)
			if name != "lost" { // otherwise the second request gets the grant
				faulty.InjectN(1, fault, dlocktest.OpAcquire)
				if _, err := both.TryAcquire(t.Context()); err == nil {
					t.Fatalf("%s: acquired", name)
				}
				time.Sleep(2 * dlock.DefaultTTL)
				if n := holding(t, store, "job") + holding(t, store, "smtp"); n != 0 {
					t.Errorf("%s: %d leases are left", name, n)
				}
				return
			}
			lease, err := both.TryAcquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if holding(t, store, "job") != 1 || holding(t, store, "smtp") != 1 {
				t.Errorf("%s: %d and %d leases", name, holding(t, store, "job"), holding(t, store, "smtp"))
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// If the store answers for only some grants of a release, the rest is released later.
//
// Fails when Release checks only the first result.
func TestReleaseAnsweredInPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, faulty, session, both := joint(t)
		defer session.Close(t.Context())
		lease, err := both.TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		faulty.InjectN(1, dlocktest.Patchy(errors.New("the other node is down")), dlocktest.OpRelease)
		if _, ok := errors.AsType[*dlock.StoreError](lease.Release(t.Context())); !ok {
			t.Errorf("Release: %v", lease.Release(t.Context()))
		}
		time.Sleep(dlock.DefaultTTL / 2)
		if n := holding(t, store, "job") + holding(t, store, "smtp"); n != 0 {
			t.Errorf("%d leases are left after half a TTL", n)
		}
	})
}

// single is a store that takes one lock at a time and ignores Shared.
type single struct{ dlock.DistributedLock }

// forgetful claims to take several locks but takes only the first.
type forgetful struct{ *memlock.Store }

func (f forgetful) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	req.Shared = nil
	return f.Store.TryAcquire(ctx, req)
}

// If a store cannot take several locks, the session takes none. Otherwise a limit would seem to
// hold although the store ignores it.
//
// Fails when the session sends the request, or accepts the grant.
func TestStoreThatTakesOneLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		for _, s := range []dlock.DistributedLock{single{store}, forgetful{store}} {
			session, err := dlock.NewSession(s, dlock.SessionOptions{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = session.Semaphore("job", 1).With(
				dlock.SemaphoreSpec{Name: "smtp", Slots: 1}).TryAcquire(t.Context())
			if err == nil || errors.Is(err, dlock.ErrNotAcquired) {
				t.Errorf("%T: %v", s, err)
			}
			if _, isSingle := s.(single); isSingle != errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("%T: %v", s, err)
			}
			session.Close(t.Context())
			if n := holding(t, store, "job"); n != 0 {
				t.Errorf("%T: %d leases are left", s, n)
			}
		}
	})
}

// Calls have up to 500 grants, even if one lease has several grants.
func TestHeartbeatCountsGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty, session, _ := joint(t)
		defer session.Close(t.Context())
		for i := range 500 {
			shared := dlock.SemaphoreSpec{Name: fmt.Sprintf("limit-%d", i), Slots: 1}
			lease, err := session.Semaphore("job", 1000).With(shared).TryAcquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer lease.Release(t.Context())
		}
		before := faulty.Calls(dlocktest.OpExtend)
		time.Sleep(dlock.DefaultTTL)
		if n := faulty.Calls(dlocktest.OpExtend) - before; n < 5 || n > 8 {
			t.Errorf("%d calls to renew 1,000 grants three times: want 5 to 8", n)
		}
	})
}
