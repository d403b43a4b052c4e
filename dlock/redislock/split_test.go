package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
)

// pairTTL is also the quarantine of a pair's servers, which have just started.
const pairTTL = 3 * time.Second

// A pair is a master and a replica, with a store on each. The replica receives its data through the
// link.
type pair struct {
	t                 *testing.T
	master, replica   *redistest.Server
	link              *servertest.Proxy
	onMaster, onOther *redislock.Store
}

// newPair returns a pair whose replica is in sync and whose master grants.
func newPair(t *testing.T, masterArgs ...string) *pair {
	t.Helper()
	p := &pair{t: t, master: redistest.New(t, redistest.Options{Args: masterArgs})}
	p.link = servertest.NewProxyFor(t, p.master.Addr())
	_, port, _ := strings.Cut(p.link.Addr(), ":")
	p.replica = redistest.New(t, redistest.Options{Args: []string{"--replicaof", "127.0.0.1", port}})
	p.onMaster, p.onOther = p.store(p.master), p.store(p.replica)
	awake(t, p.onMaster)
	p.caughtUp()
	return p
}

func (p *pair) store(s *redistest.Server) *redislock.Store {
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: canary})
	p.t.Cleanup(func() { client.Close() })
	return open(p.t, client, redislock.Options{QuarantineTTL: pairTTL})
}

// caughtUp waits until the replica has all data of the master.
func (p *pair) caughtUp() {
	p.t.Helper()
	conn := p.master.Client().Conn() // WAIT covers its own connection's writes and all earlier ones
	defer conn.Close()
	err := testkit.Poll(10*time.Second, "replica", func(ctx context.Context) error {
		if err := conn.Set(ctx, "caught up", 1, 0).Err(); err != nil {
			return err
		}
		if n, err := conn.Wait(ctx, 1, time.Second).Result(); err != nil || n != 1 {
			return fmt.Errorf("%d replicas, %v", n, err)
		}
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// cut stops replication, so the replica gets no more data.
func (p *pair) cut() { p.link.BlackHole(true) }

// promote makes the replica a master while the old master keeps running.
func (p *pair) promote() {
	p.t.Helper()
	if err := p.replica.Client().ReplicaOf(context.Background(), "NO", "ONE").Err(); err != nil {
		p.t.Fatal(err)
	}
}

// fill takes all slots as they become free and checks that there are no more.
func fill(t *testing.T, session *dlock.Session, slots int) []*dlock.Lease {
	t.Helper()
	leases, taken := make([]*dlock.Lease, slots), 0
	testkit.Eventually(t, 10*time.Second, "all slots are granted", func() error {
		for taken < slots {
			lease, err := session.Semaphore("a", slots).TryAcquire(context.Background())
			if err != nil {
				return err
			}
			leases[lease.Slot()] = lease
			taken++
		}
		return nil
	})
	wantFull(t, session, slots)
	return leases
}

func wantFull(t *testing.T, session *dlock.Session, slots int) {
	t.Helper()
	if lease, err := session.Semaphore("a", slots).TryAcquire(context.Background()); !isReason(err, driver.ReasonFull) {
		t.Errorf("one more than %d: lease %+v, %v", slots, lease, err)
	}
}

func isReason(err error, want driver.Reason) bool {
	no, ok := errors.AsType[*driver.NotAcquiredError](err)
	return ok && no.Reason == want
}

// Each side of a split keeps its own limit, so at most twice as many runs are valid. The fences of
// a slot differ between the sides, and a later grant has the higher one. When the old master
// becomes a replica of the new one, its side ends, and the other side is not affected.
//
// Fails without the quarantine (the new master grants at once, because it does not know the old
// one's leases), when a fence is the last one plus one without regard to the clock (both sides
// issue the same fence), and when the timer of the trust window does not start (the old side
// continues).
func TestSplitKeepsTheLimitOnEachSide(t *testing.T) {
	t.Parallel()
	const slots = 2
	p := newPair(t)
	here, there := newSession(t, p.onMaster, pairTTL, pairTTL/3), newSession(t, p.onOther, pairTTL, pairTTL/3)
	for _, lease := range fill(t, here, slots) { // the replica knows the name
		if err := lease.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	p.caughtUp()
	p.cut()
	old := fill(t, here, slots)
	p.promote()
	began := time.Now()
	if _, err := there.Semaphore("a", slots).TryAcquire(context.Background()); !isReason(err, driver.ReasonQuarantine) {
		t.Errorf("the new master, at once: %v", err)
	}
	promoted := fill(t, there, slots)
	if waited := time.Since(began); waited < pairTTL {
		t.Errorf("the new master granted after %v, before its quarantine was over", waited)
	}
	wantFull(t, here, slots)
	for slot := range slots {
		a, b := old[slot], promoted[slot]
		if !a.Valid() || !b.Valid() {
			t.Errorf("slot %d: valid are %v and %v: want to see both", slot, a.Valid(), b.Valid())
		}
		if a.Fence() >= b.Fence() {
			t.Errorf("slot %d: fence %d after %d", slot, b.Fence(), a.Fence())
		}
	}
	for _, lease := range old {
		if err := lease.Release(context.Background()); err != nil {
			t.Error(err)
		}
	}
	for slot, lease := range fill(t, here, slots) {
		if lease.Fence() <= promoted[slot].Fence() {
			t.Errorf("slot %d: fence %d after %d", slot, lease.Fence(), promoted[slot].Fence())
		}
		old[slot] = lease
	}

	_, port, _ := strings.Cut(p.replica.Addr(), ":")
	if err := p.master.Client().ReplicaOf(context.Background(), "127.0.0.1", port).Err(); err != nil {
		t.Fatal(err)
	}
	for slot, lease := range old {
		select {
		case <-lease.Done():
		case <-time.After(2 * pairTTL):
			t.Errorf("slot %d of the old side is held after the split", slot)
		}
		if !promoted[slot].Valid() {
			t.Errorf("slot %d of the new side: %v", slot, promoted[slot].Err())
		}
	}
}

// With min-replicas-to-write 1 and min-replicas-max-lag 1, an old master whose replica is
// unreachable soon stops writing. Its calls then return an error, its leases end with their trust
// windows, and it grants no new ones.
//
// Fails when extend.lua takes an error of the server for a renewal.
func TestSplitEndsByMinReplicas(t *testing.T) {
	t.Parallel()
	const slots = 2
	p := newPair(t, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "1")
	here, there := newSession(t, p.onMaster, pairTTL, pairTTL/3), newSession(t, p.onOther, pairTTL, pairTTL/3)
	old := fill(t, here, slots)
	p.caughtUp()
	p.cut()
	cut := time.Now()
	p.promote()
	promoted := fill(t, there, slots)
	for slot, lease := range old {
		select {
		case <-lease.Done():
		case <-time.After(5 * time.Second):
			t.Errorf("slot %d of the old side is still held", slot)
		}
		if lost, ok := errors.AsType[*dlock.LostError](lease.Err()); !ok || !lost.Silent {
			t.Errorf("slot %d of the old side: %v, want silence", slot, lease.Err())
		}
	}
	t.Logf("the old side held its leases for %v", time.Since(cut))
	// A lease lasts a little longer than it is trusted.
	var err error
	_ = testkit.Poll(time.Until(cut.Add(10*time.Second)), "a slot is free", func() bool {
		_, err = here.Semaphore("a", slots).TryAcquire(context.Background())
		return !isReason(err, driver.ReasonFull)
	})
	if _, ok := errors.AsType[*dlock.StoreError](err); !ok || !strings.Contains(err.Error(), "NOREPLICAS") {
		t.Errorf("the old side: %v, want an error of the store with NOREPLICAS", err)
	}
	for slot, lease := range promoted {
		if !lease.Valid() {
			t.Errorf("slot %d of the new side: %v", slot, lease.Err())
		}
	}
}

// If a master was paused while its replica was promoted, it has no replica when it runs again. With
// min-replicas-to-write, it grants nothing from then on, to any host.
//
// Fails without that setting, because the master then grants.
func TestMinReplicasAfterStandingStill(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	p := newPair(t, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "1")
	must(t, p.master.Pause())
	must(t, p.replica.Client().ReplicaOf(context.Background(), "NO", "ONE").Err())
	testkit.Eventually(t, testkit.Patience, "the replica is promoted", func() error { // the link closes
		info, err := p.replica.Client().Info(t.Context(), "replication").Result()
		if err == nil && !strings.Contains(info, "role:master") {
			err = errors.New("not promoted yet")
		}
		return err
	})
	must(t, p.master.Resume())
	granted, last, began := 0, time.Duration(0), time.Now()
	for time.Since(began) < 3*time.Second {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := p.onMaster.TryAcquire(ctx, driver.Request{Name: fmt.Sprint("a", time.Now()), Token: "a",
			TTL: pairTTL})
		cancel()
		if err == nil {
			granted++
			last = time.Since(began)
		}
	}
	t.Logf("%d grants, the last %v after it went on", granted, last)
	if last > 200*time.Millisecond {
		t.Errorf("it granted %d times, the last time %v after it went on", granted, last)
	}
}
