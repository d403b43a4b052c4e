package redislock_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
)

// A Redis Cluster divides the work by name. The calls are ticks claimed by four hosts, one of which
// gets each, heartbeats and releases. Each of three masters gets a third of them, within 20 %. So
// three masters can handle at least 2.4 times the load of one.
//
// The names determine the master, and their CRC16s are the same every time, so the test has no
// random element. There are 600 names because names fall on nodes at random: with n names, each of
// three nodes has n/3 with a standard deviation of √(2n)/3. That is 8 % of a third for 300 names
// and 6 % for 600. A fleet with a dozen timers cannot expect equal thirds.
//
// Fails when all keys have the same tag (keys puts braces around the prefix alone), and when a call
// is counted twice.
func TestLoadDividesOnACluster(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	const names, hosts = 600, 4
	cluster := redistest.NewCluster(t, 3)
	client := redis.NewClusterClient(&redis.ClusterOptions{Username: app, Password: canary, Addrs: cluster.Addrs()})
	t.Cleanup(func() { client.Close() })
	store := open(t, client, redislock.Options{Prefix: shop})
	ctx := t.Context()
	name := func(i int) string { return fmt.Sprintf("timer:job-%d", i) }

	// Every master must be past its quarantine and know the scripts.
	testkit.Eventually(t, 10*time.Second, "all names are granted", func() error {
		var grants []driver.Grant
		for i := range 30 {
			g, err := store.TryAcquire(ctx, driver.Request{Name: fmt.Sprintf("awake-%d", i), Slots: 1, Token: "awake",
				TTL: quarantineTTL})
			if err == nil {
				grants = append(grants, g)
			}
		}
		if len(grants) < 30 {
			return fmt.Errorf("%d of 30", len(grants))
		}
		if _, err := store.Extend(ctx, quarantineTTL, grants...); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Release(ctx, grants...); err != nil {
			t.Fatal(err)
		}
		return nil
	})

	before := make([]int64, len(cluster.Nodes))
	for i, node := range cluster.Nodes {
		before[i] = scriptsRun(t, node)
	}
	var grants []driver.Grant
	for i := range names {
		tick := driver.Tick{At: time.Now().Truncate(time.Second), Max: 1}
		for host := range hosts {
			g, err := store.TryAcquire(ctx, driver.Request{Name: name(i), Slots: 3,
				Token: fmt.Sprintf("t%d-%d", i, host), TTL: quarantineTTL, Tick: &tick})
			if err == nil {
				grants = append(grants, g)
			} else if host == 0 {
				t.Fatal(err)
			}
		}
	}
	for from := 0; from < len(grants); from += 300 { // in batches, as a heartbeat does
		if _, err := store.Extend(ctx, quarantineTTL, grants[from:min(from+300, len(grants))]...); err != nil {
			t.Fatal(err)
		}
	}
	for _, g := range grants {
		if _, err := store.Release(ctx, g); err != nil {
			t.Fatal(err)
		}
	}
	var sum, busiest int64
	each := make([]int64, len(cluster.Nodes))
	for i, node := range cluster.Nodes {
		each[i] = scriptsRun(t, node) - before[i]
		sum, busiest = sum+each[i], max(busiest, each[i])
	}
	if want := int64(names * (hosts + 2)); sum != want || len(grants) != names {
		t.Errorf("%d calls, want %d; %d grants, want %d", sum, want, len(grants), names)
	}
	for i, n := range each {
		if share := float64(n) / float64(sum) * 3; share < 0.8 || share > 1.2 {
			t.Errorf("node %d: %d of %d calls, %.2f of a third", i, n, sum, share)
		}
	}
	times := float64(sum) / float64(busiest)
	if times < 2.4 {
		t.Errorf("three masters bear %.2f times what one does", times)
	}
	t.Logf("%v of %d calls: three masters bear %.2f times what one does", each, sum, times)
}

var evalsha = regexp.MustCompile(`(?m)^cmdstat_eval(?:sha)?:calls=(\d+)`)

// scriptsRun returns how many scripts a server has run, not counting the commands within.
func scriptsRun(t *testing.T, s *redistest.Server) (n int64) {
	t.Helper()
	info, err := s.Client().Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range evalsha.FindAllStringSubmatch(info, -1) {
		calls, err := strconv.ParseInt(match[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		n += calls
	}
	return n
}
