package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/redistest"
	"github.com/tickslot/tickslot/internal/torture"
)

const (
	faultTTL     = 900 * time.Millisecond
	faultTimeout = 300 * time.Millisecond
	// patience is for a busy machine; the failures that this is about take five to ten seconds.
	patience = 500 * time.Millisecond
)

// A crowd is two hosts whose workers take, hold and release the three slots of one name for as long as the test lasts, now and
// then for longer than their lease. It watches the promises.
type crowd struct {
	t        *testing.T
	journal  torture.Journal
	stop     chan struct{}
	workers  sync.WaitGroup
	granted  atomic.Int64
	refused  atomic.Int64 // quarantine
	slowest  atomic.Int64 // of all calls to a session, ns
	mu       sync.Mutex
	lastSeen map[*dlock.Lease]time.Time // when it was last valid
}

const crowdSlots = 3

func gather(t *testing.T, addrs ...string) *crowd {
	var clients []redis.UniversalClient
	for _, addr := range addrs {
		client := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { client.Close() })
		clients = append(clients, client)
	}
	return gatherOn(t, clients...)
}

func gatherOn(t *testing.T, clients ...redis.UniversalClient) *crowd {
	c := &crowd{t: t, stop: make(chan struct{}), lastSeen: map[*dlock.Lease]time.Time{}}
	for i, client := range clients {
		session := newSession(t, open(t, client, redislock.Options{}), faultTTL, faultTimeout)
		for range 4 {
			c.workers.Go(func() { c.work(fmt.Sprint("host", i), session) })
		}
	}
	return c
}

func (c *crowd) work(host string, session *dlock.Session) {
	sem := session.Semaphore("crowd", crowdSlots)
	ctx := context.Background()
	for c.going() {
		began := time.Now()
		lease, err := sem.TryAcquire(ctx)
		c.took(began)
		if err != nil {
			if no, ok := errors.AsType[*dlock.NotAcquiredError](err); ok && no.Reason == dlock.Quarantine {
				c.refused.Add(1)
			}
			time.Sleep(time.Duration(5+rand.IntN(10)) * time.Millisecond) // a pause between attempts
			continue
		}
		c.granted.Add(1)
		hold := time.Duration(rand.IntN(80)) * time.Millisecond
		if rand.IntN(10) == 0 {
			hold = 3 * faultTTL / 2
		}
		ends := time.Now().Add(hold)
		c.journal.Witness(torture.Stretch{Timer: "crowd", Slot: lease.Slot(), Fence: int64(lease.Fence()), Host: host}, func() bool {
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

func (c *crowd) going() bool {
	select {
	case <-c.stop:
		return false
	default:
		return true
	}
}

func (c *crowd) took(since time.Time) {
	for d := int64(time.Since(since)); ; {
		old := c.slowest.Load()
		if d <= old || c.slowest.CompareAndSwap(old, d) {
			return
		}
	}
}

// grants waits until the crowd has got n more leases.
func (c *crowd) grants(n int64, within time.Duration) {
	c.t.Helper()
	from, deadline := c.granted.Load(), time.Now().Add(within)
	for c.granted.Load() < from+n {
		if time.Now().After(deadline) {
			c.t.Errorf("%d grants within %v, want %d", c.granted.Load()-from, within, n)
			return
		}
		time.Sleep(time.Millisecond) // until the next look, bounded above
	}
}

func rounds(n int) int {
	if testing.Short() {
		return 1
	}
	return n
}

// validAfter counts the leases acquired before an instant and seen valid after another.
func (c *crowd) validAfter(acquired, seen time.Time) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for lease, last := range c.lastSeen {
		if lease.Since().Before(acquired) && last.After(seen) {
			n++
		}
	}
	return n
}

func (c *crowd) disperse() {
	c.t.Helper()
	close(c.stop)
	c.workers.Wait()
	v := c.journal.Check(map[string]int{"crowd": crowdSlots})
	if v.OverLimit+v.SameSlot+v.FenceRegressions > 0 {
		c.t.Errorf("broken: %+v", v)
	}
	if v.Runs < 20 {
		c.t.Errorf("only %d runs: too weak to tell", v.Runs)
	}
	if d := time.Duration(c.slowest.Load()); d > faultTimeout+patience {
		c.t.Errorf("a call took %v, StoreTimeout is %v", d, faultTimeout)
	}
	c.t.Logf("%d runs, %d refusals in quarantine, slowest call %v", v.Runs, c.refused.Load(), time.Duration(c.slowest.Load()))
}

// trustOf is what a lease of the crowd is trusted for after its last renewal was sent.
const trustOf = faultTTL - faultTTL/10

// A server that is frozen answers nobody: every call is back within StoreTimeout, and no lease is valid beyond its trust
// window. When it goes on it carries out what was sent meanwhile; nobody runs over.
//
// Fails when the pool is the user's own with its default time-outs: calls take five seconds.
func TestI2I7ServerFrozen(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	c := gather(t, server.Addr(), server.Addr())
	c.grants(20, 10*time.Second)
	for range rounds(3) {
		frozen := time.Now()
		if err := server.Pause(); err != nil {
			t.Skip(err)
		}
		paused := time.Now()
		time.Sleep(3 * faultTTL / 2) // the outage
		if n := c.validAfter(frozen, paused.Add(trustOf)); n > 0 {
			t.Errorf("%d leases were valid longer than %v after the server froze", n, trustOf)
		}
		if err := server.Resume(); err != nil {
			t.Fatal(err)
		}
		c.grants(10, 5*time.Second)
	}
	c.disperse()
}

// A server that is killed and comes back empty grants nothing until the leases that it has forgotten have ended.
//
// Fails without the quarantine: slots are granted twice.
func TestI1I4ServerRestartedEmpty(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	c := gather(t, server.Addr(), server.Addr())
	c.grants(20, 10*time.Second)
	for range rounds(4) {
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := server.RestartEmpty(); err != nil {
			t.Fatal(err)
		}
		c.grants(10, 8*time.Second)
	}
	if c.refused.Load() == 0 {
		t.Error("no quarantine was seen")
	}
	c.disperse()
}

// The uptime that a server tells may be almost a second too long: the quarantine is not that much too short. The old holder's
// heartbeat does not get through any more.
//
// Fails when the uptime is taken as it is told.
func TestI1QuarantineIsNotCutShort(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	server := redistest.New(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	old, next := open(t, client, redislock.Options{QuarantineTTL: ttl}), open(t, client, redislock.Options{QuarantineTTL: ttl})
	awake(t, old)
	// Late in a second of the wall clock the error is largest.
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1800 * time.Millisecond)))
	holder := newSession(t, old, ttl, 500*time.Millisecond)
	lease, err := holder.Mutex("a").TryAcquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	lease.StopRenewing()
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.RestartEmpty(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	other, err := newSession(t, next, ttl, 500*time.Millisecond).Mutex("a").Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if lease.Valid() {
		t.Error("two valid leases of one mutex")
	}
	if err := other.Release(ctx); err != nil {
		t.Error(err)
	}
}

// The same with a snapshot that is older than the leases: its mark of the server's run is there, but is another's.
//
// Fails when the mark does not have the run_id.
func TestI1I4ServerRestartedFromAnOldSnapshot(t *testing.T) {
	t.Parallel()
	long(t)
	server := redistest.New(t, redistest.Options{Persistence: redistest.RDB})
	c := gather(t, server.Addr(), server.Addr())
	c.grants(20, 10*time.Second)
	if err := server.Save(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c.grants(20, 8*time.Second)
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	c.grants(20, 8*time.Second)
	if c.refused.Load() == 0 {
		t.Error("no quarantine was seen")
	}
	c.disperse()
}

// With everything on disk, leases survive a restart: those who hold them go on.
func TestLeasesSurviveARestartWithAOF(t *testing.T) {
	t.Parallel()
	long(t)
	server := redistest.New(t, redistest.Options{Persistence: redistest.AOF})
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	store := open(t, client, redislock.Options{})
	awake(t, store)
	session := newSession(t, store, quarantineTTL, 400*time.Millisecond)
	lease, err := session.Semaphore("a", 2).TryAcquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-lease.Done():
		t.Errorf("lost: %v", lease.Err())
	case <-time.After(2 * quarantineTTL):
	}
	if err := lease.Release(context.Background()); err != nil {
		t.Error(err)
	}
}

// A host that is cut off without a reset (packets vanish) is told within its trust window, and the other takes over. What it had
// sent arrives late, when the network is mended.
//
// Fails when the trust window is closed by the heartbeat instead of a timer.
func TestI2HostCutOffWithoutReset(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	proxy := redistest.NewProxyFor(t, server.Addr())
	c := gather(t, proxy.Addr(), server.Addr())
	c.grants(20, 10*time.Second)
	for range rounds(3) {
		cut := time.Now()
		proxy.BlackHole(true)
		c.grants(5, 5*time.Second) // by the other host
		time.Sleep(faultTTL)       // the outage
		if n := len(heldThrough(c, cut)); n > 0 {
			t.Errorf("%d leases of the host that is cut off were valid longer than %v", n, trustOf)
		}
		proxy.BlackHole(false)
		c.grants(10, 5*time.Second)
	}
	c.disperse()
}

// heldThrough returns the stretches of host0 that began before the cut and went on after its trust window.
func heldThrough(c *crowd, cut time.Time) (n []torture.Stretch) {
	for _, s := range c.journal.All() {
		if s.Host == "host0" && s.First.Before(cut) && s.Last.After(cut.Add(trustOf+5*time.Millisecond)) {
			n = append(n, s)
		}
	}
	return n
}

// Connections that are reset again and again cost no lease as long as new ones can be made. This is about the driver as the
// pool sets it up; that a heartbeat which failed is repeated is shown in package dlock.
func TestConnectionResets(t *testing.T) {
	t.Parallel()
	long(t)
	server := redistest.New(t)
	proxy := redistest.NewProxyFor(t, server.Addr())
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	defer client.Close()
	const ttl = 3 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	steady, err := newSession(t, open(t, client, redislock.Options{QuarantineTTL: ttl}), ttl, time.Second).Mutex("steady").Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c := gather(t, proxy.Addr(), server.Addr())
	c.grants(20, 10*time.Second)
	for began := time.Now(); time.Since(began) < 3*ttl/2; {
		proxy.Cut()
		if err := proxy.Mend(); err != nil {
			t.Fatal(err)
		}
		c.grants(1, 5*time.Second)
	}
	c.disperse()
	if !steady.Valid() {
		t.Errorf("the steady lease: %v", steady.Err())
	}
	if err := steady.Release(context.Background()); err != nil {
		t.Error(err)
	}
}

// A server that goes down for good: every call of the session is back in time, and the store's Close, too.
//
// Fails when the timer of the trust window does not start: the lease is still held.
func TestI7ServerGone(t *testing.T) {
	t.Parallel()
	long(t)
	server := redistest.New(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	store := open(t, client, redislock.Options{})
	awake(t, store)
	session := newSession(t, store, quarantineTTL, 400*time.Millisecond)
	lease, err := session.Mutex("a").TryAcquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		began := time.Now()
		_, err := session.Mutex("b").TryAcquire(context.Background())
		if _, ok := errors.AsType[*dlock.StoreError](err); !ok {
			t.Errorf("err %v, want a *StoreError", err)
		}
		if d := time.Since(began); d > 400*time.Millisecond+patience {
			t.Errorf("a call took %v", d)
		}
	}
	select {
	case <-lease.Done():
		if lost, ok := errors.AsType[*dlock.LostError](lease.Err()); !ok || !lost.Silent {
			t.Errorf("lost by %v, want silence", lease.Err())
		}
	case <-time.After(5 * time.Second):
		t.Error("the lease is still held")
	}
}

// The master dies, Sentinel promotes the replica, and the store goes on there, after the quarantine. Nobody runs over.
//
// Fails when the pool keeps to the address of the first master: nothing is granted any more.
func TestI1SentinelFailover(t *testing.T) {
	t.Parallel()
	long(t)
	s := redistest.NewSentinel(t)
	client := func() redis.UniversalClient {
		c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.MasterName(), SentinelAddrs: s.SentinelAddrs(),
			DialTimeout: 200 * time.Millisecond, ReadTimeout: 200 * time.Millisecond})
		t.Cleanup(func() { c.Close() })
		return c
	}
	c := gatherOn(t, client(), client())
	c.grants(20, 10*time.Second)
	if err := s.Master.Kill(); err != nil {
		t.Fatal(err)
	}
	c.grants(20, 30*time.Second)
	c.disperse()
}

// A master of a Cluster dies and its replica takes over.
//
// Fails when the map of the nodes is not looked up again: nothing is granted for a minute.
func TestI1ClusterFailover(t *testing.T) {
	t.Parallel()
	long(t)
	cluster := redistest.NewClusterWithReplicas(t, 3, 1)
	client := func() redis.UniversalClient {
		c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
		t.Cleanup(func() { c.Close() })
		return c
	}
	c := gatherOn(t, client(), client())
	c.grants(20, 10*time.Second)
	victim := masterOf(t, cluster, "{crowd}:slot:index")
	if err := victim.Kill(); err != nil {
		t.Fatal(err)
	}
	c.grants(20, 30*time.Second)
	c.disperse()
}

func masterOf(t *testing.T, cluster *redistest.Cluster, key string) *redistest.Server {
	t.Helper()
	node, err := cluster.Client().MasterForKey(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	addr := node.Options().Addr
	for _, s := range cluster.Nodes {
		if s.Addr() == addr {
			return s
		}
	}
	t.Fatalf("no node at %s", addr)
	return nil
}
