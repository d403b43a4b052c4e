// Package crowd makes several hosts in one process compete for the slots of one name while a test
// breaks the store, and checks I1, I2 and I4.
package crowd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/torture"
)

const (
	// Name is the semaphore's name, and Slots its number of slots.
	Name  = "crowd"
	Slots = 3
)

// A Crowd is hosts with four workers each. They acquire, hold and release slots for the duration of
// the test, sometimes holding them for longer than their lease.
type Crowd struct {
	t       *testing.T
	opts    dlock.SessionOptions
	journal torture.Journal
	late    *testkit.Lateness
	stop    chan struct{}
	workers sync.WaitGroup

	granted atomic.Int64
	refused atomic.Int64 // by quarantine

	mu       sync.Mutex
	slowest  time.Duration              // longest session call
	overdue  []string                   // calls that took longer than StoreTimeout
	lastSeen map[*dlock.Lease]time.Time // when it was last valid
}

// Gather starts a crowd with one host per store. In Stretches, the hosts are named host0, host1 and
// so on.
func Gather(t *testing.T, opts dlock.SessionOptions, stores ...dlock.DistributedLock) *Crowd {
	t.Helper()
	c := &Crowd{t: t, opts: opts, late: testkit.MeasureLateness(t, 10*time.Millisecond), stop: make(chan struct{}),
		lastSeen: map[*dlock.Lease]time.Time{}}
	for i, store := range stores {
		session, err := dlock.NewSession(store, opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { session.Close(context.Background()) })
		for range 4 {
			c.workers.Go(func() { c.work(fmt.Sprint("host", i), session) })
		}
	}
	return c
}

func (c *Crowd) work(host string, session *dlock.Session) {
	sem := session.Semaphore(Name, Slots)
	ctx := context.Background()
	for c.going() {
		began := time.Now()
		lease, err := sem.TryAcquire(ctx)
		c.took(began)
		if err != nil {
			if no, ok := errors.AsType[*dlock.NotAcquiredError](err); ok && no.Reason == dlock.ReasonQuarantine {
				c.refused.Add(1)
			}
			time.Sleep(time.Duration(5+rand.IntN(10)) * time.Millisecond) // a pause between attempts
			continue
		}
		c.granted.Add(1)
		hold := time.Duration(rand.IntN(80)) * time.Millisecond
		if rand.IntN(10) == 0 {
			hold = 3 * c.opts.TTL / 2
		}
		ends := time.Now().Add(hold)
		run := torture.Stretch{Timer: Name, Slot: lease.Slot(), Fence: int64(lease.Fence()), Host: host}
		c.journal.Witness(run, func() bool {
			valid := lease.Valid()
			if valid {
				c.mu.Lock()
				c.lastSeen[lease] = time.Now()
				c.mu.Unlock()
			}
			return valid
		}, func() bool { return time.Now().Before(ends) }, func() { time.Sleep(time.Millisecond) })
		began = time.Now()
		lease.Release(ctx)
		c.took(began)
	}
}

func (c *Crowd) going() bool {
	select {
	case <-c.stop:
		return false
	default:
		return true
	}
}

// took records the duration of a call, and whether it was too long.
func (c *Crowd) took(since time.Time) {
	took := time.Since(since)
	late := c.late.Since(since)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slowest = max(c.slowest, took)
	if !inTime(took, c.opts.StoreTimeout, late) {
		c.overdue = append(c.overdue, fmt.Sprintf("%v on a machine that was %v late", took, late))
	}
}

// Grants waits until the crowd has n more leases. The machine's lateness is added to the time
// allowed.
func (c *Crowd) Grants(n int64, within time.Duration) {
	c.t.Helper()
	from, began := c.granted.Load(), time.Now()
	for c.granted.Load() < from+n {
		if late := c.late.Since(began); time.Since(began) > within+late {
			c.t.Errorf("%d grants within %v on a machine that was %v late, want %d", c.granted.Load()-from, within,
				late, n)
			return
		}
		time.Sleep(time.Millisecond) // polling interval; the loop is bounded above
	}
}

// Refused returns how many attempts were refused because of the quarantine.
func (c *Crowd) Refused() int64 { return c.refused.Load() }

// TrustOf returns how long a lease is trusted after its last renewal was sent.
func (c *Crowd) TrustOf() time.Duration { return c.opts.TTL - c.opts.TTL/10 }

// ValidAfter counts leases acquired before one instant and seen as valid after another.
func (c *Crowd) ValidAfter(acquired, seen time.Time) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for lease, last := range c.lastSeen {
		if lease.AcquiredAt().Before(acquired) && last.After(seen) {
			n++
		}
	}
	return n
}

// HeldThrough counts a host's stretches that began before an instant and continued past the trust
// window after it.
func (c *Crowd) HeldThrough(host string, cut time.Time) (n int) {
	for _, s := range c.journal.All() {
		if s.Host == host && s.First.Before(cut) && s.Last.After(cut.Add(c.TrustOf()+5*time.Millisecond)) {
			n++
		}
	}
	return n
}

// Disperse stops the crowd. It fails the test if there were ever more valid holders than slots, two
// holders of one slot, a fence that did not grow, or a call that took longer than StoreTimeout plus
// 500 ms plus the machine's measured lateness.
func (c *Crowd) Disperse() {
	c.t.Helper()
	close(c.stop)
	c.workers.Wait()
	v := c.journal.Check(map[string]int{Name: Slots})
	if v.OverLimit+v.SameSlot+v.FenceRegressions > 0 {
		c.t.Errorf("broken: %+v", v)
	}
	if v.Runs < 20 {
		c.t.Errorf("only %d runs: too weak to tell", v.Runs)
	}
	if len(c.overdue) > 0 {
		c.t.Errorf("%d calls took longer than StoreTimeout, %v, the first %s", len(c.overdue), c.opts.StoreTimeout,
			c.overdue[0])
	}
	c.t.Logf("%d runs, %d refusals in quarantine, slowest call %v", v.Runs, c.refused.Load(), c.slowest)
}
