package sqllock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/dlock/sqllock/pgxlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
	"github.com/tickslot/tickslot/proof/torture/crowd"
)

// crowdOptions have short leases that a busy machine can still renew in time.
var crowdOptions = dlock.SessionOptions{TTL: faultTTL, StoreTimeout: faultTTL / 3}

const faultTTL = 4 * time.Second

// backWithin is the maximum time without a grant after a fault. It is one TTL until leases that
// could not be released have ended, and another for delayed calls and their retries. The crowd adds
// the machine's lateness. A store that waits for a dead connection takes 15 s longer.
const backWithin = 2 * faultTTL

// gather starts a crowd of two hosts on the subject. A crowd and its new connections keep both
// cores busy, so its tests run one after the other and not in parallel with other tests.
func gather(t *testing.T, s subject) *crowd.Crowd {
	t.Helper()
	open := s.hosts(t)
	c := crowd.Gather(t, crowdOptions, open(), open())
	c.Grants(20, testkit.Patience)
	return c
}

// frozen pauses the server for longer than a lease lasts. Every call returns within StoreTimeout,
// no lease is valid beyond its trust window, and the crowd recovers with the server.
func frozen(t *testing.T, server *sqltest.Server, s subject, rounds int) {
	t.Helper()
	c := gather(t, s)
	for range rounds {
		froze := time.Now()
		if err := server.Pause(); err != nil {
			t.Fatal(err)
		}
		paused := time.Now()
		time.Sleep(3 * faultTTL / 2) // duration of the outage
		if n := c.ValidAfter(froze, paused.Add(c.TrustOf())); n > 0 {
			t.Errorf("%d leases were valid longer than %v after the server froze", n, c.TrustOf())
		}
		if err := server.Resume(); err != nil {
			t.Fatal(err)
		}
		c.Grants(1, backWithin)
		c.Grants(10, testkit.Patience)
	}
	c.Disperse()
}

// killed kills the server and restarts it, as after a crash of its machine. The server must still
// have its granted leases.
func killed(t *testing.T, server *sqltest.Server, s subject, rounds int) {
	t.Helper()
	c := gather(t, s)
	for range rounds {
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
		back := time.Now()
		c.Grants(1, backWithin)
		c.Grants(10, testkit.Patience)
		t.Logf("10 grants %v after the server was back", time.Since(back).Round(time.Millisecond))
	}
	c.Disperse()
}

// cutOff repeatedly ends every connection with the given statement. The crowd recovers within two
// TTLs of each cut.
func cutOff(t *testing.T, s subject, statement string, cuts int) {
	c := gather(t, s)
	var slowest time.Duration
	for range cuts {
		cut := time.Now()
		s.exec(t, statement)
		c.Grants(1, backWithin)
		slowest = max(slowest, time.Since(cut))
		time.Sleep(time.Until(cut.Add(time.Second))) // one cut per second
	}
	t.Logf("slowest recovery %v", slowest.Round(time.Millisecond))
	c.Disperse()
}

// Fails when a call has no deadline of its own, or when a lease is trusted until the store denies
// it.
func TestI2I7FrozenPostgres(t *testing.T) {
	for _, way := range []string{"pgx", "database/sql"} {
		t.Run(way, func(t *testing.T) {
			testkit.SkipShort(t)
			if way != "pgx" {
				testkit.Long(t)
			}
			server := sqltest.Postgres(t)
			frozen(t, server, postgresOn(t, server, way).migrated(t), testkit.Rounds(t, 1, 3))
		})
	}
}

// Fails when connections to the server that was killed are not replaced.
func TestI1I4KilledPostgres(t *testing.T) {
	for _, way := range []string{"pgx", "database/sql"} {
		t.Run(way, func(t *testing.T) {
			testkit.SkipShort(t)
			if way != "pgx" {
				testkit.Long(t)
			}
			server := sqltest.Postgres(t)
			killed(t, server, postgresOn(t, server, way).migrated(t), testkit.Rounds(t, 1, 5))
		})
	}
}

// Grants and extensions survive a crash, even if the database otherwise commits without waiting for
// its disk.
//
// Fails when acquire or extend commits with the database's settings.
func TestI1GrantsSurviveACrashPostgres(t *testing.T) {
	t.Parallel()
	server := sqltest.Postgres(t, sqltest.Options{Settings: []string{"synchronous_commit=off", "wal_writer_delay=10s"}})
	s := postgresOn(t, server, "pgx").migrated(t)
	store := s.open(t, sqllock.Options{})
	crash := func() {
		t.Helper()
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	held := func() driver.LeaseInfo {
		t.Helper()
		list, err := store.List(t.Context(), "a", 2)
		for tries := 0; err != nil && tries < 10; tries++ { // broken connections are found one by one
			list, err = store.List(t.Context(), "a", 2)
		}
		if err != nil || len(list) != 1 {
			t.Fatalf("after the crash: %v, %v", list, err)
		}
		return list[0]
	}
	g, err := store.TryAcquire(t.Context(), driver.Request{Name: "a", Slots: 2, Token: "t", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	crash()
	if h := held(); h.Fence != g.Fence {
		t.Errorf("%+v, want fence %d", h, g.Fence)
	}
	if _, err := store.Extend(t.Context(), time.Hour, g); err != nil {
		t.Fatal(err)
	}
	crash()
	if h := held(); h.ExpiresIn < 30*time.Minute {
		t.Errorf("%+v, was extended for an hour", h)
	}
}

// Fails when connections that the server has closed are not replaced.
func TestI7CutOffPostgres(t *testing.T) {
	for way, cuts := range map[string]int{"pgx": testkit.Rounds(t, 3, 10), "database/sql": 3, "PgBouncer": 3} {
		t.Run(way, func(t *testing.T) {
			testkit.SkipShort(t)
			if way != "pgx" {
				testkit.Long(t)
			}
			server := sqltest.Postgres(t)
			cutOff(t, postgresOn(t, server, way).migrated(t),
				"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND "+
					"backend_type = 'client backend'", cuts)
		})
	}
}

// A connection to a server that has become read-only, as after a failover, returns an error and is
// not used again. The next connection may lead to the new primary. (Sessions adopt this setting
// when they begin.)
//
// Fails when the connection goes back to the pool: the store never recovers.
func TestReadOnlyPostgresRecovers(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"pgx", "database/sql"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			server := sqltest.SharedPostgres(t)
			database := server.NewDatabase(t)
			s := subject{open: viaPgx(t, server.DSN("", "", database)), exec: execOn(server, database)}.migrated(t)
			if way == "database/sql" {
				s.open = viaSQL(t, server.DSN("", "", database))
			}
			become := func(readOnly string) {
				s.exec(t, "SET default_transaction_read_only = off; ALTER DATABASE "+database+
					" SET default_transaction_read_only = "+readOnly)
			}
			g, err := s.open(t, sqllock.Options{}).TryAcquire(t.Context(),
				driver.Request{Name: "a", Token: "first", TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			for what, call := range map[string]func(*sqllock.Store) error{
				"acquire": func(s *sqllock.Store) error {
					_, err := s.TryAcquire(t.Context(), driver.Request{Name: "b", Token: "second", TTL: time.Minute})
					return err
				},
				"extend":  func(s *sqllock.Store) error { _, err := s.Extend(t.Context(), time.Minute, g); return err },
				"release": func(s *sqllock.Store) error { _, err := s.Release(t.Context(), g); return err },
			} {
				become("on")
				store := s.open(t, sqllock.Options{})
				err := call(store)
				if !readsOnly(err) || errors.Is(err, driver.ErrNotAcquired) || errors.Is(err, driver.ErrFault) {
					t.Errorf("%s: %v: must say that the server is read-only", what, err)
				}
				become("off")
				if err := call(store); err != nil {
					t.Errorf("%s, once there is a primary again: %v", what, err)
				}
			}
		})
	}
}

// readsOnly reports whether an error says that the server is read-only.
func readsOnly(err error) bool {
	return err != nil && strings.Contains(err.Error(), "this server is read-only")
}

// drained returns a store on a pool whose connections are all in use by the application.
func drained(t *testing.T) *sqllock.Store {
	t.Helper()
	server := sqltest.SharedPostgres(t)
	config, err := pgxpool.ParseConfig(server.DSN("", "", server.NewDatabase(t)))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for range 2 {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Release)
	}
	s := pgxlock.New(pool, sqllock.Options{})
	t.Cleanup(func() { s.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

// If an application uses all its connections, no lease is lost with pgx, because pgxlock has its
// own connections.
//
// Fails when pgxlock uses the given pool.
func TestI6DrainedPoolCostsNoLease(t *testing.T) {
	t.Parallel()
	s := drained(t)
	const ttl = 6 * time.Second // long enough for a busy machine
	session, err := dlock.NewSession(s, dlock.SessionOptions{TTL: ttl, StoreTimeout: ttl / 3})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.Background())
	lease, err := session.Mutex("a").TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-lease.Done():
		t.Errorf("lost: %v", lease.Err())
	case <-time.After(ttl + ttl/4):
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
