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
	"github.com/tickslot/tickslot/proof/torture/crowd"
)

// crowdOptions give the crowds in this file short leases.
var crowdOptions = dlock.SessionOptions{TTL: faultTTL, StoreTimeout: 300 * time.Millisecond}

const faultTTL = 900 * time.Millisecond

func gather(t *testing.T, addrs ...string) *crowd.Crowd {
	var clients []redis.UniversalClient
	for _, addr := range addrs {
		client := redis.NewClient(&redis.Options{Password: canary, Addr: addr})
		t.Cleanup(func() { client.Close() })
		clients = append(clients, client)
	}
	return gatherOn(t, clients...)
}

func gatherOn(t *testing.T, clients ...redis.UniversalClient) *crowd.Crowd {
	var stores []driver.Store
	for _, client := range clients {
		stores = append(stores, open(t, client, redislock.Options{}))
	}
	return crowd.Gather(t, crowdOptions, stores...)
}

func rounds(n int) int {
	if testing.Short() {
		return 1
	}
	return n
}

// While a server is frozen, every call returns within StoreTimeout, and no lease is valid beyond
// its trust window. When the server resumes, it executes the requests sent meanwhile. Leases never
// overlap.
//
// Fails when the store uses the caller's pool with its default timeouts: calls take five seconds.
func TestI2I7ServerFrozen(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	c := gather(t, server.Addr(), server.Addr())
	c.Grants(20, 10*time.Second)
	for range rounds(3) {
		frozen := time.Now()
		if err := server.Pause(); err != nil {
			t.Fatal(err)
		}
		paused := time.Now()
		time.Sleep(3 * faultTTL / 2) // duration of the outage
		if n := c.ValidAfter(frozen, paused.Add(c.TrustOf())); n > 0 {
			t.Errorf("%d leases were valid longer than %v after the server froze", n, c.TrustOf())
		}
		if err := server.Resume(); err != nil {
			t.Fatal(err)
		}
		c.Grants(10, 5*time.Second)
	}
	c.Disperse()
}

// A server that is killed and restarts empty grants nothing until all leases from before have
// ended.
//
// Fails without the quarantine: slots are granted twice.
func TestI1I4ServerRestartedEmpty(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	c := gather(t, server.Addr(), server.Addr())
	c.Grants(20, 10*time.Second)
	for range rounds(4) {
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := server.RestartEmpty(); err != nil {
			t.Fatal(err)
		}
		c.Grants(10, 8*time.Second)
	}
	if c.Refused() == 0 {
		t.Error("no quarantine was seen")
	}
	c.Disperse()
}

// The uptime that a server reports may be almost a second too long, but this does not shorten the
// quarantine. The old holder's heartbeats fail from the restart on.
//
// Fails when the reported uptime is used without correction.
func TestI1QuarantineIsNotCutShort(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	server := redistest.New(t)
	client := redis.NewClient(&redis.Options{Password: canary, Addr: server.Addr()})
	defer client.Close()
	old, next := open(t, client, redislock.Options{QuarantineTTL: ttl}),
		open(t, client, redislock.Options{QuarantineTTL: ttl})
	awake(t, old)
	// Late in a second of the wall clock, the error is largest.
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

// The mark of the server's run is compared in full: a prefix of it is the mark of another run.
//
// Fails when acquire.lua compares the mark without its end.
func TestMarkOfTheRunCountsAsAWhole(t *testing.T) {
	t.Parallel()
	prefix := unique("mark")
	client, store := shared(t, prefix)
	ctx := t.Context()
	session := newSession(t, store, quarantineTTL, quarantineTTL/3)
	if _, err := session.Semaphore("a", 3).TryAcquire(ctx); err != nil {
		t.Fatal(err)
	}
	run := client.HGet(ctx, prefix+"a:slot:state", "run").Val()
	if len(run) < 20 {
		t.Fatalf("the mark is %q", run)
	}
	if _, err := session.Semaphore("a", 3).TryAcquire(ctx); err != nil {
		t.Errorf("the mark of this run: %v", err)
	}
	for _, mark := range []string{run[:len(run)/2], ""} {
		forget(t, client, store, prefix+"a:slot:state", mark)
		if _, err := session.Semaphore("a", 3).TryAcquire(ctx); !isReason(err, driver.ReasonQuarantine) {
			t.Errorf("the mark %q: %v, want quarantine", mark, err)
		}
	}
}

// A snapshot older than the leases has a mark, too, but the mark of another run.
//
// Fails when the mark is not the server's master_replid.
func TestI1I4ServerRestartedFromAnOldSnapshot(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	server := redistest.New(t, redistest.Options{Persistence: redistest.RDB})
	c := gather(t, server.Addr(), server.Addr())
	c.Grants(20, 10*time.Second)
	if err := server.Save(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c.Grants(20, 8*time.Second)
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	c.Grants(20, 8*time.Second)
	if c.Refused() == 0 {
		t.Error("no quarantine was seen")
	}
	c.Disperse()
}

// If all data are on disk, leases survive a restart. Their holders continue, and no slot is granted
// twice. The lease is much longer than a restart takes on a busy machine.
//
// Fails when extend.lua reports leases as lost that another run of the server granted.
func TestLeasesSurviveARestartWithAOF(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	const ttl = 20 * time.Second
	server := redistest.New(t, redistest.Options{Persistence: redistest.AOF})
	client := redis.NewClient(&redis.Options{Password: canary, Addr: server.Addr()})
	defer client.Close()
	store := open(t, client, redislock.Options{QuarantineTTL: ttl})
	atOnce := open(t, client, redislock.Options{QuarantineTTL: ttl, NoQuarantine: true}) // no quarantine
	grant, err := atOnce.TryAcquire(t.Context(), driver.Request{Name: "a", Slots: 1, Token: "one", TTL: ttl})
	must(t, err)
	must(t, server.Kill())
	must(t, server.Restart())
	testkit.Eventually(t, testkit.Patience, "the lease is renewed", func() error {
		results, err := store.Extend(t.Context(), ttl, grant)
		if err == nil && results[0].Outcome != driver.GrantOK {
			t.Fatalf("renewed: %+v", results[0])
		}
		return err
	})
	_, err = atOnce.TryAcquire(t.Context(), driver.Request{Name: "a", Slots: 1, Token: "two", TTL: ttl})
	if !isReason(err, driver.ReasonFull) {
		t.Errorf("another host: %v, want full", err)
	}
	if results, err := store.Release(t.Context(), grant); err != nil || results[0].Outcome != driver.GrantOK {
		t.Errorf("released: %+v, %v", results, err)
	}
}

// If packets of a host vanish without a reset, the host loses its lease within its trust window,
// and another host takes over. Requests that it had sent arrive late, when the network is back.
//
// Fails when the heartbeat closes the trust window instead of a timer.
func TestI2HostCutOffWithoutReset(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	server := redistest.New(t)
	proxy := servertest.NewProxyFor(t, server.Addr())
	c := gather(t, proxy.Addr(), server.Addr())
	c.Grants(20, 10*time.Second)
	for range rounds(3) {
		cut := time.Now()
		proxy.BlackHole(true)
		c.Grants(5, 5*time.Second) // grants to the other host
		time.Sleep(faultTTL)       // duration of the outage
		if n := c.HeldThrough("host0", cut); n > 0 {
			t.Errorf("%d leases of the host that is cut off were valid longer than %v", n, c.TrustOf())
		}
		proxy.BlackHole(false)
		c.Grants(10, 5*time.Second)
	}
	c.Disperse()
}

// Connections that are reset repeatedly cost no lease as long as new ones can be made. This tests
// the driver with the pool's settings. Package dlock tests that a failed heartbeat is repeated.
func TestConnectionResets(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	server := redistest.New(t)
	proxy := servertest.NewProxyFor(t, server.Addr())
	client := redis.NewClient(&redis.Options{Password: canary, Addr: proxy.Addr()})
	defer client.Close()
	const ttl = 6 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	steady, err := newSession(t, open(t, client, redislock.Options{QuarantineTTL: ttl}), ttl,
		time.Second).Mutex("steady").Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c := gather(t, proxy.Addr(), server.Addr())
	c.Grants(20, 10*time.Second)
	cuts := 0
	for began := time.Now(); time.Since(began) < 3*ttl/2; cuts++ {
		proxy.Cut()
		if err := proxy.Mend(); err != nil {
			t.Fatal(err)
		}
		fixedAt := time.Now()
		testkit.Eventually(t, 5*time.Second, "an answer", func() bool { return client.Ping(t.Context()).Err() == nil })
		answered := time.Since(fixedAt)
		c.Grants(1, 5*time.Second)
		// On a busy machine, connecting and making a call between two resets takes longer.
		time.Sleep(ttl/15 + 2*answered)
	}
	c.Disperse()
	t.Logf("%d cuts", cuts)
	if !steady.Valid() {
		t.Errorf("the steady lease: %v", steady.Err())
	}
	if err := steady.Release(context.Background()); err != nil {
		t.Error(err)
	}
}

// If a server goes down permanently, every call of the session returns in time, and so does the
// store's Close.
//
// Fails when the timer of the trust window does not start: the lease is still held.
func TestI7ServerGone(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	server := redistest.New(t)
	client := redis.NewClient(&redis.Options{Password: canary, Addr: server.Addr()})
	defer client.Close()
	store := open(t, client, redislock.Options{})
	awake(t, store)
	session := newSession(t, store, quarantineTTL, quarantineTTL/3)
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
		if d := time.Since(began); d > 900*time.Millisecond {
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

// A master of a Cluster dies, and its replica takes over.
//
// Fails when the map of the nodes is not refreshed: nothing is granted for a minute.
func TestI1ClusterFailover(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	cluster := redistest.NewClusterWithReplicas(t, 3, 1)
	client := func() redis.UniversalClient {
		c := redis.NewClusterClient(&redis.ClusterOptions{Password: canary, Addrs: cluster.Addrs()})
		t.Cleanup(func() { c.Close() })
		return c
	}
	c := gatherOn(t, client(), client())
	c.Grants(20, 10*time.Second)
	victim := masterOf(t, cluster, "{crowd}:slot:index")
	if err := victim.Kill(); err != nil {
		t.Fatal(err)
	}
	c.Grants(20, 30*time.Second)
	c.Disperse()
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

// A tick from before the epoch is late if a later tick was claimed, like any other tick. A
// malformed claim is not granted.
//
// Fails when acquire.lua reads a claim without its sign.
func TestTickBeforeTheEpoch(t *testing.T) {
	t.Parallel()
	_, store := shared(t, unique("epoch"))
	for _, token := range []string{"a", "b"} {
		_, err := store.TryAcquire(t.Context(), driver.Request{Name: "a", Slots: 3, Token: token, TTL: quarantineTTL,
			Tick: &driver.Tick{At: time.Unix(-1, 0), Max: 1}})
		if !isReason(err, driver.ReasonTickLate) {
			t.Errorf("%s: %v, want that the tick is late", token, err)
		}
	}
}

// A malformed revocation affects only its own lease.
//
// Fails when parseExtend stops at the first one.
func TestRevocationThatMakesNoSense(t *testing.T) {
	t.Parallel()
	prefix := unique("senseless")
	client, store := shared(t, prefix)
	ctx := t.Context()
	var grants []driver.Grant
	for _, name := range []string{"x", "y"} {
		g, err := store.TryAcquire(ctx, driver.Request{Name: name, Slots: 1, Token: "token", TTL: quarantineTTL})
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, g)
	}
	client.Set(ctx, prefix+"x:slot:0", `{"token":"token","revoked":{bad},"fence":1}`, redis.KeepTTL)
	r, err := store.Extend(ctx, quarantineTTL, grants...)
	if err != nil || r[0].Outcome != driver.GrantUnknown || r[0].Err == nil || r[1].Outcome != driver.GrantOK {
		t.Errorf("%+v, %v; want an error for x, and y extended", r, err)
	}
}

// Attempts that share a run of the script each check which run of the server last granted their
// name. The leases of one name may have been lost with the previous run, even if another name's are
// known.
//
// Fails when the result for the first name is used for all.
func TestQuarantineIsOfEachName(t *testing.T) {
	t.Parallel()
	c := newCrossing(t, false)
	client := redistest.Shared(t).Client()
	for _, name := range []string{"new0", "new1", "old", "first0", "first1", "first2",
		"first3"} { // the later ones use the round trips
		g, err := c.direct.TryAcquire(t.Context(), driver.Request{Name: name, Token: "before", TTL: quarantineTTL})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := c.direct.Release(t.Context(), g); err != nil || r[0].Outcome != driver.GrantOK {
			t.Fatal(r, err)
		}
	}
	forget(t, client, c.direct, c.direct.Key("old")+":slot:mutex", strings.Repeat("0", 40))
	for i, name := range []string{"new0", "old", "new1"} {
		check := func(err error) {
			if no, ok := errors.AsType[*driver.NotAcquiredError](err); !ok || no.Reason != driver.ReasonQuarantine {
				t.Errorf("%v, want a quarantine", err)
			}
		}
		if name != "old" {
			check = nil
		}
		c.acquire(t.Context(), name, check)
		c.waiting(i + 1)
	}
	close(c.gate.opened)
	c.calls.Wait()
	if got := fmt.Sprint(c.gate.pipelines); got != "[[3]]" {
		t.Errorf("runs for %v names, want one for 3", got)
	}
}
