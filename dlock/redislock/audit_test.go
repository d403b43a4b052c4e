package redislock_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
)

// usual starts a server with the default snapshot settings of Redis.
var usual = redistest.Options{Args: []string{"--save", "3600 1 300 100 60 10000"}}

// audits expects exactly one warning for each of wants that contains its text, and no others.
func audits(t *testing.T, what string, store driver.Auditor, wants ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	warnings, err := store.Audit(ctx)
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if len(warnings) != len(wants) {
		t.Errorf("%s: %d warnings, want %d: %q", what, len(warnings), len(wants), warnings)
		return
	}
	for i, want := range wants {
		if !strings.Contains(warnings[i], want) {
			t.Errorf("%s: %q does not tell of %q", what, warnings[i], want)
		}
	}
}

// storeAt returns a store on one server.
func storeAt(t *testing.T, server *redistest.Server, opts redislock.Options) *redislock.Store {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: canary})
	t.Cleanup(func() { client.Close() })
	return open(t, client, opts)
}

func set(t *testing.T, server *redistest.Server, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if err := server.Client().ConfigSet(context.Background(), pairs[i], pairs[i+1]).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// A server with default settings causes no warning; settings that endanger leases do.
//
// Fails when Audit reads another field, ignores maxmemory, or does not ask for snapshots.
func TestAudit(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, usual)
	store := storeAt(t, server, redislock.Options{})
	audits(t, "a usual server", store)
	set(t, server, "maxmemory-policy", "volatile-lru")
	audits(t, "nothing is evicted without a bound", store)
	set(t, server, "maxmemory", "100mb")
	audits(t, "volatile-lru", store, "maxmemory-policy is volatile-lru")
	set(t, server, "maxmemory-policy", "noeviction")
	audits(t, "bounded", store)
	set(t, server, "save", "")
	audits(t, "keeps nothing", store, "neither the append-only file nor snapshots are on")
	set(t, server, "appendonly", "yes")
	audits(t, "an append-only file", store)
	audits(t, "a server of this process", storeAt(t, redistest.Shared(t), redislock.Options{Embedded: true}))
}

// Fails when Audit ignores the lag or min_slaves_good_slaves, or takes a replica for a master.
func TestAuditOfReplicas(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	master, replica := redistest.New(t, usual), redistest.New(t, usual)
	store := storeAt(t, master, redislock.Options{})
	if err := replica.Client().ReplicaOf(t.Context(), "127.0.0.1", fmt.Sprint(master.Port())).Err(); err != nil {
		t.Fatal(err)
	}
	line := func() string { return master.Client().Info(context.Background(), "replication").Val() }
	wait := func(what string, done func() bool) {
		t.Helper()
		err := testkit.Poll(20*time.Second, what, func(context.Context) error {
			if !done() {
				return fmt.Errorf("%s", line())
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	wait("a replica that is in step", func() bool {
		return strings.Contains(line(), "state=online") && (strings.Contains(line(), "lag=0") ||
			strings.Contains(line(), "lag=1"))
	})
	audits(t, "no minimum", store, "min-replicas-to-write is 0")
	set(t, master, "min-replicas-to-write", "1", "min-replicas-max-lag", "10")
	audits(t, "a minimum", store)
	audits(t, "the replica itself", storeAt(t, replica, redislock.Options{}), "this server is a replica")
	if err := replica.Pause(); err != nil {
		t.Fatal(err)
	}
	wait("a replica that lags", func() bool {
		return strings.Contains(line(), "lag=3") ||
			strings.Contains(line(), "lag=4")
	})
	audits(t, "a replica that does not acknowledge", store,
		fmt.Sprintf("replica 127.0.0.1:%d has acknowledged nothing for ", replica.Port()))
	if err := replica.Resume(); err != nil {
		t.Fatal(err)
	}
}

// With the permissions that docs/redis.md lists, one line names the checks that were not possible.
// With fewer permissions, a warning names the missing one.
//
// Fails when a refused command is an error or is not reported.
func TestAuditSaysWhatItMayNotSee(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, usual)
	as := func(rights ...any) *redislock.Store {
		name := unique("user")
		if err := server.Client().Do(context.Background(), append([]any{"ACL", "SETUSER", name, "on", ">secret", "~*"},
			rights...)...).Err(); err != nil {
			t.Fatal(err)
		}
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: name, Password: "secret"})
		t.Cleanup(func() { client.Close() })
		return open(t, client, redislock.Options{})
	}
	audits(t, "documented rights", as("+time", "+info"), "(CONFIG GET save)")
	audits(t, "with CONFIG GET", as("+time", "+info", "+config|get"))
	audits(t, "without INFO", as("+time"), "grant +info")
	audits(t, "without TIME", as("+info", "+config|get"), "may not execute TIME")
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "nobody", Password: "wrong"})
	defer client.Close()
	if warnings, err := open(t, client, redislock.Options{}).Audit(t.Context()); err == nil {
		t.Errorf("a login that is refused: %q, and no error", warnings)
	}
}

// Fails when the difference has the wrong sign, when the round trip is not allowed for, and when
// only one direction has a limit.
func TestAuditOfTheClock(t *testing.T) {
	t.Parallel()
	store := storeAt(t, redistest.New(t, usual), redislock.Options{})
	at := func(offset time.Duration) func() time.Time { return func() time.Time { return time.Now().Add(offset) } }
	for offset, side := range map[time.Duration]string{
		3 * time.Second: "ahead of", -3 * time.Second: "behind", time.Hour: "ahead of", 500 * time.Millisecond: "",
		-500 * time.Millisecond: "",
	} {
		store.SetHostClock(at(offset))
		if side == "" {
			audits(t, offset.String(), store)
			continue
		}
		warnings, err := store.Audit(t.Context())
		if err != nil || len(warnings) != 1 {
			t.Errorf("%v: %q, %v", offset, warnings, err)
			continue
		}
		skew := regexp.MustCompile(`the clock of this host is (\S+) (ahead of|behind) the server's`)
		told := skew.FindStringSubmatch(warnings[0])
		if told == nil || told[2] != side {
			t.Errorf("%v: %q: want %q", offset, warnings[0], side)
			continue
		}
		if d, err := time.ParseDuration(told[1]); err != nil || (d-offset.Abs()).Abs() > 500*time.Millisecond {
			t.Errorf("%v: %q", offset, warnings[0])
		}
	}
	// A slow answer is inexact, because the clock may have been read at any moment of the call.
	slow := time.Duration(0)
	store.SetHostClock(func() time.Time {
		now := time.Now().Add(slow)
		slow += 5 * time.Second
		return now
	})
	audits(t, "a round trip of 5s", store)
}

// A call to a server that hangs ends with its context.
func TestAuditEndsWithItsContext(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	store := storeAt(t, server, redislock.Options{})
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	defer server.Resume()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	if warnings, err := store.Audit(ctx); err == nil {
		t.Errorf("%q, and no error", warnings)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("came back after %v", took)
	}
}

// Fails when Audit checks only one node, or when the warning does not name the node.
func TestAuditOfSeveralServers(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	cluster := redistest.NewCluster(t, 3, usual)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Password: canary})
	defer client.Close()
	store := open(t, client, redislock.Options{})
	audits(t, "a cluster", store)
	set(t, cluster.Nodes[1], "save", "")
	audits(t, "one node keeps nothing", store, cluster.Nodes[1].Addr()+": neither")
}

// Refusals during a quarantine also report the last success.
//
// Fails when the quarantine's answer leaves it out, and when success is not in the state.
func TestSuccessOutlivesARestart(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{Persistence: redistest.AOF})
	store := storeAt(t, server, redislock.Options{})
	awake(t, store)
	ctx := t.Context()
	for _, slots := range []int{0, 2} {
		g, err := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: slots, Token: "t", TTL: quarantineTTL})
		if err != nil {
			t.Fatal(err)
		}
		g.Succeeded = true
		if r, err := store.Release(ctx, g); err != nil || r[0].Outcome != driver.GrantOK {
			t.Fatal(r, err)
		}
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	for _, slots := range []int{0, 2} {
		err := testkit.Poll(5*time.Second, "a refusal", func(ctx context.Context) error {
			_, err := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: slots, Token: "u", TTL: quarantineTTL})
			if no, ok := err.(*driver.NotAcquiredError); !ok || no.Reason != driver.ReasonQuarantine ||
				no.Info.SuccessAge < time.Millisecond {
				return fmt.Errorf("%#v", err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// Whatever the state contains, the reported age is plausible or missing.
//
// Fails when the number is not checked, and when a release creates a deleted state without an
// expiry.
func TestStateOfSuccessIsNotBelieved(t *testing.T) {
	t.Parallel()
	prefix := unique("success")
	client, store := shared(t, prefix)
	ctx := t.Context()
	for i, nonsense := range []string{"x", "-1", "0", "nan", "inf", "1e300", "99999999999999999999"} {
		name := fmt.Sprint("n", i)
		client.HSet(ctx, prefix+name+":slot:state", "success", nonsense)
		if g, err := store.TryAcquire(ctx, driver.Request{Name: name, Slots: 1, Token: "t",
			TTL: quarantineTTL}); err != nil || g.Info.SuccessAge != 0 {
			t.Errorf("%s: %+v, %v: want no success", nonsense, g, err)
		}
	}
	// The clock was ahead when this was written.
	client.HSet(ctx, prefix+"ahead:slot:state", "success", time.Now().Add(time.Hour).UnixMicro())
	if g, err := store.TryAcquire(ctx, driver.Request{Name: "ahead", Slots: 1, Token: "t",
		TTL: quarantineTTL}); err != nil || g.Info.SuccessAge != 0 {
		t.Errorf("%+v, %v: want no success", g, err)
	}
	for name, slots := range map[string]int{"s": 1, "m": 0} {
		g, err := store.TryAcquire(ctx, driver.Request{Name: name, Slots: slots, Token: "t", TTL: quarantineTTL})
		if err != nil {
			t.Fatal(err)
		}
		state := prefix + name + ":slot:state"
		if slots == 0 {
			state = prefix + name + ":slot:mutex"
		}
		if n := client.Del(ctx, state).Val(); n != 1 {
			t.Fatalf("there is no %s", state)
		}
		g.Succeeded = true
		if r, err := store.Release(ctx, g); err != nil || r[0].Outcome != driver.GrantOK {
			t.Fatal(r, err)
		}
		if ttl := client.PTTL(ctx, state).Val(); ttl < 30*time.Minute {
			t.Errorf("%s lasts for %v", state, ttl)
		}
		if g, err := store.TryAcquire(ctx, driver.Request{Name: name, Slots: slots, Token: "u",
			TTL: quarantineTTL}); err != nil || g.Info.SuccessAge == 0 || g.PreviousExpired {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
	}
}
