package redislock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
)

// A proxy counts round trips on the wire. These calls take one: an acquire of a free slot, a
// refused acquire, a release, an update, the overrides of 40 names, a page of all leases, and a
// revocation. A heartbeat of 1,000 leases takes two. This holds for any number of slots and any
// overrides.
//
// Fails when acquire asks slot by slot, when each does not use one pipeline, when Inspect asks name
// by name.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	proxy := redistest.NewCountingProxyFor(t, server.Addr())
	client := redis.NewClient(&redis.Options{Password: canary, Addr: proxy.Addr()})
	defer client.Close()
	direct := redis.NewClient(&redis.Options{Password: canary, Addr: server.Addr()})
	defer direct.Close()
	prefix := unique("wire")
	store := open(t, client, redislock.Options{Prefix: prefix})
	awake(t, store)
	ctx := context.Background()
	count := func(what string, want int64, do func()) {
		t.Helper()
		proxy.Reset()
		do()
		if got := proxy.RoundTrips(); got != want {
			t.Errorf("%s: %d round trips, want %d; commands %v", what, got, want, proxy.Commands())
		}
	}
	// Filling 10,000 slots takes a while. So this lease lasts longer than a server that has just
	// started would grant.
	patient := open(t, client, redislock.Options{Prefix: prefix, QuarantineTTL: time.Minute})
	// The first use of each script also sends its source, once per run of a server.
	warm := newSession(t, store, quarantineTTL, quarantineTTL/3)
	for range 2 {
		if l, err := warm.Semaphore("warm", 1).TryAcquire(ctx); err != nil {
			t.Fatal(err)
		} else if _, err := store.Extend(ctx, quarantineTTL, driver.Grant{Name: "warm", Slots: 1,
			Token: "none"}); err != nil {
			t.Fatal(err)
		} else if err := l.Release(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Update(ctx, "warm", driver.Update{Limit: &driver.LimitOverride{Cause: ann,
		Slots: 1}}); err != nil {
		t.Fatal(err)
	} else if _, err := store.Inspect(ctx, "warm"); err != nil {
		t.Fatal(err)
	} else if _, err := store.Enumerate(ctx, "", 1); err != nil {
		t.Fatal(err)
	} else if err := store.Revoke(ctx, "warm", 0, 1, ann); !errors.Is(err, driver.ErrNotHeld) {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, 5, 500, 10_000} {
		name := fmt.Sprintf("n%d", n)
		request := func(token string) driver.Request {
			return driver.Request{Name: name, Slots: n, Token: token, TTL: quarantineTTL,
				Tick: &driver.Tick{At: time.Now(), Max: 20_000}}
		}
		var g driver.Grant
		var err error
		count(name+" free", 1, func() { g, err = store.TryAcquire(ctx, request("a")) })
		if err != nil {
			t.Fatal(err)
		}
		count(name+" extend", 1, func() { _, err = patient.Extend(ctx, time.Minute, g) })
		fill := direct.Pipeline() // held slots, created without an acquire for each
		for i := range n {
			fill.SetNX(ctx, fmt.Sprintf("%s%s:slot:%d", prefix, name, i), `{"token":"other"}`, time.Minute)
			fill.ZAddNX(ctx, prefix+name+":slot:index", redis.Z{Score: float64(time.Now().Add(time.Minute).UnixMilli()),
				Member: i})
		}
		if _, err := fill.Exec(ctx); n > 0 && err != nil {
			t.Fatal(err)
		}
		count(name+" busy", 1, func() { _, err = store.TryAcquire(ctx, request("b")) })
		if no, ok := errors.AsType[*driver.NotAcquiredError](err); !ok || no.Reason != driver.ReasonFull {
			t.Errorf("%s: %v", name, err)
		}
		if n > 0 {
			change := driver.Update{Limit: &driver.LimitOverride{Cause: ann, Slots: (n + 1) / 2}, Resume: &ann,
				Trigger: &ann}
			count(name+" update", 1, func() { err = store.Update(ctx, name, change) })
			if err != nil {
				t.Error(err)
			}
			count(name+" busy within a limit", 1, func() { _, err = store.TryAcquire(ctx, request("c")) })
			if no, ok := errors.AsType[*driver.NotAcquiredError](err); !ok || no.Reason != driver.ReasonFull {
				t.Errorf("%s: %v", name, err)
			}
			count(name+" revoke", 1, func() { err = store.Revoke(ctx, name, g.Slot, g.Fence, ann) })
			if err != nil {
				t.Error(err)
			}
			count(name+" extend what is revoked", 1, func() { _, err = patient.Extend(ctx, time.Minute, g) })
			names := slices.Repeat([]string{name, name + "x"}, 20)
			count(name+" inspect", 1, func() { _, err = store.Inspect(ctx, names...) })
			if err != nil {
				t.Error(err)
			}
		}
		count(name+" enumerate", 1, func() { _, err = store.Enumerate(ctx, "", driver.MaxPage) })
		if err != nil {
			t.Error(err)
		}
		count(name+" release", 1, func() { _, err = store.Release(ctx, g) })
		if err != nil {
			t.Fatal(err)
		}
	}
	// The session sends a thousand leases of many names in batches of 500.
	session := newSession(t, store, quarantineTTL, quarantineTTL/3)
	for i := range 1000 {
		if _, err := session.Semaphore(fmt.Sprintf("beat%d", i%40),
			25).Acquire(ctx); err != nil { // even if a busy machine makes the store slow
			t.Fatal(err)
		}
	}
	proxy.Reset()
	testkit.Eventually(t, 5*time.Second, "a heartbeat", func() bool { return proxy.RoundTrips() >= 2 })
	before := proxy.Commands()
	if got := proxy.RoundTrips(); got != 2 || before["EVALSHA"] > 120 {
		t.Errorf("a heartbeat of 1,000 leases: %d round trips, %v; want 2", got, before)
	}
}

// The driver never repeats a call. After a lost reply, the outcome is unknown, so the call returns
// an error and the session decides. (It repeats an acquire once, with the same token.) This applies
// to a client of one server. A Cluster client repeats calls up to MaxRedirects times, whatever
// MaxRetries is.
//
// Fails when MaxRetries of the pool is positive, or is 0, which selects the driver's default of
// three.
func TestDriverRepeatsNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	proxy := redistest.NewCountingProxyFor(t, server.Addr())
	client := redis.NewClient(&redis.Options{Password: canary, Addr: proxy.Addr()})
	defer client.Close()
	store := open(t, client, redislock.Options{Prefix: unique("again")})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	held := driver.Grant{Name: "a", Slots: 1, Slot: 0, Token: "mine"}
	for what, call := range map[string]func() error{
		"an acquire": func() error {
			_, err := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: 1, Token: "mine", TTL: quarantineTTL})
			return err
		},
		"an extend": func() error {
			results, err := store.Extend(ctx, quarantineTTL, held)
			return unknown(results, err)
		},
		"a release": func() error {
			results, err := store.Release(ctx, held)
			return unknown(results, err)
		},
	} {
		awake(t, store)
		if err := call(); err != nil { // the first use of a script also sends its source
			t.Fatal(err)
		}
		proxy.Reset()
		proxy.LoseReplies(true)
		answer := make(chan error, 1)
		go func() { answer <- call() }()
		testkit.Eventually(t, testkit.Patience, what+" is sent", func() bool { return proxy.RoundTrips() > 0 })
		proxy.LoseReplies(false) // a second call would be answered
		proxy.Proxy.Reset()
		err := <-answer
		if n := proxy.Commands()["EVALSHA"]; n != 1 || err == nil {
			t.Errorf("the reply of %s was lost, and the server saw it %d times (%v); want once, and an error", what, n,
				err)
		}
	}
}

// unknown returns the error of a call for one grant, which the call or the result reports.
func unknown(results []driver.Result, err error) error {
	if err == nil && results[0].Outcome == driver.GrantUnknown {
		err = cmp.Or(results[0].Err, errors.New("unknown"))
	}
	return err
}
