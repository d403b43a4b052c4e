package redislock_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{}) // go-redis logs every connection that the tests break
	var err error
	if redistest.User, err = redistest.DocumentedUser("../../docs/redis.md"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	servertest.Main(m, func() error { return goleak.Find() })
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

const (
	canary = servertest.Canary // the password of all users

	// app is the user of docs/redis.md. The conformance suite and the timers connect as this user.
	// Its keys begin with the prefix shop.
	app  = "tickslot"
	shop = "shop:"
)

// quarantineTTL is short, because the tests' servers have just started. But it is long enough for a
// machine on which a call takes half a second.
const quarantineTTL = 4 * time.Second

var prefixes atomic.Int64

// unique returns a prefix that is unique among the tests and rounds of -count, which share a
// server.
func unique(prefix string) string { return fmt.Sprintf("%s%d:", prefix, prefixes.Add(1)) }

// open returns a store with its own prefix on the server, after the server's quarantine.
func open(t testing.TB, client redis.UniversalClient, opts redislock.Options) *redislock.Store {
	t.Helper()
	if opts.QuarantineTTL == 0 {
		opts.QuarantineTTL = quarantineTTL
	}
	s := redislock.New(client, opts)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// awake waits until a server that has just started grants.
func awake(t testing.TB, s *redislock.Store) {
	t.Helper()
	testkit.Eventually(t, 10*time.Second, "the server grants", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		g, err := s.TryAcquire(ctx, driver.Request{Name: "awake", Token: "awake", TTL: time.Second})
		if err == nil {
			_, err = s.Release(ctx, g)
		}
		return err
	})
}

// forget makes the server look freshly started, and makes a name look as if another run of the
// server granted it last.
func forget(t testing.TB, client *redis.Client, store *redislock.Store, state, run string) {
	t.Helper()
	now, err := client.Time(t.Context()).Result()
	if err == nil {
		err = client.HSet(t.Context(), store.Note(), "since", now.UnixMilli()).Err()
	}
	if err == nil {
		err = client.HSet(t.Context(), state, "run", run).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// ageing starts a miniredis whose keys expire in real time. In a plain miniredis only TIME follows
// real time. Before each script, the keys age by the time since the last script.
func ageing(t testing.TB) *miniredis.Miniredis {
	t.Helper()
	m := miniredis.RunT(t)
	var mu sync.Mutex
	last := time.Now()
	m.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
		if cmd == "EVALSHA" || cmd == "EVAL" { // commands within a script also come here, with the lock held
			mu.Lock()
			defer mu.Unlock()
			// Age the keys at every script: a key set by an older clock would otherwise end early.
			now := time.Now()
			m.FastForward(now.Sub(last))
			last = now
		}
		return false
	})
	return m
}

func newSession(t testing.TB, store driver.Store, ttl, timeout time.Duration) *dlock.Session {
	t.Helper()
	s, err := dlock.NewSession(store, dlock.SessionOptions{TTL: ttl, StoreTimeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}
