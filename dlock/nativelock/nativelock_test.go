package nativelock_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/nativelock"
	"github.com/tickslot/tickslot/internal/sqltest"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/internal/torture/crowd"
)

// A subject is one kind of native locks, in a database of its own on a server.
type subject struct {
	driver   string
	dsn      string
	make     func(*sql.DB, nativelock.Options) *nativelock.Store
	server   *sqltest.Server
	database string
	sessions string                                      // a statement that lists the sessions of the hosts
	end      string                                      // one that ends a session, whose number comes behind it
	held     func(t testing.TB, keys ...string) []string // those of the keys that some session has locked
	key      func(resource [sha256.Size]byte) (k string) // what a lock is called in the server
}

// subjects are those that can be run here.
var subjects = []struct {
	name string
	open func(testing.TB) subject
}{{"Postgres", postgres}, {"MySQL", mysql}}

// onEach runs a test on each of them.
func onEach(t *testing.T, test func(t *testing.T, s subject)) {
	for _, s := range subjects {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			test(t, s.open(t))
		})
	}
}

func postgres(t testing.TB) subject {
	t.Helper()
	return postgresOn(t, sqltest.SharedPostgres(t))
}

func postgresOn(t testing.TB, server *sqltest.Server) subject {
	t.Helper()
	database := server.NewDatabase(t)
	s := subject{driver: "pgx", dsn: server.DSN("", "", database), make: nativelock.PostgresAdvisory, server: server,
		database: database}
	s.sessions = "SELECT pid FROM pg_stat_activity WHERE datname = '" + database +
		"' AND application_name <> 'psql' ORDER BY pid"
	s.end = "SELECT pg_terminate_backend(%s, 10000)"
	s.key = func(resource [sha256.Size]byte) string {
		return strconv.FormatInt(int64(binary.BigEndian.Uint64(resource[:8])), 10)
	}
	s.held = func(t testing.TB, keys ...string) []string {
		return strings.Fields(s.exec(t, "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks "+
			"WHERE locktype = 'advisory' AND objsubid = 1 AND database = (SELECT oid FROM pg_database WHERE datname "+
			"= current_database()) ORDER BY 1"))
	}
	return s
}

func mysql(t testing.TB) subject {
	t.Helper()
	return mysqlOn(t, sqltest.SharedMariaDB(t))
}

func mysqlOn(t testing.TB, server *sqltest.Server) subject {
	t.Helper()
	database := server.NewDatabase(t)
	s := subject{driver: "mysql", dsn: server.DSN("", "", database), make: nativelock.MySQLGetLock, server: server,
		database: database}
	s.sessions = "SELECT id FROM information_schema.processlist WHERE db = '" + database +
		"' AND host LIKE '127.%' ORDER BY id"
	s.end = "KILL %s"
	s.key = func(resource [sha256.Size]byte) string { return "tickslot:" + hex.EncodeToString(resource[:20]) }
	s.held = func(t testing.TB, keys ...string) (held []string) {
		for _, key := range keys {
			if s.exec(t, "SELECT IS_USED_LOCK('"+key+"') IS NOT NULL") == "1" {
				held = append(held, key)
			}
		}
		return held
	}
	return s
}

func (s subject) exec(t testing.TB, statement string) string {
	t.Helper()
	out, err := s.server.Exec(s.database, statement)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// lock is the key of a lock. Hosts of two versions must agree on it.
func (s subject) lock(prefix, kind string, slot int, name string) string {
	return s.key(sha256.Sum256([]byte(fmt.Sprintf("tickslot lock 1\x00%s\x00%d\x00%s%s", kind, slot, prefix, name))))
}

// kill ends all sessions in the database.
func (s subject) kill(t testing.TB) {
	t.Helper()
	for _, id := range strings.Fields(s.exec(t, s.sessions)) {
		s.exec(t, fmt.Sprintf(s.end, id))
	}
}

// pool returns a *sql.DB that is closed after the test, after the stores on it.
func (s subject) pool(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open(s.driver, s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// open returns the store of one more host.
func (s subject) open(t testing.TB, opts nativelock.Options) *nativelock.Store {
	t.Helper()
	n := s.make(s.pool(t), opts)
	t.Cleanup(func() { n.Close() })
	return n
}

func (s subject) hosts(t testing.TB) func() dlock.DistributedLock {
	prefix := unique("p")
	return func() dlock.DistributedLock { return s.open(t, nativelock.Options{Prefix: prefix}) }
}

// A crew is several hosts that look like one store: each attempt, with all that follows from it, is
// made by one of them. The suite asks of any store that a token is as good anywhere as where it was
// granted, which is true of a Store in its own process only; and it is there that a Session uses
// it.
type crew []dlock.DistributedLock

func (c crew) of(token string) int {
	h := fnv.New32a()
	h.Write([]byte(token))
	return int(h.Sum32() % uint32(len(c)))
}

func (c crew) TryAcquire(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
	return c[c.of(req.Token)].TryAcquire(ctx, req)
}

func (c crew) Extend(ctx context.Context, ttl time.Duration, grants ...dlock.Grant) ([]dlock.Result, error) {
	return c.each(grants, func(s dlock.DistributedLock, part []dlock.Grant) ([]dlock.Result, error) {
		return s.Extend(ctx, ttl, part...)
	})
}

func (c crew) Release(ctx context.Context, grants ...dlock.Grant) ([]dlock.Result, error) {
	return c.each(grants, func(s dlock.DistributedLock, part []dlock.Grant) ([]dlock.Result, error) {
		return s.Release(ctx, part...)
	})
}

func (c crew) each(grants []dlock.Grant, call func(dlock.DistributedLock, []dlock.Grant) ([]dlock.Result,
	error)) ([]dlock.Result, error) {
	results := make([]dlock.Result, len(grants))
	for who, store := range c {
		var part []dlock.Grant
		var where []int
		for i, g := range grants {
			if c.of(g.Token) == who {
				part, where = append(part, g), append(where, i)
			}
		}
		got, err := call(store, part)
		if err != nil {
			return nil, err
		}
		for i, r := range got {
			results[where[i]] = r
		}
	}
	return results, nil
}

// The suite, in which nothing is stated, runs on one host, and on several that share the work.
func conform(t *testing.T, hosts func(testing.TB) func() dlock.DistributedLock) {
	for name, size := range map[string]int{"one host": 1, "three hosts": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// This process unlocks, and may be busy just then.
			dlocktest.Run(t, dlocktest.Harness{TTL: suiteTTL, Slack: suiteTTL / 2,
				New: func(t testing.TB) dlocktest.Namespace {
					open := hosts(t)
					var c crew
					for range size {
						c = append(c, open())
					}
					return dlocktest.Namespace{Open: func() dlock.DistributedLock { return c }}
				}})
		})
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	long(t)
	onEach(t, func(t *testing.T, s subject) { conform(t, s.hosts) })
}

// Fails when a session tries again what it has locked.
func TestContention(t *testing.T) {
	long(t)
	onEach(t, func(t *testing.T, s subject) {
		for _, c := range []struct{ slots, workers, attempts int }{{1, 16, 100}, {5, 16, 100}, {5, 5, 140},
			{16, 16, 140}, {50, 16, 140}} {
			crowd.Contend(t, s.hosts(t), c.slots, c.workers, c.attempts*testkit.Rounds(t, 1, 10))
		}
	})
}

func request(name string, slots int, ttl time.Duration) dlock.Request {
	return dlock.Request{Name: name, Slots: slots, Token: strings.TrimSuffix(unique("token"), ":"), TTL: ttl}
}

func mustGet(t testing.TB, store dlock.DistributedLock, req dlock.Request) dlock.Grant {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	g, err := store.TryAcquire(ctx, req)
	if err != nil {
		t.Fatalf("%s: %v", req.Name, err)
	}
	return g
}

func mustBeFull(t testing.TB, store dlock.DistributedLock, req dlock.Request) {
	t.Helper()
	if g, err := store.TryAcquire(t.Context(), req); !errors.Is(err, dlock.ErrNotAcquired) {
		t.Fatalf("%s: slot %d, %v: want it full", req.Name, g.Slot, err)
	}
}

func outcomes(t testing.TB, results []dlock.Result, err error, want dlock.GrantOutcome) {
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

// An acquire locks what it grants and nothing else, and what is refused locks nothing; all of it is
// on one connection per host.
//
// Fails when postgres_try.sql takes the min() of what it could lock instead of the first, when CASE
// has to evaluate every condition in mysql.try, and when the slots that this process holds are
// tried again.
func TestOneLockPerGrant(t *testing.T) {
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
		var grants []dlock.Grant
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
		outcomes(t, results, err, dlock.GrantOK)
		want = slices.DeleteFunc(want, func(key string) bool { return key == s.lock("", "slot", grants[1].Slot, "x") })
		is("after a release")
		mustGet(t, a, request("x", 0, time.Minute))
		if held := s.held(t, s.lock("", "mutex", 0, "x")); !slices.Contains(held, s.lock("", "mutex", 0, "x")) {
			t.Errorf("the mutex is not held under its key: %v", held)
		}
		// with those of the second connections, which went back to their pools
		if ids := strings.Fields(s.exec(t, s.sessions)); len(ids) > 4 {
			t.Errorf("two hosts have %d connections", len(ids))
		}
	})
}

// Names that a collation takes for the same are different locks, and prefixes keep hosts apart.
//
// Fails when the name of a lock in MySQL is the name itself, and when the prefix is not hashed.
func TestNames(t *testing.T) {
	onEach(t, func(t *testing.T, s subject) {
		open := func(prefix string) *nativelock.Store { return s.open(t, nativelock.Options{Prefix: prefix}) }
		a, b, c := open("p:"), open("p:"), open("q:")
		for _, name := range []string{"orders", "Orders", "ORDERS", "orders ", " orders", "órders", "ｏrders",
			strings.Repeat("o", dlock.MaxNameLen)} {
			mustGet(t, a, request(name, 0, time.Minute))
			mustBeFull(t, b, request(name, 0, time.Minute))
			mustGet(t, c, request(name, 0, time.Minute))
			mustGet(t, b, request(name, 1, time.Minute))
		}
	})
}

// A lease that is left to itself is unlocked when it ends, without another call, and the connection
// lives on.
//
// Fails when schedule sets no timer, and when the server is told to end the session when the lease
// does (both: the session has ended).
func TestLeftToExpire(t *testing.T) {
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
				results, err := b.Release(t.Context(), g) // this machine stood still
				outcomes(t, results, err, dlock.GrantOK)
			}
		}
		before := s.exec(t, s.sessions)
		for _, name := range []string{"x", "y"} {
			waitFor(t, 3*time.Second, "the lock to be freed", func() bool {
				_, err := b.TryAcquire(t.Context(), request(name, 0, time.Minute))
				return err == nil
			})
		}
		long(t)
		time.Sleep(2500 * time.Millisecond) // longer than the server would have waited
		after := s.exec(t, s.sessions)
		for _, id := range strings.Fields(before) {
			if !slices.Contains(strings.Fields(after), id) {
				t.Errorf("session %s has ended: %q, before %q", id, after, before)
			}
		}
	})
}

func waitFor(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", limit, what)
		}
	}
}

// Close frees everything before it returns, leaves the pool to its owner, and what comes after it
// is an error.
//
// Fails when Close leaves the locks to the end of the connection (now and then), and when it gives
// the connection back as it is.
func TestClose(t *testing.T) {
	onEach(t, func(t *testing.T, s subject) {
		db := s.pool(t)
		a, b := s.make(db, nativelock.Options{}), s.open(t, nativelock.Options{})
		var grants []dlock.Grant
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
			errors.Is(err, dlock.ErrNotAcquired) {
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

// A request with a tick is refused with a reason that an operator can act on; faults of the options
// are found before anything starts.
func TestFaults(t *testing.T) {
	onEach(t, func(t *testing.T, s subject) {
		n := s.open(t, nativelock.Options{})
		req := request("x", 0, time.Minute)
		req.Tick = &dlock.Tick{At: time.Now(), Max: 1}
		_, err := n.TryAcquire(t.Context(), req)
		if !errors.Is(err, dlock.ErrFault) || errors.Is(err, dlock.ErrNotAcquired) ||
			!strings.Contains(err.Error(), "MaxPerTick: timer.NoLimit") {
			t.Errorf("a tick: %v", err)
		}
		for what, bad := range map[string]*nativelock.Store{
			"no *sql.DB":       s.make(nil, nativelock.Options{}),
			"Prefix":           s.make(s.pool(t), nativelock.Options{Prefix: "a\nb"}),
			"Prefix of 300":    s.make(s.pool(t), nativelock.Options{Prefix: strings.Repeat("p", 300)}),
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
		// One token is one attempt: it cannot ask for something else.
		req = request("s", 3, time.Minute)
		mustGet(t, n, request("s", 3, time.Minute))
		if g := mustGet(t, n, req); g.Slot != 1 {
			t.Fatalf("slot %d", g.Slot)
		}
		req.Slots = 1
		if _, err := n.TryAcquire(t.Context(), req); !errors.Is(err, dlock.ErrFault) {
			t.Errorf("the same token with fewer slots: %v", err)
		}
	})
}

// A pool that may open one connection only is refused at once, with what to do; one whose
// connections are all in use, before the caller's time is up.
//
// Fails when twoConns looks at nothing, and when take waits as long as it may (both: the caller
// hears that the database did not answer).
func TestSmallPools(t *testing.T) {
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
			if err == nil || errors.Is(err, dlock.ErrSetup) != setup || !strings.Contains(err.Error(), want) {
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
