package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/torture/crowd"
)

// A client may read from replicas for the application. Our scripts still go to masters, both on the
// store's own connections and on the client's, and no limit is exceeded.
//
// Fails when a script is called as read-only (EVALSHA_RO) and the client's settings are unchanged:
// it then goes to a replica.
func TestClientThatReadsFromReplicas(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	cluster := redistest.NewClusterWithReplicas(t, 1, 1)
	master, replica := cluster.Nodes[0], cluster.Nodes[1]
	client := func(by redis.ClusterOptions) *redis.ClusterClient {
		by.Password, by.Addrs, by.ReadOnly = canary, cluster.Addrs(), true
		by.ContextTimeoutEnabled, by.MaxRetries, by.DialerRetries = true, -1, 1 // required for SharedPool
		c := redis.NewClusterClient(&by)
		t.Cleanup(func() { c.Close() })
		return c
	}
	random, nearest := client(redis.ClusterOptions{RouteRandomly: true}),
		client(redis.ClusterOptions{RouteByLatency: true})
	var stores []driver.Store
	for _, c := range []*redis.ClusterClient{random, nearest} {
		for _, shared := range []bool{false, true} {
			if shared && c == nearest && testkit.RaceDetector {
				// go-redis 9.23 has a race here: it measures a new node's latency while the node is
				// still being set up.
				continue
			}
			store := open(t, c, redislock.Options{SharedPool: shared, QuarantineTTL: quarantineTTL})
			awake(t, store)
			stores = append(stores, store)
		}
	}
	c := crowd.Gather(t, crowdOptions, stores...)
	c.Grants(100, 10*time.Second)
	for _, store := range stores {
		for range 20 {
			if _, err := driver.CapabilitiesOf(store).Lister.List(t.Context(), crowd.Name, crowd.Slots); err != nil {
				t.Error(err)
			}
		}
	}
	c.Disperse()
	for range 20 { // reads of the application
		if err := random.Get(t.Context(), "{crowd}:slot:0").Err(); err != nil && !errors.Is(err, redis.Nil) {
			t.Error(err)
		}
	}
	calls := func(s *redistest.Server, command string) (n int) {
		t.Helper()
		stats, err := s.Client().Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`cmdstat_`+command+`:calls=(\d+)`).FindAllStringSubmatch(stats, -1) {
			var calls int
			fmt.Sscan(found[1], &calls)
			n += calls
		}
		return n
	}
	const scripts = "(?:eval|evalsha|eval_ro|evalsha_ro)"
	if calls(master, scripts) < 100 || calls(replica, "get") == 0 {
		t.Errorf("%d scripts on the master, %d reads on the replica: nothing to see here", calls(master, scripts),
			calls(replica, "get"))
	}
	if n := calls(replica, scripts); n > 0 {
		t.Errorf("%d scripts were sent to the replica", n)
	}
}

// A client that is connected to a replica, directly or indirectly, gets no lease from it and loses
// none. Every call that would write returns an error of the store.
//
// Fails when acquire.lua takes the error of its SET for a success or for a fault of one name.
func TestReplicaGrantsNothing(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	lease, err := newSession(t, p.onMaster, pairTTL, pairTTL/3).Semaphore("known", 2).TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.caughtUp()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	refused := func(what string, err error) {
		t.Helper()
		if !redis.HasErrorPrefix(err, "READONLY") { // tells the driver, too, that the connection leads to a replica
			t.Errorf("%s on a replica: %v, want an error of the store with READONLY", what, err)
		}
	}
	for _, name := range []string{"known", "new"} {
		for {
			_, err := p.onOther.TryAcquire(ctx, driver.Request{Name: name, Slots: 2, Token: "other", TTL: pairTTL})
			if !isReason(err, driver.ReasonQuarantine) { // the replica has just started
				refused("acquire "+name, err)
				break
			}
			time.Sleep(20 * time.Millisecond) // until the next try, limited by ctx
		}
	}
	held, err := p.onMaster.List(ctx, "known", 2)
	if err != nil || len(held) != 1 {
		t.Fatal(held, err)
	}
	value, err := p.master.Client().Get(ctx, fmt.Sprint("known:slot:", lease.Slot())).Result()
	if err != nil {
		t.Fatal(err)
	}
	token := regexp.MustCompile(`"token":"([^"]+)"`).FindStringSubmatch(value)[1]
	g := driver.Grant{Name: "known", Slots: 2, Slot: lease.Slot(), Token: token}
	results, err := p.onOther.Extend(ctx, pairTTL, g)
	refused("extend", unknown(results, err))
	results, err = p.onOther.Release(ctx, g)
	refused("release", unknown(results, err))
	select {
	case <-lease.Done():
		t.Errorf("lost by what was sent to a replica: %v", lease.Err())
	case <-time.After(pairTTL):
	}
	if err := lease.Release(ctx); err != nil {
		t.Error(err)
	}
}
