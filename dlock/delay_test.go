package dlock_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// A session does not send a delay to a store that ignores delays, because that store would grant
// immediately.
//
// Fails when a Session passes a Tick.Delay to any store.
func TestStoreWithoutDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		for _, s := range []dlock.DistributedLock{single{store}, store} {
			session, err := dlock.NewSession(s, dlock.SessionOptions{})
			if err != nil {
				t.Fatal(err)
			}
			lease, err := session.Semaphore("job", 1).TryAcquireTick(t.Context(), driver.Tick{Delay: time.Minute})
			if _, isSingle := s.(single); isSingle != errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("%T: %v", s, err)
			}
			if err == nil {
				err = lease.Release(t.Context())
				if err == nil {
					_, err = session.Semaphore("job", 1).TryAcquireTick(t.Context(), driver.Tick{Delay: time.Minute})
				}
				no, ok := errors.AsType[*dlock.NotAcquiredError](err)
				if !ok || no.Reason != driver.ReasonTickEarly || no.ExpiresIn != time.Minute {
					t.Errorf("%v: must be refused for another minute", err)
				}
			}
			session.Close(t.Context())
		}
	})
}
