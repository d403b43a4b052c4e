package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
)

// cycle calls each operation of a store once.
func cycle(t *testing.T, store *redislock.Store) {
	t.Helper()
	awake(t, store)
	ctx := context.Background()
	for _, slots := range []int{0, 3} {
		req := driver.Request{Name: fmt.Sprint("timer:cycle", slots), Slots: slots, Holder: dlock.NewHolder(),
			Token: "a", TTL: quarantineTTL, Tick: &driver.Tick{At: time.Now(), Max: 1}}
		g, err := store.TryAcquire(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		req.Token = "b"
		if _, err := store.TryAcquire(ctx, req); !errors.Is(err, driver.ErrNotAcquired) {
			t.Error(err)
		}
		if r, err := store.Extend(ctx, quarantineTTL, g); err != nil || r[0].Outcome != driver.GrantOK {
			t.Error(r, err)
		}
		if list, err := store.List(ctx, req.Name, slots); err != nil || len(list) != 1 {
			t.Error(list, err)
		}
		if err := store.Update(ctx, req.Name,
			driver.Update{Limit: &driver.LimitOverride{Cause: driver.Cause{By: "ann"},
				Slots: 2}}); err != nil {
			t.Error(err)
		}
		if err := store.Revoke(ctx, req.Name, g.Slot, g.Fence, driver.Cause{By: "ann"}); (err == nil) != (slots > 0) {
			t.Error(err)
		}
		if list, err := store.Inspect(ctx, req.Name); err != nil || list[0].Limit == nil {
			t.Error(list, err)
		}
		g.Slot = driver.AnySlot
		if r, err := store.Release(ctx, g); err != nil || r[0].Outcome != driver.GrantOK {
			t.Error(r, err)
		}
	}
	if _, err := store.Audit(ctx); err != nil {
		t.Error(err)
	}
}

// The user that docs/redis.md describes has no permission that the store does not need. The
// conformance suite and the timers connect as this user, which shows that no permission is missing.
//
// Fails when the documentation grants an unnecessary permission.
func TestLeastPrivilegeAsDocumented(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: app, Password: canary})
	defer client.Close()
	for _, keys := range []redislock.KeyForm{redislock.KeysPlain, redislock.KeysTagged} {
		cycle(t, open(t, client, redislock.Options{Prefix: fmt.Sprintf("shop:%d:", keys), Keys: keys}))
	}
	for _, forbidden := range [][]any{{"FLUSHALL"}, {"KEYS", "*"}, {"GET", "other"}, {"SET", "shopping", "1"},
		{"CONFIG", "GET", "*"}, {"SCRIPT", "FLUSH"}, {"SHUTDOWN"}} {
		if err := client.Do(context.Background(), forbidden...).Err(); err == nil ||
			!strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("%v: %v", forbidden, err)
		}
	}
	user, err := redistest.DocumentedUser("../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	if err := all(server, client); err != nil {
		t.Errorf("with every right: %v", err)
	}
	for _, right := range user {
		command, ok := strings.CutPrefix(right, "+")
		if !ok || command == "cluster|slots" || command == "asking" { // needed only on a Cluster
			continue
		}
		set := func(rule string) {
			t.Helper()
			if err := server.Client().Do(context.Background(), "ACL", "SETUSER", app, rule).Err(); err != nil {
				t.Fatal(err)
			}
		}
		set("-" + command)
		if err := server.Client().ScriptFlush(context.Background()).Err(); err != nil { // so that EVAL is needed
			t.Fatal(err)
		}
		err := all(server, client)
		if err == nil || !strings.Contains(err.Error(), "ACL") && !strings.Contains(err.Error(), "grant +") ||
			strings.Contains(err.Error(), canary) {
			t.Errorf("without +%s: %v", command, err)
		}
		set("+" + command)
	}
}

// A client with a DB and a name works with the additional permissions that docs/redis.md lists.
//
// Fails when docs/redis.md does not list them.
func TestRightsForADatabaseAndAName(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	needs := regexp.MustCompile("(?m)^- a client with a `DB` other than 0: `(.*?)`\n" +
		"- a client with a `ClientName`: `(.*?)`$")
	said := needs.FindStringSubmatch(string(doc))
	if said == nil {
		t.Fatal("docs/redis.md does not say which rights a DB and a ClientName need")
	}
	server := redistest.New(t)
	for i, opts := range []redis.Options{{DB: 1}, {ClientName: "scheduler"}} {
		opts.Addr, opts.Username, opts.Password = server.Addr(), app, canary
		client := redis.NewClient(&opts)
		defer client.Close()
		if err := all(server, client); !errors.Is(err, driver.ErrSetup) {
			t.Errorf("without %s: %v", said[1+i], err)
		}
		if err := server.Client().Do(t.Context(), "ACL", "SETUSER", app, said[1+i]).Err(); err != nil {
			t.Fatal(err)
		}
		cycle(t, open(t, client, redislock.Options{Prefix: shop + unique("rights")}))
	}
}

// all calls every operation of a store with new names and returns the first error.
func all(server *redistest.Server, client redis.UniversalClient) error {
	ctx := context.Background()
	prefix := shop + unique("all")
	store := redislock.New(client, redislock.Options{Prefix: prefix, QuarantineTTL: quarantineTTL})
	defer store.Close()
	for _, slots := range []int{0, 3} {
		req := driver.Request{Name: "a", Slots: slots, Token: "a", TTL: quarantineTTL,
			Tick: &driver.Tick{At: time.Now(), Max: 2}}
		g, err := store.TryAcquire(ctx, req)
		if err != nil {
			return err
		}
		if _, err := store.Extend(ctx, quarantineTTL, g); err != nil {
			return err
		}
		if _, err := store.List(ctx, "a", slots); err != nil {
			return err
		}
		if slots > 0 {
			ann := driver.Cause{By: "ann"}
			if err := store.Update(ctx, "a", driver.Update{Limit: &driver.LimitOverride{Cause: ann,
				Slots: slots}}); err != nil {
				return err
			}
			if _, err := store.Inspect(ctx, "a"); err != nil {
				return err
			}
			if err := store.Revoke(ctx, "a", g.Slot, g.Fence, ann); err != nil {
				return err
			}
		}
		// The index is only a hint: without it, every slot is read. It may also lack a grant.
		if err := server.Client().Del(ctx, prefix+"a:slot:index", prefix+"a:slot:tokens").Err(); err != nil {
			return err
		}
		for token := range 4 {
			req.Tick, req.Token = nil, fmt.Sprint("b", token)
			if _, err := store.TryAcquire(ctx, req); err != nil && !errors.Is(err, driver.ErrNotAcquired) {
				return err
			}
		}
		if _, err := store.Release(ctx, g); err != nil {
			return err
		}
	}
	for token := range 10 { // enough slots to be counted
		_, err := store.TryAcquire(ctx, driver.Request{Name: "nine", Slots: 9, Token: fmt.Sprint("t", token),
			TTL: quarantineTTL})
		if err != nil && !errors.Is(err, driver.ErrNotAcquired) {
			return err
		}
	}
	_, err := store.Audit(ctx)
	return err
}

// The store uses the client's TLS settings and password.
func TestTLSAndPassword(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{TLS: true, Password: "secret"})
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: "secret", TLSConfig: server.TLSConfig()})
	defer client.Close()
	cycle(t, open(t, client, redislock.Options{}))
}

// The error for a client of one Cluster node says which client to pass instead.
func TestNodeOfAClusterIsRefused(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	cluster := redistest.NewCluster(t, 3)
	client := redis.NewClient(&redis.Options{Password: canary, Addr: cluster.Addrs()[0]})
	defer client.Close()
	for _, keys := range []redislock.KeyForm{redislock.KeysPlain, redislock.KeysTagged} {
		store := open(t, client, redislock.Options{Keys: keys})
		var refused int
		for i := range 20 { // some names are on this node
			_, err := store.TryAcquire(context.Background(), driver.Request{Name: fmt.Sprint("n", i), Slots: 3,
				Token: "t", TTL: quarantineTTL})
			if err != nil && strings.Contains(err.Error(), "pass a *redis.ClusterClient") {
				refused++
			}
		}
		if refused < 3 || keys == redislock.KeysPlain && refused < 20 {
			t.Errorf("Keys %d: %d of 20 names were refused", keys, refused)
		}
	}
}

// If a server is unreachable or refuses the login, no error contains a password.
func TestPasswordIsNotTold(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{Password: "right"})
	for _, addr := range []string{server.Addr(), "127.0.0.1:1"} {
		client := redis.NewClient(&redis.Options{Addr: addr, Password: canary})
		defer client.Close()
		store := open(t, client, redislock.Options{})
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_, err := store.TryAcquire(ctx, driver.Request{Name: "a", Token: "t", TTL: quarantineTTL})
		_, extendErr := store.Extend(ctx, quarantineTTL, driver.Grant{Name: "a", Token: "t"})
		_, releaseErr := store.Release(ctx, driver.Grant{Name: "a", Token: "t"})
		want := "connection refused"
		if addr == server.Addr() {
			want = "check user, password and ACL"
		}
		for _, err := range []error{err, extendErr, releaseErr} {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), canary) {
				t.Errorf("err %v, want %q in it", err, want)
			}
		}
		if err == nil || errors.Is(err, driver.ErrNotAcquired) || strings.Contains(err.Error(), canary) {
			t.Errorf("err %v", err)
		}
		if text := fmt.Sprintf("%v %s", store, store); strings.Contains(text, canary) {
			t.Error(text)
		}
	}
}

// Close closes the store's own connections and leaves the caller's open.
func TestCloseLeavesTheUsersClient(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Password: canary, Addr: redistest.Shared(t).Addr()})
	defer client.Close()
	for _, shared := range []bool{false, true} {
		store := redislock.New(client, redislock.Options{Prefix: unique("close"), SharedPool: shared,
			QuarantineTTL: quarantineTTL})
		cycle(t, store)
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		if err := client.Ping(context.Background()).Err(); err != nil {
			t.Errorf("SharedPool %v: the user's client: %v", shared, err)
		}
	}
}

// If the application has exhausted its pool, no lease is lost, because the store has its own
// connections.
//
// Fails with SharedPool.
func TestI6DrainedPoolCostsNoLease(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Password: canary, Addr: redistest.Shared(t).Addr(), PoolSize: 1,
		MaxActiveConns: 1, PoolTimeout: 10 * time.Second})
	defer client.Close()
	store := open(t, client, redislock.Options{Prefix: unique("drained")})
	awake(t, store)
	conn := client.Conn() // the application has taken the only connection
	defer conn.Close()
	if err := conn.Ping(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	session := newSession(t, store, quarantineTTL, quarantineTTL/3)
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
