package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/redistest"
)

// cycle goes once through all that a store does.
func cycle(t *testing.T, store *redislock.Store) {
	t.Helper()
	awake(t, store)
	ctx := context.Background()
	for _, slots := range []int{0, 3} {
		req := dlock.Request{Name: fmt.Sprint("timer:cycle", slots), Slots: slots, Holder: dlock.NewHolder(), Token: "a", TTL: time.Second, Tick: &dlock.Tick{At: time.Now(), Max: 1}}
		g, err := store.TryAcquire(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		req.Token = "b"
		if _, err := store.TryAcquire(ctx, req); !errors.Is(err, dlock.ErrNotAcquired) {
			t.Error(err)
		}
		if r, err := store.Extend(ctx, time.Second, g); err != nil || r[0].Outcome != dlock.OK {
			t.Error(r, err)
		}
		if list, err := store.List(ctx, req.Name, slots); err != nil || len(list) != 1 {
			t.Error(list, err)
		}
		g.Slot = dlock.AnySlot
		if r, err := store.Release(ctx, g); err != nil || r[0].Outcome != dlock.OK {
			t.Error(r, err)
		}
	}
	if _, err := store.Audit(ctx); err != nil {
		t.Error(err)
	}
}

// The user that docs/redis.md describes can do all that the store does, and nothing else.
func TestLeastPrivilegeAsDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)ACL SETUSER (.*?)```").FindStringSubmatch(string(doc))
	if block == nil {
		t.Fatal("docs/redis.md has no ACL SETUSER")
	}
	args := []any{"ACL", "SETUSER"}
	for _, word := range strings.Fields(strings.ReplaceAll(block[1], "\\\n", " ")) {
		args = append(args, strings.Trim(word, "'"))
	}
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		long(t)
		cluster := redistest.NewCluster(t, 3)
		more := regexp.MustCompile("on a Cluster, where also `(.*?)` is needed").FindStringSubmatch(string(doc))
		if more == nil {
			t.Fatal("docs/redis.md does not say what a Cluster needs")
		}
		for _, node := range cluster.Nodes {
			all := append(slices.Clone(args), more[1])
			if err := node.Client().Do(context.Background(), all...).Err(); err != nil {
				t.Fatal(err)
			}
		}
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Username: "tickslot", Password: "secret"})
		defer client.Close()
		cycle(t, open(t, client, redislock.Options{Prefix: "shop:"}))
	})
	server := redistest.New(t)
	if err := server.Client().Do(context.Background(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	for _, keys := range []redislock.KeyForm{redislock.Plain, redislock.Tagged} {
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "tickslot", Password: "secret"})
		defer client.Close()
		cycle(t, open(t, client, redislock.Options{Prefix: fmt.Sprintf("shop:%d:", keys), Keys: keys}))
		for _, forbidden := range [][]any{{"FLUSHALL"}, {"KEYS", "*"}, {"GET", "other"}, {"CONFIG", "GET", "*"}} {
			if err := client.Do(context.Background(), forbidden...).Err(); err == nil || !strings.Contains(err.Error(), "NOPERM") {
				t.Errorf("%v: %v", forbidden, err)
			}
		}
	}
}

// TLS and a password are taken over from the client.
func TestTLSAndPassword(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{TLS: true, Password: "secret"})
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: "secret", TLSConfig: server.TLSConfig()})
	defer client.Close()
	cycle(t, open(t, client, redislock.Options{}))
}

// A client of one node of a Cluster is told what to pass instead.
func TestNodeOfAClusterIsRefused(t *testing.T) {
	t.Parallel()
	long(t)
	cluster := redistest.NewCluster(t, 3)
	client := redis.NewClient(&redis.Options{Password: canary, Addr: cluster.Addrs()[0]})
	defer client.Close()
	for _, keys := range []redislock.KeyForm{redislock.Plain, redislock.Tagged} {
		store := open(t, client, redislock.Options{Keys: keys})
		var refused int
		for i := range 20 { // some names would be on this node
			_, err := store.TryAcquire(context.Background(), dlock.Request{Name: fmt.Sprint("n", i), Slots: 3, Token: "t", TTL: time.Second})
			if err != nil && strings.Contains(err.Error(), "pass a *redis.ClusterClient") {
				refused++
			}
		}
		if refused < 3 || keys == redislock.Plain && refused < 20 {
			t.Errorf("Keys %d: %d of 20 names were refused", keys, refused)
		}
	}
}

// A password stays out of what is said of a server that cannot be reached, or does not let us in.
func TestPasswordIsNotTold(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{Password: "right"})
	const canary = "S3CRETcanary"
	for _, addr := range []string{server.Addr(), "127.0.0.1:1"} {
		client := redis.NewClient(&redis.Options{Addr: addr, Password: canary})
		defer client.Close()
		store := open(t, client, redislock.Options{})
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_, err := store.TryAcquire(ctx, dlock.Request{Name: "a", Token: "t", TTL: time.Second})
		_, extendErr := store.Extend(ctx, time.Second, dlock.Grant{Name: "a", Token: "t"})
		_, releaseErr := store.Release(ctx, dlock.Grant{Name: "a", Token: "t"})
		want := "connection refused"
		if addr == server.Addr() {
			want = "check user, password and ACL"
		}
		for _, err := range []error{err, extendErr, releaseErr} {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), canary) {
				t.Errorf("err %v, want %q in it", err, want)
			}
		}
		if err == nil || errors.Is(err, dlock.ErrNotAcquired) || strings.Contains(err.Error(), canary) {
			t.Errorf("err %v", err)
		}
		if text := fmt.Sprintf("%v %s", store, store); strings.Contains(text, canary) {
			t.Error(text)
		}
	}
}

// Close ends the store's own connections and leaves the user's alone.
func TestCloseLeavesTheUsersClient(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Password: canary, Addr: redistest.Shared(t).Addr()})
	defer client.Close()
	for _, shared := range []bool{false, true} {
		store := redislock.New(client, redislock.Options{Prefix: unique("close"), SharedPool: shared, QuarantineTTL: quarantineTTL})
		cycle(t, store)
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		if err := client.Ping(context.Background()).Err(); err != nil {
			t.Errorf("SharedPool %v: the user's client: %v", shared, err)
		}
	}
}

// A pool that the application has drained costs no lease: the store has connections of its own.
//
// Fails with SharedPool.
func TestI6DrainedPoolCostsNoLease(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Password: canary, Addr: redistest.Shared(t).Addr(), PoolSize: 1, MaxActiveConns: 1, PoolTimeout: 10 * time.Second})
	defer client.Close()
	store := open(t, client, redislock.Options{Prefix: unique("drained")})
	awake(t, store)
	conn := client.Conn() // the application has the only connection
	defer conn.Close()
	if err := conn.Ping(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	session := newSession(t, store, quarantineTTL, 400*time.Millisecond)
	lease, err := session.Mutex("a").TryAcquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-lease.Done():
		t.Error(lease.Err())
	case <-time.After(2 * quarantineTTL):
	}
	if err := lease.Release(context.Background()); err != nil {
		t.Error(err)
	}
}
