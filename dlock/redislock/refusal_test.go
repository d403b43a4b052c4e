package redislock_test

import (
	"context"
	"errors"
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

// every calls each operation of a store and returns the errors by operation. The lease may or may
// not exist.
func every(ctx context.Context, store *redislock.Store) map[string]error {
	errs := map[string]error{}
	for kind, slots := range map[string]int{"mutex": 0, "semaphore": 3} {
		g := driver.Grant{Name: "a", Slots: slots, Token: "t"}
		req := driver.Request{Name: "a", Slots: slots, Token: "t", TTL: quarantineTTL,
			Tick: &driver.Tick{At: time.Now(), Max: 1}}
		_, errs["acquire "+kind] = store.TryAcquire(ctx, req)
		_, errs["repeat "+kind] = store.TryAcquire(ctx, req) // as after a lost reply
		results, err := store.Extend(ctx, quarantineTTL, g)
		errs["extend "+kind] = unknown(results, err)
		results, err = store.Release(ctx, g)
		errs["release "+kind] = unknown(results, err)
		_, errs["list "+kind] = store.List(ctx, "a", slots)
	}
	if _, err := store.Enumerate(ctx, "", 10); !errors.Is(err, errors.ErrUnsupported) {
		errs["enumerate"] = err
	}
	errs["update"] = store.Update(ctx, "a", driver.Update{Trigger: &ann})
	_, errs["inspect"] = store.Inspect(ctx, "a")
	if err := store.Revoke(ctx, "a", 0, 1, ann); !errors.Is(err, driver.ErrNotHeld) {
		errs["revoke"] = err
	}
	return errs
}

// trusted waits until the quarantine of a server that has just started is over. Acquires that the
// quarantine refuses do not reach all commands.
func trusted(t testing.TB, store *redislock.Store) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "the quarantine is over", func() bool {
		_, err := store.TryAcquire(t.Context(), driver.Request{Name: "trusted", Slots: 1, Token: "t",
			TTL: time.Millisecond})
		return !isReason(err, driver.ReasonQuarantine)
	})
}

// Some refusals apply to every client until they are fixed: a missing command, a wrong password, a
// missing permission, a database that does not exist. They are errors that say how to fix them.
//
// Fails when a refusal counts as a fault of one name, or as a store that does not answer.
func TestRefusedToEverybody(t *testing.T) {
	t.Parallel()
	const all = "" // all operations
	for what, c := range map[string]struct {
		args  []string // arguments of the server
		acl   []string // permissions of the user
		opts  redis.Options
		which string // operations that need it
		says  string
	}{
		"no INFO": {args: []string{"--rename-command", "INFO", ""}, which: "acquire",
			says: "scripts may not call INFO"},
		"no TIME": {args: []string{"--rename-command", "TIME", ""}, which: "acquire|extend|list|enumerate|update",
			says: "TIME"},
		"no scripts": {args: []string{"--rename-command", "EVALSHA", ""}, which: all, says: "lacks a command"},
		"no HMGET": {args: []string{"--rename-command", "HMGET", ""}, which: "acquire|extend|update",
			says: "lacks a command"},
		"no SET":          {args: []string{"--rename-command", "SET", ""}, which: "acquire", says: "lacks a command"},
		"may not INFO":    {acl: []string{"-info"}, which: "acquire", says: "+info"},
		"may not TIME":    {acl: []string{"-time"}, which: "acquire|extend|list|enumerate|update", says: "ACL"},
		"may not EVALSHA": {acl: []string{"-evalsha"}, which: all, says: "ACL"},
		// The first acquire of a semaphore's slot reads no lease.
		"may not GET":     {acl: []string{"-get"}, which: "acquire mutex|repeat|extend", says: "ACL"},
		"may not HMGET":   {acl: []string{"-hmget"}, which: "acquire|extend|update", says: "ACL"},
		"may not SET":     {acl: []string{"-set"}, which: "acquire", says: "ACL"},
		"other keys only": {acl: []string{"resetkeys", "~other:*"}, which: all, says: "ACL"},
		"wrong password": {opts: redis.Options{Username: app, Password: "wrong"}, which: all,
			says: "check user, password"},
		"no password":      {opts: redis.Options{Username: " "}, which: all, says: "check user, password"},
		"no such database": {opts: redis.Options{Password: canary, DB: 99}, which: all, says: "change the client's DB"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := redistest.New(t, redistest.Options{Args: c.args})
			if c.acl != nil {
				rules := []any{"ACL", "SETUSER", app}
				for _, rule := range c.acl {
					rules = append(rules, rule)
				}
				if err := server.Client().Do(t.Context(), rules...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			if c.opts.Username == "" && c.opts.Password == "" {
				c.opts.Username, c.opts.Password = app, canary
			}
			if c.opts.Username == " " {
				c.opts.Username = ""
			}
			c.opts.Addr = server.Addr()
			client := redis.NewClient(&c.opts)
			defer client.Close()
			for form, keys := range forms {
				store := open(t, client, redislock.Options{Prefix: shop + form + ":", Keys: keys})
				trusted(t, store)
				for op, err := range every(t.Context(), store) {
					switch {
					case err == nil && (c.which == all || regexp.MustCompile("^("+c.which+")( |$)").MatchString(op)):
						t.Errorf("%s, %s: no error", form, op)
					case err != nil && (!errors.Is(err, driver.ErrSetup) || errors.Is(err, driver.ErrFault)):
						t.Errorf("%s, %s: %v, want that the store is not set up right", form, op, err)
					case err != nil && strings.HasPrefix(op, "acquire") && !strings.Contains(err.Error(), c.says):
						t.Errorf("%s, %s: %v, want %q in it", form, op, err, c.says)
					case err != nil && (strings.Contains(err.Error(), "Embedded") ||
						strings.Contains(err.Error(), canary)):
						t.Errorf("%s, %s: %v", form, op, err)
					}
				}
			}
		})
	}
}

// A server in protected mode answers a connection once and closes it. This is a setup error, too.
//
// Fails when only the result of the second command counts: EOF, as if the server were down.
func TestRefusedInProtectedMode(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: redistest.NewProtected(t)})
	defer client.Close()
	store := open(t, client, redislock.Options{})
	for op, err := range every(t.Context(), store) {
		if !errors.Is(err, driver.ErrSetup) || errors.Is(err, driver.ErrFault) ||
			!strings.Contains(err.Error(), "protected mode") {
			t.Errorf("%s: %v, want that the store is not set up right", op, err)
		}
	}
}

// A temporary refusal is a failure of the store, because there is nothing to repair.
//
// Fails when every error reply counts as a setup error.
func TestWhatPassesByItself(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: canary})
	defer client.Close()
	store := open(t, client, redislock.Options{})
	awake(t, store)
	owner := server.Client()
	config := func(name, value string) {
		t.Helper()
		if err := owner.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	check := func(says string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := store.TryAcquire(ctx, driver.Request{Name: fmt.Sprint(says), Slots: 2, Token: "t",
			TTL: quarantineTTL})
		if err == nil || errors.Is(err, driver.ErrSetup) || errors.Is(err, driver.ErrFault) ||
			errors.Is(err, driver.ErrNotAcquired) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want a failure of the store, with %s", err, says)
		}
	}
	config("maxmemory", "1")
	check("OOM")
	config("maxmemory", "0")
	config("min-replicas-to-write", "1")
	check("NOREPLICAS")
	config("min-replicas-to-write", "0")
	config("lua-time-limit", "1")
	busy := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: canary, ReadTimeout: -1})
	defer busy.Close()
	done := make(chan error, 1)
	go func() { done <- busy.Eval(context.Background(), "while true do end", nil).Err() }()
	testkit.Eventually(t, 10*time.Second, "the server is busy", func() bool {
		return redis.HasErrorPrefix(owner.Ping(t.Context()).Err(), "BUSY")
	})
	check("BUSY")
	if err := owner.Do(t.Context(), "SCRIPT", "KILL").Err(); err != nil {
		t.Fatal(err)
	}
	<-done
	if err := owner.ReplicaOf(t.Context(), "127.0.0.1", fmt.Sprint(redistest.New(t).Port())).Err(); err != nil {
		t.Fatal(err)
	}
	check("READONLY")
	config("replica-serve-stale-data", "no")
	if err := owner.ReplicaOf(t.Context(), "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	check("MASTERDOWN")
}

// A Cluster client never works on a server without Cluster.
//
// Fails when this counts as a store that does not answer: every host would then run every tick.
func TestClusterClientOnAServerThatIsNone(t *testing.T) {
	t.Parallel()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{redistest.Shared(t).Addr()},
		Password: canary})
	defer client.Close()
	store := open(t, client, redislock.Options{})
	for op, err := range every(t.Context(), store) {
		if !errors.Is(err, driver.ErrSetup) || !strings.Contains(err.Error(), "pass a *redis.Client") {
			t.Errorf("%s: %v, want that the store is not set up right", op, err)
		}
	}
}
