package redislock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/proof/redistest"
)

// clocked returns a server whose clock can be set, and a store on it that is out of quarantine.
func clocked(t *testing.T) (*redislock.Store, *redistest.Clock) {
	t.Helper()
	server, clock := redistest.NewWithClock(t, redistest.Options{})
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: canary})
	t.Cleanup(func() { client.Close() })
	store := open(t, client, redislock.Options{})
	awake(t, store)
	return store, clock
}

// When the server's clock jumps ahead, leases end before their holders stop trusting them. The
// server grants a second lease while the first is still valid. This ends with the first holder's
// next heartbeat or, if that fails, with its trust window, so always within one TTL. The later
// grant has the higher fence, even after the clock is corrected.
//
// Fails when the timer of the trust window does not start and Valid does not check the clock (two
// leases are valid for longer than a TTL), when the heartbeat takes a lost lease for a renewed one,
// and when the script derives fences from the clock alone.
func TestServerClockAhead(t *testing.T) {
	t.Parallel()
	store, clock := clocked(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	host := func() *dlock.Session { return newSession(t, store, quarantineTTL, quarantineTTL/3) }
	for name, beats := range map[string]bool{"its heartbeat comes through": true, "its heartbeat does not": false} {
		first, err := host().Semaphore(name, 1).TryAcquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if !beats {
			first.StopRenewing()
		}
		clock.Set(time.Minute)
		second, err := host().Semaphore(name, 1).TryAcquire(ctx)
		if err != nil {
			t.Fatal("the lease did not end early, so there is nothing to see here: ", err)
		}
		granted := time.Now()
		if !first.Valid() || !second.Valid() {
			t.Errorf("%s: valid are %v and %v: want to see both", name, first.Valid(), second.Valid())
		}
		// The documentation states one TTL. Beats are a third of a TTL apart and take some time
		// themselves.
		bound := quarantineTTL
		if beats {
			bound = quarantineTTL/3 + quarantineTTL/3
		}
		for first.Valid() && time.Since(granted) < 2*quarantineTTL {
			time.Sleep(time.Millisecond) // until the next check, which a deadline limits
		}
		if both := time.Since(granted); both > bound {
			t.Errorf("%s: two were valid for %v, want at most %v", name, both, bound)
		}
		if !second.Valid() {
			t.Errorf("%s: the new holder lost it, too: %v", name, second.Err())
		}
		if err := first.Release(ctx); !errors.Is(err, dlock.ErrLost) || !second.Valid() {
			t.Errorf("%s: released: %v; the new holder: %v", name, err, second.Err())
		}
		clock.Set(0)
		if err := second.Release(ctx); err != nil {
			t.Error(err)
		}
		third, err := host().Semaphore(name, 1).TryAcquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if first.Fence() >= second.Fence() || second.Fence() >= third.Fence() {
			t.Errorf("%s: fences %d, %d, %d: want them to grow", name, first.Fence(), second.Fence(), third.Fence())
		}
		if err := third.Release(ctx); err != nil {
			t.Error(err)
		}
	}
}

// When the server's clock jumps back, no held slot is granted. Holders that renew continue. A dead
// holder's slot stays held for one TTL after another host asks for it. A released slot can be
// granted immediately, with a higher fence. A tick that is now too far ahead is refused. A new name
// is refused for QuarantineTTL, because the server's uptime is no longer known.
//
// Fails when a lease lasts longer by the step, or ends before its holder stops trusting it. Fails
// when the scripts derive fences or a trigger's time from the clock alone. Fails when acquire.lua
// cannot read the negative uptime of a server whose clock is before its start: nothing is then
// granted until the clock has caught up.
func TestServerClockBack(t *testing.T) {
	t.Parallel()
	const step = time.Minute
	store, clock := clocked(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	session, other := newSession(t, store, quarantineTTL, quarantineTTL/3),
		newSession(t, store, quarantineTTL, quarantineTTL/3)
	alive, err := session.Semaphore("a", 2).TryAcquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	dead, err := session.Semaphore("a", 2).TryAcquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	dead.StopRenewing()
	mutex, err := session.Mutex("m").TryAcquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	mutex.StopRenewing()
	triggered := func() time.Time {
		t.Helper()
		if err := store.Update(ctx, "a", driver.Update{Trigger: &ann}); err != nil {
			t.Fatal(err)
		}
		list, err := store.Inspect(ctx, "a")
		if err != nil || list[0].Trigger == nil || list[0].Trigger.Age < 0 {
			t.Fatalf("%+v, %v", list, err)
		}
		return list[0].Trigger.At
	}
	before := triggered()
	clock.Set(-step)
	if after := triggered(); !after.After(before) {
		t.Errorf("a trigger at %v follows one at %v, so that nobody would claim it", after, before)
	}
	if _, err := other.Semaphore("c", 1).TryAcquireTick(ctx, driver.Tick{At: time.Now(), Max: 1}); !isReason(err,
		driver.ReasonTickAhead) {
		t.Errorf("a tick that lies %v ahead of the server's clock: %v", step, err)
	}
	// The server's clock says that the server starts in a minute, so a name that it has never seen
	// is in quarantine, once.
	if _, err := other.Semaphore("c", 1).TryAcquire(ctx); !isReason(err, driver.ReasonQuarantine) {
		t.Errorf("a new name: %v, want quarantine", err)
	}
	began := time.Now()
	var inPlace, after *dlock.Lease // leases on the dead holder's slot and mutex
	for time.Since(began) < 3*quarantineTTL/2 || (inPlace == nil || after == nil) && ctx.Err() == nil {
		lease, err := other.Semaphore("a", 2).TryAcquire(ctx)
		switch {
		case err == nil && (inPlace != nil || dead.Valid() || lease.Slot() != dead.Slot()):
			t.Fatalf("both slots are held: lease %+v; that of the dead host is valid: %t", lease, dead.Valid())
		case err == nil:
			inPlace = lease
		case !isReason(err, driver.ReasonFull):
			t.Fatalf("both slots are held: %v", err)
		}
		lease, err = other.Mutex("m").TryAcquire(ctx)
		switch {
		case err == nil && (after != nil || mutex.Valid()):
			t.Fatalf("the mutex is held: lease %+v; that of the dead host is valid: %t", lease, mutex.Valid())
		case err == nil:
			after = lease
		case !isReason(err, driver.ReasonFull):
			t.Fatalf("the mutex is held: %v", err)
		}
		time.Sleep(20 * time.Millisecond) // until the next check, which a deadline limits
	}
	if took := time.Since(began); took > 2*quarantineTTL {
		t.Errorf("what the dead host held was granted after %v", took)
	}
	if _, err := other.Semaphore("c", 1).TryAcquire(ctx); err != nil {
		t.Errorf("a new name, after its quarantine: %v", err)
	}
	if !alive.Valid() || dead.Valid() {
		t.Errorf("valid are %v (%v), which renews, and %v, which does not", alive.Valid(), alive.Err(), dead.Valid())
	}
	if err := alive.Release(ctx); err != nil {
		t.Error(err)
	}
	next, err := other.Semaphore("a", 2).TryAcquire(ctx)
	if err != nil {
		t.Fatalf("what was released is not granted: %v", err)
	}
	if next.Slot() != alive.Slot() || next.Fence() <= alive.Fence() || next.Fence() <= inPlace.Fence() ||
		inPlace.Fence() <= dead.Fence() {
		t.Errorf("what was released: slot %d after %d, fence %d after %d; %d after %d", next.Slot(), alive.Slot(),
			next.Fence(), alive.Fence(), inPlace.Fence(), dead.Fence())
	}
	if _, err := session.Semaphore("a", 2).TryAcquire(ctx); !isReason(err, driver.ReasonFull) {
		t.Errorf("the slot that the dead host had: %v", err)
	}
	clock.Set(0)
	last, err := session.Semaphore("a", 2).TryAcquire(ctx)
	if err != nil {
		t.Fatalf("the clock is right again: %v", err)
	}
	if last.Fence() <= next.Fence() {
		t.Errorf("the clock is right again: fence %d after %d", last.Fence(), next.Fence())
	}
}

// Instants that the server recorded while its clock was ahead stop no timer, pause no name, and do
// not hide that nothing runs, once the clock is correct again. TestConformanceMiniredis tests the
// other steps.
//
// Fails when the script accepts a latest tick, a release, a success or the end of a pause in the
// server's future.
func TestServerClockWasAhead(t *testing.T) {
	t.Parallel()
	dlocktest.Run(t, dlocktest.Harness{Features: features, Only: "clock/was 2h0m0s ahead",
		New: func(t testing.TB) dlocktest.Namespace {
			server, clock := redistest.NewWithClock(t, redistest.Options{})
			client := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: canary})
			t.Cleanup(func() { client.Close() })
			ahead := time.Duration(0)
			return dlocktest.Namespace{
				Open: func() driver.Store { return open(t, client, redislock.Options{}) },
				StepClock: func(by time.Duration) time.Duration {
					ahead += by
					clock.Set(ahead)
					return ahead
				},
			}
		}})
}
