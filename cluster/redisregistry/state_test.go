package redisregistry_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/redisregistry"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
)

func write(t testing.TB, s *redisregistry.Store, b cluster.Batch) cluster.Written {
	t.Helper()
	w, err := s.Write(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func read(t testing.TB, s *redisregistry.Store) cluster.Rows {
	t.Helper()
	rows, err := s.Read(t.Context(), cluster.Query{Events: cluster.MaxEvents, Runs: 10_000, Timers: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// complete checks that rows contains everything that batch wrote.
func complete(t testing.TB, what string, rows cluster.Rows) {
	t.Helper()
	if len(rows.Hosts) != 1 || len(rows.Leases) != 1 || len(rows.Events) != 1 ||
		len(rows.Runs) != cluster.RunsPerTimer {
		t.Errorf("%s: %d hosts, %d leases, %d events, %d runs, want 1, 1, 1, %d", what, len(rows.Hosts),
			len(rows.Leases), len(rows.Events), len(rows.Runs), cluster.RunsPerTimer)
	}
}

// keys returns all keys on the server that begin with the prefix, with or without a brace before
// it.
func keys(t testing.TB, c redis.Cmdable, prefix string) []string {
	t.Helper()
	all, err := c.Keys(t.Context(), "*"+prefix+"*").Result()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A fleet that no longer exists leaves nothing behind: each key expires 40 days after the last
// write.
//
// Fails when a key is written without a time to live, or a key that Keys does not list.
func TestEverythingExpires(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	prefix := unique()
	s := open(t, server.Client(), prefix)
	write(t, s, batch())
	write(t, s, counted(1))
	if all := keys(t, server.Client(), prefix); len(all) != len(s.Keys()) {
		t.Errorf("keys %q, want %q", all, s.Keys())
	}
	for _, key := range s.Keys() {
		if err := server.Client().Persist(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
	}
	write(t, s, cluster.Batch{Host: batch().Host})
	for _, key := range keys(t, server.Client(), prefix) {
		left, err := server.Client().PTTL(t.Context(), key).Result()
		if days := left.Hours() / 24; err != nil || days < 39.9 || days > 40 {
			t.Errorf("%s expires in %v, want 40 days: %v", key, left, err)
		}
	}
}

// Trimmed events and runs leave nothing behind, and the same holds for rows that Sweep deletes.
//
// Fails when a part of a row remains.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	prefix := unique()
	s := open(t, server.Client(), prefix)
	for range 3 {
		b := batch()
		for i := range b.Runs {
			b.Runs[i].ID += time.Now().String()
		}
		write(t, s, b)
	}
	for number := range 3 {
		write(t, s, counted(int64(1+number)))
	}
	for i, key := range s.Keys() {
		var n int64
		var err error
		switch kind := server.Client().Type(t.Context(), key).Val(); kind {
		case "hash":
			n, err = server.Client().HLen(t.Context(), key).Result()
		case "zset":
			n, err = server.Client().ZCard(t.Context(), key).Result()
		default:
			t.Errorf("%s is a %s", key, kind)
		}
		want := int64(1)
		if i >= 6 && i < 9 { // the keys of runs
			want = cluster.RunsPerTimer
		}
		if err != nil || n != want {
			t.Errorf("%s has %d members, want %d: %v", key, n, want, err)
		}
	}
	b := batch()
	b.Host.TTL, b.Host.UpFor, b.Runs, b.Events = time.Microsecond, 2*time.Hour, nil, nil
	b.Leases[0].ExpiresIn, b.Leases[0].RenewedAgo = -time.Hour, time.Hour
	write(t, s, b)
	testkit.Eventually(t, testkit.Patience, "everything is swept", func() bool {
		if _, err := s.Sweep(t.Context(), cluster.Retention{}, 1000); err != nil {
			t.Fatal(err)
		}
		return len(keys(t, server.Client(), prefix)) == 0
	})
}

// A server under memory pressure evicts single keys. Whichever key it evicts, all calls work, and
// each row that a host writes afterwards exists exactly once.
//
// Fails when whole.lua is left out of the scripts.
func TestEvictedKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	admin := server.Client()
	for i := range open(t, admin, "").Keys() {
		s := open(t, admin, unique())
		write(t, s, batch())
		write(t, s, counted(1))
		key := s.Keys()[i]
		if err := admin.Del(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
		if err := calls(s); err != nil {
			t.Errorf("without %s: %v", key, err)
		}
		if err := admin.Del(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
		read(t, s)
		heartbeat := *batch().Host
		heartbeat.Detail = nil
		w := write(t, s, cluster.Batch{Host: &heartbeat})
		if gone := i < 2; w.HostUnknown != gone {
			t.Errorf("without %s the host is unknown: %t", key, w.HostUnknown)
		}
		write(t, s, batch())
		write(t, s, counted(2))
		complete(t, "without "+key, read(t, s))
		if timers := read(t, s).Timers; len(timers) != 1 {
			t.Errorf("without %s: %d records of a timer", key, len(timers))
		}
		if runs, err := s.Runs(t.Context(), "orders"); err != nil || len(runs) != cluster.RunsPerTimer {
			t.Errorf("without %s: %d runs, %v", key, len(runs), err)
		}
	}
}

// Rows written by another program are not returned, do not hide other rows, and are replaced.
func TestForeignRows(t *testing.T) {
	t.Parallel()
	admin := redistest.Shared(t).Client()
	for _, nonsense := range []string{"", "x", "{}", "1 2 3 4 5 6 7 8", "1 2 3 [",
		"-1 -1 -1 {}", strings.Repeat("9", 400), "z\xff\xff", "1 1 1 0 1 abc {\"pid\":\"x\"}"} {
		s := open(t, admin, unique())
		write(t, s, batch())
		write(t, s, counted(1))
		for _, i := range []int{0, 1, 2, 4, 6, 9, 10, 12} { // the keys that are hashes
			all, err := admin.HKeys(t.Context(), s.Keys()[i]).Result()
			if err == nil {
				err = admin.HSet(t.Context(), s.Keys()[i], all[0], nonsense).Err()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range read(t, s).Timers {
			t.Errorf("%q is shown as %+v", nonsense, r)
		}
		for _, r := range read(t, s).Runs {
			if r.Timer != "orders" {
				t.Errorf("%q is shown as %+v", nonsense, r)
			}
		}
		if err := calls(s); err != nil {
			t.Errorf("%q: %v", nonsense, err)
		}
		b := batch()
		b.Host.UpFor, b.Leases[0].Grant, b.Leases[0].HeldFor = 2*time.Hour, "next", 0
		write(t, s, b)
		write(t, s, counted(2))
		rows := read(t, s)
		if len(rows.Hosts) != 1 || rows.Hosts[0].Holder != b.Host.Holder || len(rows.Leases) != 1 ||
			rows.Leases[0].Name != "orders" {
			t.Errorf("%q is not replaced: %+v, %+v", nonsense, rows.Hosts, rows.Leases)
		}
		if len(rows.Timers) != 1 || rows.Timers[0].Last.Timer != "orders" {
			t.Errorf("%q is not replaced: %+v", nonsense, rows.Timers)
		}
	}
}

// Details are stored compressed. Uncompressed details from an older or newer version can still be
// read.
//
// Fails when details are stored uncompressed.
func TestDetailsAreSmall(t *testing.T) {
	t.Parallel()
	admin := redistest.Shared(t).Client()
	s := open(t, admin, unique())
	b := batch()
	b.Host.Detail = fleetDetail()
	write(t, s, b)
	if got := read(t, s).Hosts; len(got) != 1 || !bytes.Equal(got[0].Detail, b.Host.Detail) {
		t.Errorf("%d hosts; the detail came back as another", len(got))
	}
	stored, err := admin.HGetAll(t.Context(), s.Keys()[1]).Result()
	for key, text := range stored {
		if most := len(b.Host.Detail) / 5; len(text) > most {
			t.Errorf("a detail of %d bytes takes %d, want at most %d", len(b.Host.Detail), len(text), most)
		}
		err = admin.HSet(t.Context(), s.Keys()[1], key, string(b.Host.Detail)).Err()
	}
	if err != nil || len(stored) != 1 {
		t.Fatal(len(stored), err)
	}
	if got := read(t, s).Hosts; len(got) != 1 || !bytes.Equal(got[0].Detail, b.Host.Detail) {
		t.Errorf("%d hosts; a detail that is not compressed came back as another", len(got))
	}
}

// All times are the server's. If its clock is off by a day, nothing changes: a row written an hour
// ago by that clock is one hour old.
//
// Fails when a time of this host is stored or compared.
func TestTimesAreTheServers(t *testing.T) {
	t.Parallel()
	server, clock := redistest.NewWithClock(t, redistest.Options{})
	s := open(t, client(t, server.Addr()), unique())
	clock.Set(24 * time.Hour)
	w := write(t, s, batch())
	const slack = 30 * time.Second // for a busy machine
	near := func(what string, got, want time.Duration) {
		t.Helper()
		if got < want-slack || got > want+slack {
			t.Errorf("%s: %v, want about %v", what, got, want)
		}
	}
	near("how far the server is ahead", time.Until(w.At), 24*time.Hour)
	for i, later := range []time.Duration{0, time.Hour} {
		clock.Set(24*time.Hour + later)
		rows := read(t, s)
		complete(t, "read", rows)
		near("HeldFor", rows.Leases[0].HeldFor, time.Hour+later)
		near("ExpiresIn", rows.Leases[0].ExpiresIn, time.Hour-later)
		near("UpFor", rows.Hosts[0].UpFor, time.Hour+later)
		near("SeenAgo", rows.Hosts[0].SeenAgo, later)
		near("Ago", rows.Events[0].Ago, later)
		near("EndedAgo", rows.Runs[1].EndedAgo, time.Hour+later)
		deleted, err := s.Sweep(t.Context(), cluster.Retention{Hosts: 30 * time.Minute, Leases: time.Hour,
			Events: 30 * time.Minute, Runs: 1000 * time.Hour}, 10)
		if want := 2 * i; err != nil || deleted != want { // the host and the event
			t.Errorf("Sweep after %v: %d, %v, want %d", later, deleted, err, want)
		}
	}
	clock.Set(0) // sets the clock back by a day: the heartbeat must not look older than the last one
	b := batch()
	write(t, s, b)
	b.Host.UpFor += time.Minute
	b.Host.AppVersion = "next"
	write(t, s, b)
	if rows := read(t, s); rows.Hosts[0].AppVersion != "next" {
		t.Errorf("%+v, want the last heartbeat", rows.Hosts[0])
	}
}

// A write whose reply is lost can be repeated, and its rows exist once.
func TestLostRepliesAreRepeated(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	proxy := redistest.NewCountingProxyFor(t, server.Addr())
	s := open(t, client(t, proxy.Addr()), unique())
	write(t, s, cluster.Batch{})
	proxy.LoseReplies(true)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := s.Write(ctx, batch()); err == nil {
		t.Fatal("no error, although the reply was lost")
	}
	proxy.LoseReplies(false)
	proxy.Cut()
	if err := proxy.Mend(); err != nil {
		t.Fatal(err)
	}
	b := batch()
	b.Host.UpFor += time.Second
	write(t, s, b)
	complete(t, "after a lost reply", read(t, s))
}

// A server that has lost everything recovers it: it answers heartbeats with HostUnknown, and hosts
// send their rows again.
func TestEmptiedServer(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	s := open(t, client(t, server.Addr()), unique())
	write(t, s, batch())
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := s.Read(ctx, cluster.Query{}); err == nil {
		t.Error("no error of a server that is down")
	}
	if err := server.RestartEmpty(); err != nil {
		t.Fatal(err)
	}
	b := batch()
	b.Host.Detail = nil
	if w := write(t, s, b); !w.HostUnknown {
		t.Error("the host is known to an empty server")
	}
	write(t, s, batch())
	complete(t, "after the restart", read(t, s))
}

// replicated waits until the asynchronous replication has caught up with the master.
func replicated(t testing.TB, master *redistest.Server) {
	t.Helper()
	conn := master.Client().Conn() // WAIT covers the writes of its own connection, and thereby all earlier ones
	defer conn.Close()
	testkit.Eventually(t, testkit.Patience, "a replica has all", func() error {
		if err := conn.Set(t.Context(), "replicated", 1, 0).Err(); err != nil {
			return err
		}
		if n, err := conn.Wait(t.Context(), 1, time.Second).Result(); err != nil || n != 1 {
			return fmt.Errorf("%d replicas, %v", n, err)
		}
		return nil
	})
}

// When the master dies, or is demoted and continues as a replica, the registry moves to the new
// master through the client of redis.NewFailoverClient.
//
// Fails when connections to a replica are kept.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	for what, fail := range map[string]func(*redistest.Sentinel) error{
		"it dies": func(s *redistest.Sentinel) error { return s.Master.Kill() },
		"it is demoted": func(s *redistest.Sentinel) error {
			return s.Sentinels[0].Client().Do(context.Background(), "SENTINEL", "FAILOVER", s.MasterName()).Err()
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			servers := redistest.NewSentinel(t)
			c := redis.NewFailoverClient(&redis.FailoverOptions{Username: app, Password: canary,
				MasterName: servers.MasterName(), SentinelAddrs: servers.SentinelAddrs(), Dialer: servers.Dial})
			defer c.Close()
			s := open(t, c, unique())
			write(t, s, batch())
			replicated(t, servers.Master)
			if err := fail(servers); err != nil {
				t.Fatal(err)
			}
			if err := servers.FailedOver(servers.Replica); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, 2*testkit.Patience, "the next master is written to", func() error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				b := batch()
				b.Events[0].ID = "after"
				if _, err := s.Write(ctx, b); err != nil {
					return err
				}
				return servers.Replica.Client().HGet(ctx, s.Keys()[4], "after").Err()
			})
			if rows := read(t, s); len(rows.Hosts) != 1 || len(rows.Events) != 2 {
				t.Errorf("%d hosts and %d events, want 1 and 2", len(rows.Hosts), len(rows.Events))
			}
		})
	}
}

// A Cluster node that hangs affects only the registries on it. Their calls end at their deadlines.
func TestHungClusterNode(t *testing.T) {
	t.Parallel()
	nodes := redistest.NewCluster(t, 3)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: nodes.Addrs(), Username: app, Password: canary})
	t.Cleanup(func() { c.Close() })
	var all []*redisregistry.Store
	for range 12 {
		s := open(t, c, unique())
		write(t, s, batch())
		all = append(all, s)
	}
	if err := nodes.Nodes[1].Pause(); err != nil {
		t.Fatal(err)
	}
	hung := 0
	for _, s := range all {
		const limit = 300 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		began := time.Now()
		_, err := s.Read(ctx, cluster.Query{})
		if took := time.Since(began); took > limit+2*time.Second {
			t.Errorf("a call took %v", took)
		}
		if err != nil {
			hung++
		}
	}
	if hung == 0 || hung == len(all) {
		t.Errorf("%d of %d registries are on a node that hangs", hung, len(all))
	}
	if err := nodes.Nodes[1].Resume(); err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		testkit.Eventually(t, testkit.Patience, "the node answers", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := s.Read(ctx, cluster.Query{})
			return err
		})
	}
}

// Each timer has only its own runs, even if its name resembles the keys of another timer.
func TestTimersAreToldApart(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).Client(), unique())
	timers := []string{"", "1", "1:", "1:a", "3:1:a", "a", "a0", "a1795161862226257x", "a\xff", "a:", "\xff",
		"[", "(", "-", "+"}
	var b cluster.Batch
	for _, timer := range timers {
		for _, id := range []string{"", ":", "7", "\x00"} {
			b.Runs = append(b.Runs, cluster.Run{ID: timer + " " + id, Timer: timer, Holder: dlock.Holder{Host: timer}})
		}
	}
	write(t, s, b)
	for _, timer := range timers {
		runs, err := s.Runs(t.Context(), timer)
		if err != nil || len(runs) != 4 {
			t.Errorf("%q: %d runs, %v, want 4", timer, len(runs), err)
		}
		for _, r := range runs {
			if want := strings.ToValidUTF8(timer, "\ufffd"); r.Timer != want {
				t.Errorf("%q has a run of %q", timer, r.Timer)
			}
		}
	}
}
