package redlock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redlock"
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
	servertest.Main(m, func() error {
		// If the server is gone, a pool of go-redis retries every second, and once more after it is
		// closed.
		return testkit.Poll(5*time.Second, "no goroutine is left",
			func() error { return goleak.Find() })
	})
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

const (
	canary = servertest.Canary // the password of all users

	// app is the user of docs/redis.md. Its keys begin with the prefix shop.
	app  = "tickslot"
	shop = "shop:"
)

// redlock has fewer features than redislock: see the package comment. The test connects as the user
// of docs/redis.md.
func TestConformance(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	var clients []redis.UniversalClient
	for range 3 {
		client := redis.NewClient(&redis.Options{Username: app, Password: canary, Addr: redistest.New(t).Addr()})
		t.Cleanup(func() { client.Close() })
		clients = append(clients, client)
	}
	dlocktest.Run(t, dlocktest.Harness{
		New: func(t testing.TB) dlocktest.Namespace {
			opts := redlock.Options{Prefix: shop + rand.Text() + ":"}
			return dlocktest.Namespace{Open: func() driver.Store {
				q := redlock.New(clients, opts)
				t.Cleanup(func() { q.Close() })
				return q
			}}
		},
		TTL: 500 * time.Millisecond,
	})
}

// If servers cannot be reached or refuse the login, no error contains the password.
func TestPasswordIsNotTold(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{Password: "right"})
	for _, addr := range []string{server.Addr(), "127.0.0.1:1"} {
		var clients []redis.UniversalClient
		for range 3 {
			client := redis.NewClient(&redis.Options{Addr: addr, Password: canary})
			defer client.Close()
			clients = append(clients, client)
		}
		q := redlock.New(clients, redlock.Options{})
		defer q.Close()
		_, err := q.TryAcquire(quorumContext(t, 2*time.Second), quorumRequest(0))
		if err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

// If only servers that refuse every request prevent a majority, the error is driver.ErrSetup. If
// there would be no majority even without their refusals, the store is down. If the other servers
// form a majority, the store works.
//
// Fails when a refusal counts as a server that does not answer, or the reverse.
func TestRefusedToEverybody(t *testing.T) {
	t.Parallel()
	servers, q, _ := realQuorum(t)
	lock := func(s *redistest.Server) {
		t.Helper()
		if err := s.Client().Do(t.Context(), "ACL", "SETUSER", "default", "-evalsha", "-mget").Err(); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string, setup bool) {
		t.Helper()
		for _, slots := range []int{0, 2} {
			_, err := q.TryAcquire(quorumContext(t, 2*time.Second), quorumRequest(slots))
			g := driver.Grant{Name: "job", Slots: slots, Token: "t"}
			results, extendErr := q.Extend(quorumContext(t, 2*time.Second), time.Second, g)
			extendErr = unknown(results, extendErr)
			results, releaseErr := q.Release(quorumContext(t, 2*time.Second), g)
			releaseErr = unknown(results, releaseErr)
			for op, err := range map[string]error{"acquire": err, "extend": extendErr, "release": releaseErr} {
				if err == nil || errors.Is(err, driver.ErrNotAcquired) || errors.Is(err, driver.ErrSetup) != setup ||
					setup && !strings.Contains(err.Error(), "ACL") {
					t.Errorf("%s, %s: %v, want that it is set up wrongly: %t", when, op, err, setup)
				}
			}
		}
	}
	lock(servers[0])
	g := quorumTake(t, q, quorumRequest(0))
	quorumExtend(t, q, driver.GrantOK, g)
	quorumRelease(t, q, driver.GrantOK, g)
	if err := servers[1].Kill(); err != nil {
		t.Fatal(err)
	}
	check("one refuses, one is down", true)
	if err := servers[1].RestartEmpty(); err != nil {
		t.Fatal(err)
	}
	lock(servers[1])
	check("two refuse", true)
	for _, s := range servers[1:] {
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	check("one refuses, two are down", false)
}

// unknown returns the error of a call for one lease whose outcome is unknown.
func unknown(results []driver.Result, err error) error {
	if err == nil && results[0].Outcome == driver.GrantUnknown {
		err = results[0].Err
	}
	return err
}

// Fails when Audit checks only one server or does not name the server.
func TestAuditOfSeveralServers(t *testing.T) {
	t.Parallel()
	saves := redistest.Options{Args: []string{"--save", "3600 1 300 100 60 10000"}}
	var servers []*redistest.Server
	var clients []redis.UniversalClient
	for range 3 {
		server := redistest.New(t, saves)
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: canary})
		t.Cleanup(func() { client.Close() })
		servers, clients = append(servers, server), append(clients, client)
	}
	store := redlock.New(clients, redlock.Options{})
	defer store.Close()
	check := func(what string, fails string, wants ...string) {
		t.Helper()
		warnings, err := store.Audit(t.Context())
		if (err != nil) != (fails != "") || err != nil && !strings.Contains(err.Error(), fails) {
			t.Errorf("%s: %v", what, err)
		}
		if len(warnings) != len(wants) {
			t.Fatalf("%s: %q, want %q", what, warnings, wants)
		}
		for i, want := range wants {
			if !strings.Contains(warnings[i], want) {
				t.Errorf("%s: %q does not tell of %q", what, warnings[i], want)
			}
		}
	}
	check("usual servers", "")
	if err := servers[1].Client().ConfigSet(t.Context(), "save", "").Err(); err != nil {
		t.Fatal(err)
	}
	check("one keeps nothing", "", "server 2 of 3: neither")
	store.SetHostClock(func() time.Time { return time.Now().Add(10 * time.Second) })
	check("clocks", "", "server 1 of 3: the clock", "server 2 of 3: neither", "server 2 of 3: the clock",
		"server 3 of 3: the clock")
	servers[2].Close()
	check("one is down", "server 3 of 3", "server 1 of 3: the clock", "server 2 of 3: neither",
		"server 2 of 3: the clock")
}

// New rejects clients of a Sentinel, because a failover may lose votes.
//
// Fails when such a client counts as the client of one server.
func TestSentinelIsRefused(t *testing.T) {
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"a:1"}})
	defer client.Close()
	if err := redlock.New([]redis.UniversalClient{client, client, client}, redlock.Options{}).Check(); err == nil ||
		!strings.Contains(err.Error(), "one of Sentinel") {
		t.Error(err)
	}
}
