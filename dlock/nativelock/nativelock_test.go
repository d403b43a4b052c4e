package nativelock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/nativelock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
	"github.com/tickslot/tickslot/proof/torture/crowd"
)

// conform runs the suite without optional features on the given number of hosts, which share the
// calls.
func conform(t *testing.T, size int, hosts func(testing.TB) func() driver.Store) {
	// This process unlocks expired leases, and it may be busy at that moment.
	dlocktest.Run(t, dlocktest.Harness{TTL: suiteTTL, Slack: suiteTTL / 2,
		New: func(t testing.TB) dlocktest.Namespace {
			open := hosts(t)
			var c crew
			for range size {
				c = append(c, open())
			}
			return dlocktest.Namespace{Open: func() driver.Store { return c }}
		}})
}

func TestConformance(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	onEach(t, func(t *testing.T, s subject) { conform(t, 3, s.hosts) })
}

func TestConformanceOnOneHost(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	testkit.Long(t) // three hosts must ask the server where one host can refuse by itself
	onEach(t, func(t *testing.T, s subject) { conform(t, 1, s.hosts) })
}

// Fails when a session tries its own locks again.
func TestContention(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	onEach(t, func(t *testing.T, s subject) {
		for _, c := range []struct{ slots, workers, attempts int }{{1, 16, 100}, {5, 16, 100}, {5, 5, 140},
			{16, 16, 140}, {50, 16, 140}} {
			crowd.Contend(t, s.hosts(t), c.slots, c.workers, c.attempts*testkit.Rounds(t, 1, 4))
		}
	})
}

func request(name string, slots int, ttl time.Duration) driver.Request {
	return driver.Request{Name: name, Slots: slots, Token: strings.TrimSuffix(sqltest.Unique("token"), ":"), TTL: ttl}
}

func mustGet(t testing.TB, store driver.Store, req driver.Request) driver.Grant {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	g, err := store.TryAcquire(ctx, req)
	if err != nil {
		t.Fatalf("%s: %v", req.Name, err)
	}
	return g
}

func mustBeFull(t testing.TB, store driver.Store, req driver.Request) {
	t.Helper()
	if g, err := store.TryAcquire(t.Context(), req); !errors.Is(err, driver.ErrNotAcquired) {
		t.Fatalf("%s: slot %d, %v: want it full", req.Name, g.Slot, err)
	}
}

func outcomes(t testing.TB, results []driver.Result, err error, want driver.GrantOutcome) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if r.Outcome != want {
			t.Errorf("grant %d is %v, want %v", i, r.Outcome, want)
		}
	}
}

// An acquire locks only the slot that it grants, and a refusal locks nothing. Each host uses one
// connection.
//
// Fails when postgres_try.sql takes the min() of all locks that it could take instead of the first,
// when CASE has to evaluate every condition in mysql.try, and when slots that this process holds
// are tried again.
func TestOneLockPerGrant(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s subject) {
		a, b := s.open(t, nativelock.Options{}), s.open(t, nativelock.Options{})
		const n = 50
		var all []string
		for slot := range n {
			all = append(all, s.lock("", "slot", slot, "x"))
		}
		var want []string
		is := func(when string) {
			t.Helper()
			slices.Sort(want)
			held := s.held(t, all...)
			slices.Sort(held)
			if !slices.Equal(held, want) {
				t.Fatalf("%s: %d locks are held, want %d: %v, want %v", when, len(held), len(want), held, want)
			}
		}
		is("at first")
		var grants []driver.Grant
		for i := range n {
			host := []*nativelock.Store{a, b}[i%2]
			g := mustGet(t, host, request("x", n, time.Minute))
			want = append(want, s.lock("", "slot", g.Slot, "x"))
			grants = append(grants, g)
			if i < 5 || i > n-3 {
				is(fmt.Sprintf("after %d grants", i+1))
			}
		}
		for _, host := range []*nativelock.Store{a, b} {
			mustBeFull(t, host, request("x", n, time.Minute))
			is("after a refusal")
		}
		results, err := b.Release(t.Context(), grants[1])
		outcomes(t, results, err, driver.GrantOK)
		want = slices.DeleteFunc(want, func(key string) bool { return key == s.lock("", "slot", grants[1].Slot, "x") })
		is("after a release")
		mustGet(t, a, request("x", 0, time.Minute))
		if held := s.held(t, s.lock("", "mutex", 0, "x")); !slices.Contains(held, s.lock("", "mutex", 0, "x")) {
			t.Errorf("the mutex is not held under its key: %v", held)
		}
		// This includes the second connections, which went back to their pools.
		if ids := strings.Fields(s.exec(t, s.sessions)); len(ids) > 4 {
			t.Errorf("two hosts have %d connections", len(ids))
		}
	})
}

// Names that a collation treats as equal are different locks, and prefixes separate hosts.
//
// Fails when the name of a lock in MySQL is the name itself, and when the prefix is not hashed.
func TestNames(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s subject) {
		open := func(prefix string) *nativelock.Store { return s.open(t, nativelock.Options{Prefix: prefix}) }
		a, b, c := open("p:"), open("p:"), open("q:")
		for _, name := range []string{"orders", "Orders", "ORDERS", "orders ", " orders", "órders", "ｏrders",
			strings.Repeat("o", driver.MaxNameLen)} {
			mustGet(t, a, request(name, 0, time.Minute))
			mustBeFull(t, b, request(name, 0, time.Minute))
			mustGet(t, c, request(name, 0, time.Minute))
			mustGet(t, b, request(name, 1, time.Minute))
		}
	})
}

// A lease that is not extended is unlocked when it ends, without another call. The connection
// survives.
//
// Fails when schedule sets no timer, and when the server ends the session together with the lease.
func TestLeftToExpire(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s subject) {
		a, b := s.open(t, nativelock.Options{}), s.open(t, nativelock.Options{})
		mustGet(t, b, request("connected", 0, time.Minute))
		for _, name := range []string{"x", "y"} {
			sent := time.Now()
			mustGet(t, a, request(name, 0, 500*time.Millisecond))
			if g, err := b.TryAcquire(t.Context(), request(name, 0, time.Minute)); err == nil {
				if took := time.Since(sent); took < 500*time.Millisecond {
					t.Errorf("%q was granted after %v", name, took)
				}
				results, err := b.Release(t.Context(), g) // this machine paused
				outcomes(t, results, err, driver.GrantOK)
			}
		}
		before := s.exec(t, s.sessions)
		for _, name := range []string{"x", "y"} {
			testkit.Eventually(t, 3*time.Second, "the lock to be freed", func() bool {
				_, err := b.TryAcquire(t.Context(), request(name, 0, time.Minute))
				return err == nil
			})
		}
		testkit.SkipShort(t)
		time.Sleep(2500 * time.Millisecond) // longer than the server waits
		after := s.exec(t, s.sessions)
		for _, id := range strings.Fields(before) {
			if !slices.Contains(strings.Fields(after), id) {
				t.Errorf("session %s has ended: %q, before %q", id, after, before)
			}
		}
	})
}

// Close frees everything before it returns and leaves the pool open. Later calls return errors.
//
// Fails when Close leaves the locks to the end of the connection (sometimes), and when it returns
// the connection to the pool unchanged.
func TestClose(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s subject) {
		db := s.pool(t)
		a, b := s.make(db, nativelock.Options{}), s.open(t, nativelock.Options{})
		var grants []driver.Grant
		for range 5 {
			grants = append(grants, mustGet(t, a, request("x", 5, time.Minute)))
		}
		mustBeFull(t, b, request("x", 5, time.Minute))
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			mustGet(t, b, request("x", 5, time.Minute))
		}
		if _, err := a.TryAcquire(t.Context(), request("y", 0, time.Minute)); err == nil ||
			errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("acquire after Close: %v", err)
		}
		if _, err := a.Extend(t.Context(), time.Minute, grants...); err == nil {
			t.Error("extend after Close: no error")
		}
		if err := errors.Join(a.Close(), db.PingContext(t.Context())); err != nil {
			t.Error(err)
		}
		if n := db.Stats().InUse; n != 0 {
			t.Errorf("%d connections are still taken out of the pool", n)
		}
		never := s.make(s.pool(t), nativelock.Options{})
		if err := never.Close(); err != nil {
			t.Errorf("Close of a store that was not used: %v", err)
		}
	})
}

// A request with a tick is refused with an error that says how to fix it. Faults of the options are
// found before anything starts.
func TestFaults(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s subject) {
		n := s.open(t, nativelock.Options{})
		req := request("x", 0, time.Minute)
		req.Tick = &driver.Tick{At: time.Now(), Max: 1}
		_, err := n.TryAcquire(t.Context(), req)
		if !errors.Is(err, driver.ErrFault) || errors.Is(err, driver.ErrNotAcquired) ||
			!strings.Contains(err.Error(), "MaxPerTick: timer.NoLimit") {
			t.Errorf("a tick: %v", err)
		}
		for what, bad := range map[string]*nativelock.Store{
			"no *sql.DB":       s.make(nil, nativelock.Options{}),
			"Prefix":           s.make(s.pool(t), nativelock.Options{Prefix: "a\nb"}),
			"at most 256":      s.make(s.pool(t), nativelock.Options{Prefix: strings.Repeat("p", 300)}),
			"an empty *Store":  {},
			"empty *Store: ma": nil,
		} {
			if err := bad.Check(); err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("%s: Check says %v", what, err)
			}
			if _, err := bad.TryAcquire(t.Context(), request("x", 0, time.Minute)); err == nil {
				t.Errorf("%s: granted", what)
			}
			if err := bad.Close(); err != nil {
				t.Errorf("%s: Close: %v", what, err)
			}
		}
		// A token belongs to one attempt and cannot be used for another request.
		req = request("s", 3, time.Minute)
		mustGet(t, n, request("s", 3, time.Minute))
		if g := mustGet(t, n, req); g.Slot != 1 {
			t.Fatalf("slot %d", g.Slot)
		}
		req.Slots = 1
		if _, err := n.TryAcquire(t.Context(), req); !errors.Is(err, driver.ErrFault) {
			t.Errorf("the same token with fewer slots: %v", err)
		}
	})
}

// If a pool may open only one connection, the store refuses it immediately, with advice. If all
// connections of a pool are in use, the store reports this before the caller's deadline.
//
// Fails when checkPoolSize checks nothing, and when take waits until the deadline.
func TestSmallPools(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s subject) {
		db := s.pool(t)
		db.SetMaxOpenConns(1)
		n := s.make(db, nativelock.Options{})
		t.Cleanup(func() { n.Close() })
		refused := func(setup bool, want string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err := n.TryAcquire(ctx, request("x", 0, time.Minute))
			if err == nil || errors.Is(err, driver.ErrSetup) != setup || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: must tell %q", err, want)
			}
		}
		refused(true, "SetMaxOpenConns(2)")
		if err := n.Check(); err == nil || !strings.Contains(err.Error(), "SetMaxOpenConns(2)") {
			t.Errorf("Check: %v", err)
		}
		db.SetMaxOpenConns(2)
		one, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		refused(false, "all 2 connections of the pool are in use")
		two, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		refused(false, "all 2 connections of the pool are in use")
		one.Close()
		two.Close()
		mustGet(t, n, request("x", 0, time.Minute))
	})
}
