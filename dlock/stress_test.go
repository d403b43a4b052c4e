package dlock_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"go.uber.org/goleak"
)

// I1, I2, I5, I8 in real time and under -race: 32 goroutines on two hosts compete for three slots
// of a store that fails at random. No two leases of one slot are ever valid at once. Afterwards
// nothing keeps running, and every slot becomes free.
//
// Fails when Release ends the lease 2 ms after the call to the store, when memlock grants a slot
// that is held, and (race) if Valid reads the state without the lock.
func TestStress(t *testing.T) {
	leak := goleak.IgnoreCurrent()
	const (
		slots  = 3
		ttl    = 300 * time.Millisecond
		rounds = 60
	)
	store := memlock.New()
	opts := dlock.SessionOptions{TTL: ttl, StoreTimeout: 20 * time.Millisecond}
	hosts := []host{newHost(t, store, opts), newHost(t, store, opts)}

	var mu sync.Mutex
	var latest [slots]*dlock.Lease
	taken, failed := 0, 0
	fight := func(h host, r *rand.Rand) {
		for range rounds {
			switch r.IntN(8) {
			case 0:
				fault := []dlocktest.Fault{down, dlocktest.LostReply, dlocktest.SilentReply, dlocktest.Hang,
					dlocktest.Panic, dlocktest.Short,
					dlocktest.Late(5 * time.Millisecond), dlocktest.Slow(5 * time.Millisecond)}[r.IntN(8)]
				h.faulty.InjectN(1+r.IntN(2), fault)
			case 1:
				time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
			}
			lease, err := h.Semaphore("job", slots).TryAcquire(bg)
			if err != nil {
				if _, ok := errors.AsType[*dlock.StoreError](err); ok {
					mu.Lock()
					failed++
					mu.Unlock()
				} else if !errors.Is(err, dlock.ErrNotAcquired) {
					t.Error(err)
				}
				time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
				continue
			}
			mu.Lock()
			taken++
			// The order matters: both leases must be valid at the instant of the first call.
			if before := latest[lease.Slot()]; before != nil && before.Valid() && lease.Valid() {
				t.Errorf("two valid leases of slot %d", lease.Slot())
			}
			latest[lease.Slot()] = lease
			mu.Unlock()
			if r.IntN(2) == 0 {
				time.Sleep(time.Duration(r.IntN(2000)) * time.Microsecond)
			}
			if !lease.Valid() && lease.Err() == nil && time.Since(lease.AcquiredAt()) < ttl/2 {
				t.Error("a young lease is neither valid nor lost")
			}
			err = lease.Release(bg)
			if lease.Valid() {
				t.Error("valid after Release")
			}
			if _, ok := errors.AsType[*dlock.StoreError](err); err != nil && !ok && !errors.Is(err, dlock.ErrLost) {
				t.Error(err)
			}
		}
	}
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() { fight(hosts[i%2], rand.New(rand.NewPCG(1, uint64(i)))) })
	}
	all.Wait()
	for _, h := range hosts {
		h.faulty.Heal()
		if err := h.Close(bg); err != nil {
			t.Error(err)
		}
	}
	if taken < 50 || failed < 10 {
		t.Errorf("%d leases and %d failures: the test does not stress anything", taken, failed)
	}
	goleak.VerifyNone(t, leak)
	testkit.Eventually(t, 2*ttl, "all slots are free", func() error {
		if n := free(t, store, "job", slots); n < slots {
			return fmt.Errorf("%d of %d", n, slots)
		}
		return nil
	})
}
