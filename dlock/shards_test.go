package dlock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// A cluster is a store with several servers. The first letter of a name selects its server, unless
// the name was moved.
type cluster struct {
	dlock.DistributedLock

	mu     sync.Mutex
	moved  map[string]string
	hung   map[string]bool
	shards []string // the shard of every call to Extend
	sizes  []int    // the number of leases in every call to Extend
	most   int      // maximum concurrent calls to Extend on one shard
	going  map[string]int
}

func newCluster() *cluster {
	return &cluster{DistributedLock: memlock.New(), moved: map[string]string{}, hung: map[string]bool{},
		going: map[string]int{}}
}

func (c *cluster) Shard(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shard(name)
}

func (c *cluster) shard(name string) string {
	if to, ok := c.moved[name]; ok {
		return to
	}
	return name[:1]
}

// set sets which servers hang. Each letter is a server.
func (c *cluster) set(hung string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.hung)
	for _, s := range strings.Split(hung, "") {
		c.hung[s] = true
	}
}

// reach waits for the servers of the grants, as a call with all of these grants would.
func (c *cluster) reach(ctx context.Context, grants ...driver.Grant) error {
	c.mu.Lock()
	hangs := false
	for _, g := range grants {
		hangs = hangs || c.hung[c.shard(g.Name)]
	}
	c.mu.Unlock()
	if hangs {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (c *cluster) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	g, err := c.DistributedLock.TryAcquire(ctx, req)
	if hangs := c.reach(ctx, driver.Grant{Name: req.Name}); hangs != nil {
		return driver.Grant{}, hangs
	}
	return g, err
}

func (c *cluster) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	var on string
	c.mu.Lock()
	for _, g := range grants {
		if !strings.Contains(on, c.shard(g.Name)) {
			on += c.shard(g.Name)
		}
	}
	c.shards, c.sizes = append(c.shards, on), append(c.sizes, len(grants))
	c.going[on]++
	c.most = max(c.most, c.going[on])
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.going[on]--
		c.mu.Unlock()
	}()
	if err := c.reach(ctx, grants...); err != nil {
		return nil, err
	}
	return c.DistributedLock.Extend(ctx, ttl, grants...)
}

func (c *cluster) Release(ctx context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	if err := c.reach(ctx, grants...); err != nil {
		return nil, err
	}
	return c.DistributedLock.Release(ctx, grants...)
}

func newSharded(t *testing.T) (*cluster, *dlock.Session) {
	t.Helper()
	store := newCluster()
	session, err := dlock.NewSession(store, dlock.SessionOptions{TTL: ttl, StoreTimeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		store.set("")
		session.Close(bg)
	})
	return store, session
}

func take(t *testing.T, session *dlock.Session, name string) *dlock.Lease {
	t.Helper()
	lease, err := session.Mutex(name).TryAcquire(bg)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// A server that hangs costs only its own leases, even if there are many. The leases of other
// servers are renewed in time, by separate calls of at most 500 leases, one call at a time.
//
// Fails when all leases share one renewQueue, whose calls then take StoreTimeout each.
func TestShardThatHangsCostsItsOwnLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, session := newSharded(t)
		leases := map[string][]*dlock.Lease{}
		for i := range 6_000 {
			shard := string("abc"[i%3])
			leases[shard] = append(leases[shard], take(t, session, fmt.Sprintf("%s-%d", shard, i)))
		}
		advance(ttl)
		store.set("b")
		store.mu.Lock()
		store.shards, store.sizes = nil, nil
		store.mu.Unlock()
		advance(2 * ttl)
		for shard, list := range leases {
			for _, l := range list {
				if l.Valid() == (shard == "b") {
					t.Fatalf("%s, server b hangs: valid: %t, %v", l.Name(), l.Valid(), l.Err())
				}
			}
		}
		calls := map[string]int{}
		for i, shard := range store.shards {
			calls[shard]++
			if len(shard) != 1 || store.sizes[i] > dlock.BeatBatch {
				t.Fatalf("a call for %d leases of the servers %q", store.sizes[i], shard)
			}
		}
		if calls["a"] != 4*6 || calls["c"] != 4*6 {
			t.Errorf("%d and %d calls for 2000 leases each in 6 beats, want 4 a beat", calls["a"], calls["c"])
		}
		if store.most != 1 {
			t.Errorf("%d calls at once for one server", store.most)
		}
		store.set("")
		for _, list := range leases {
			for _, l := range list {
				l.Release(bg)
			}
		}
		advance(2 * ttl)
		if !session.Idle() {
			t.Error("not idle with nothing held")
		}
	})
}

// If a name moves to another server, because its hash slot moved or a replica took over, the
// session renews it there. This also holds if the remaining leases are on a server that hangs, and
// if there are more leases than one call renews.
//
// Fails when followShards gets only the leases of the call, or when a lease stays in the renewQueue
// of its first shard.
func TestLeasesFollowTheirNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, session := newSharded(t)
		var leases []*dlock.Lease
		for i := range 10 * dlock.BeatBatch {
			leases = append(leases, take(t, session, fmt.Sprintf("a-%d", i)))
		}
		advance(ttl)
		store.set("a")
		advance(ttl / 3)
		store.mu.Lock()
		for i, l := range leases {
			if i%3 != 0 {
				store.moved[l.Name()] = string("abc"[i%3])
			}
		}
		store.mu.Unlock()
		advance(2 * ttl)
		for i, l := range leases {
			if l.Valid() != (i%3 != 0) {
				t.Fatalf("%s, now on server %s: valid: %t, %v", l.Name(), store.Shard(l.Name()), l.Valid(), l.Err())
			}
		}
		if shards := store.shards[len(store.shards)-10:]; strings.Contains(fmt.Sprint(shards), "a") {
			t.Errorf("calls for %q, want none for the server that has no lease any more", shards)
		}
	})
}

// Pending releases on a server that hangs do not delay those on other servers, neither in the
// heartbeat nor in Close.
//
// Fails when releaseLater has one list for all servers, and if Close calls one server after the
// other.
func TestPendingReleasesOfAShardThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, session := newSharded(t)
		unsettle := func() {
			t.Helper()
			store.set("abc")
			var all sync.WaitGroup
			for _, name := range []string{"a", "b", "c"} {
				all.Go(func() {
					if _, err := session.Mutex(name).TryAcquire(bg); err == nil {
						t.Error("a server that hangs has answered")
					}
				})
			}
			all.Wait()
			store.set("b")
		}
		held := func() (names string) {
			t.Helper()
			for _, name := range []string{"a", "b", "c"} {
				list, err := driver.CapabilitiesOf(store.DistributedLock).Lister.List(bg, name, 0)
				if err != nil {
					t.Fatal(err)
				}
				for _, h := range list {
					names += h.Name
				}
			}
			return names
		}
		unsettle()
		if h := held(); h != "abc" {
			t.Fatalf("%q are held, want all: only the replies were lost", h)
		}
		advance(ttl/10 + ttl/20)
		if h := held(); h != "b" {
			t.Errorf("%q are held, want what is on the server that hangs", h)
		}
		unsettle()
		wantAtMost(t, timeout, "Close", func() {
			if err := session.Close(bg); err == nil {
				t.Error("Close gave everything back, but a server hangs")
			}
		})
		if h := held(); h != "b" {
			t.Errorf("%q are held after Close, want what is on the server that hangs", h)
		}
	})
}
