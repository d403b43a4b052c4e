package nativelock_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/nativelock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// Once its statement has been prepared, every operation is one round trip, for any N and whether
// slots are free or not.
//
// Fails when try sends one statement per slot, and when another statement follows each.
func TestRoundTripsPostgresAdvisory(t *testing.T) {
	t.Parallel()
	s := postgres(t)
	other := s.open(t, nativelock.Options{})
	wire := s.server.NewCountingProxy(t)
	s.dsn = wire.DSN("", "", s.database)
	n := s.open(t, nativelock.Options{})
	one := func(what string, call func()) {
		t.Helper()
		before := wire.RoundTrips()
		call()
		if n := wire.RoundTrips() - before; n != 1 {
			t.Errorf("%s took %d round trips, want 1", what, n)
		}
	}
	extend := func(grants ...driver.Grant) {
		results, err := n.Extend(t.Context(), time.Hour, grants...)
		outcomes(t, results, err, driver.GrantOK)
	}
	release := func(grants ...driver.Grant) {
		results, err := n.Release(t.Context(), grants...)
		outcomes(t, results, err, driver.GrantOK)
	}
	g := mustGet(t, n, request("prepared", 0, time.Hour))
	extend(g)
	release(g)
	for _, slots := range []int{0, 1, testkit.Rounds(t, 50, 1000)} {
		name := "n" + strconv.Itoa(slots)
		var grants []driver.Grant
		for range max(slots, 1) {
			one("acquire of one of "+name, func() {
				grants = append(grants, mustGet(t, n, request(name, slots, time.Hour)))
			})
		}
		for _, g := range grants {
			if g.Slot < slots/2 {
				release(g)
				mustGet(t, other, request(name, slots/2, time.Hour))
			}
		}
		if slots > 1 {
			one("refused, half held by another", func() { mustBeFull(t, n, request(name, slots, time.Hour)) })
		}
		one("extend", func() { extend(grants[slots/2:]...) })
		one("release", func() { release(grants[slots/2:]...) })
		one("acquire of the last of "+name, func() { mustGet(t, n, request(name, slots, time.Hour)) })
	}
}

// No connection returns to the pgxpool of the *sql.DB with our locks or settings.
//
// Fails when beforeClose does nothing.
func TestPgxPoolAdvisory(t *testing.T) {
	t.Parallel()
	s := postgres(t)
	config, err := pgxpool.ParseConfig(s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 3
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { db.Close() })
	clean := func(when string, count int) {
		t.Helper()
		for range count {
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
			var mark, idle string
			err = conn.QueryRow(t.Context(),
				"SELECT coalesce(current_setting('tickslot.session', true), ''), "+
					"current_setting('idle_session_timeout')").Scan(&mark, &idle)
			if err != nil || mark != "" || idle != "0" {
				t.Errorf("%s: session %q may be idle for %s, %v: is not the pool's any more", when, mark, idle, err)
			}
		}
	}
	n := nativelock.PostgresAdvisory(db, nativelock.Options{})
	held := mustGet(t, n, request("x", 0, time.Minute))
	clean("while the locks are held", 2)
	s.exec(t, "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' "+
		"AND database = (SELECT oid FROM pg_database WHERE datname = current_database())")
	results, err := n.Extend(t.Context(), time.Minute, held)
	outcomes(t, results, err, driver.GrantLost)
	mustGet(t, n, request("x", 0, time.Minute))
	n.Close()
	clean("after Close", 3)
	s.exec(t, "CREATE SCHEMA fake; CREATE FUNCTION fake.pg_try_advisory_lock(bigint) RETURNS boolean LANGUAGE sql "+
		"VOLATILE AS 'SELECT true'")
	s.exec(t, "ALTER DATABASE "+s.database+" SET search_path = fake, pg_catalog")
	pool.Reset()
	n = nativelock.PostgresAdvisory(db, nativelock.Options{})
	if _, err := n.TryAcquire(t.Context(), request("x", 0, time.Minute)); !errors.Is(err, driver.ErrSetup) {
		t.Error(err)
	}
	clean("after a refusal", 3)
	n.Close()
}

// poolerOf starts a PgBouncer in front of the subject's server.
func (s subject) poolerOf(t testing.TB, mode string, settings ...string) (subject, *sqltest.Server) {
	t.Helper()
	bouncer := sqltest.PgBouncer(t, s.server, mode, sqltest.Options{Settings: settings})
	s.dsn = bouncer.DSN("", "", s.database)
	return s, bouncer
}

// A PgBouncer that shares connections is refused with advice, and nothing stays locked. With
// pool_mode=session, a PgBouncer works like the server itself.
//
// Fails when compareSessions does not compare the sessions, and when explain does not recognize the
// pooler's errors.
func TestPgBouncerAdvisory(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	for _, mode := range []string{"transaction", "statement"} {
		for _, params := range []string{"", "&default_query_exec_mode=exec",
			"&default_query_exec_mode=simple_protocol"} {
			t.Run(mode+params, func(t *testing.T) {
				t.Parallel()
				s, _ := postgres(t).poolerOf(t, mode)
				s.dsn += params
				n := s.open(t, nativelock.Options{})
				for range 3 { // remains of one attempt must not help the next
					err := isRefused(t, n)
					if mode == "transaction" && params != "" &&
						(err == nil || !strings.Contains(err.Error(), "both are session")) {
						t.Errorf("%v: must tell how it was found out", err)
					}
				}
				if held := s.held(t); len(held) != 0 {
					t.Errorf("locks were left behind: %v", held)
				}
			})
		}
	}
	t.Run("busy", func(t *testing.T) {
		t.Parallel()
		s, _ := postgres(t).poolerOf(t, "transaction")
		s.dsn += "&default_query_exec_mode=exec"
		crowd := s.pool(t)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		for range 8 {
			wg.Go(func() {
				for ctx.Err() == nil {
					_, _ = crowd.ExecContext(ctx, "SELECT pg_sleep(random() * 0.002)")
				}
			})
		}
		for range 20 { // for either reason: a pooler, or its effect, one lock on two connections
			g, err := s.open(t, nativelock.Options{}).TryAcquire(t.Context(), request("x", 0, time.Minute))
			if err == nil || errors.Is(err, driver.ErrNotAcquired) {
				t.Errorf("slot %d, %v: must be refused", g.Slot, err)
			}
		}
	})
	for _, params := range []string{"", "&default_query_exec_mode=exec", "&default_query_exec_mode=simple_protocol"} {
		t.Run("session"+params, func(t *testing.T) {
			t.Parallel()
			s, _ := postgres(t).poolerOf(t, "session")
			s.dsn += params
			a, b := s.open(t, nativelock.Options{}), s.open(t, nativelock.Options{})
			g := mustGet(t, a, request("x", 0, time.Minute))
			mustBeFull(t, b, request("x", 0, time.Minute))
			results, err := a.Extend(t.Context(), time.Minute, g)
			outcomes(t, results, err, driver.GrantOK)
			a.Close()
			mustGet(t, b, request("x", 0, time.Minute))
		})
	}
	t.Run("no room", func(t *testing.T) {
		t.Parallel()
		s, _ := postgres(t).poolerOf(t, "session", "default_pool_size=1", "query_wait_timeout=1")
		n := s.open(t, nativelock.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := n.TryAcquire(ctx, request("x", 0, time.Minute)); err == nil ||
			!strings.Contains(err.Error(), "room for one more") {
			t.Errorf("%v: must tell that a second connection is needed", err)
		}
	})
}

func isRefused(t testing.TB, n *nativelock.Store) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	g, err := n.TryAcquire(ctx, request("x", 9, time.Minute))
	if !errors.Is(err, driver.ErrSetup) || !strings.Contains(err.Error(), "pool_mode=session") {
		t.Errorf("slot %d, %v: must be refused, because of the pooler", g.Slot, err)
	}
	return err
}

// If a pooler starts to share its connections later, the next call notices it. The leases are lost,
// and nothing is locked in another client's session.
//
// Fails when ask does not compare the session (extended, or refused as full), and when the mark is
// not part of a session.
func TestPgBouncerChangesAdvisory(t *testing.T) {
	t.Parallel()
	for _, mine := range []bool{false, true} {
		s, bouncer := postgres(t).poolerOf(t, "session", "admin_users=postgres")
		s.dsn += "&default_query_exec_mode=exec"
		n := s.open(t, nativelock.Options{})
		g := mustGet(t, n, request("x", 0, time.Minute))
		if _, err := bouncer.Exec("pgbouncer", "SET pool_mode = 'transaction'"); err != nil {
			t.Fatal(err)
		}
		results, err := n.Extend(t.Context(), time.Minute, g)
		outcomes(t, results, err, driver.GrantOK) // still in its session, which the pooler now takes away
		if mine {                                 // another client of ours gets the same session
			db := s.pool(t)
			if _, err := db.ExecContext(t.Context(),
				"SELECT set_config('tickslot.session', 'somebody', false)"); err != nil {
				t.Fatal(err)
			}
		} else {
			tx, err := s.pool(t).BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if _, err := tx.ExecContext(t.Context(), "SELECT 1"); err != nil {
				t.Fatal(err)
			}
		}
		before := s.held(t)
		isRefused(t, n)
		for _, lock := range s.held(t) { // the old lock may or may not be gone with its session
			if !slices.Contains(before, lock) {
				t.Errorf("lock %s has been taken; before %v", lock, before)
			}
		}
		results, err = n.Extend(t.Context(), time.Minute, g)
		outcomes(t, results, err, driver.GrantLost)
	}
}

// Unsuitable servers are refused: a replica, and a server that always grants.
//
// Fails when postgres_open.sql does not check, and when checkSession is left out.
func TestUnfitServersAdvisory(t *testing.T) {
	t.Parallel()
	for create, want := range map[string]string{
		"FUNCTION fake.pg_is_in_recovery() RETURNS boolean LANGUAGE sql AS 'SELECT true'": "replica",
		"FUNCTION fake.pg_try_advisory_lock(bigint) RETURNS boolean LANGUAGE sql VOLATILE AS " +
			"'SELECT true'": "grants a lock to two connections",
	} {
		s := postgres(t)
		s.exec(t, "CREATE SCHEMA fake; CREATE "+create)
		s.dsn += "&search_path=fake,pg_catalog"
		n := s.open(t, nativelock.Options{})
		if _, err := n.TryAcquire(t.Context(), request("x", 0, time.Minute)); !errors.Is(err, driver.ErrSetup) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v: must tell %q", err, want)
		}
	}
}

// A statement that fails costs only its own attempt. Its locks are unlocked, and held leases are
// kept.
//
// Fails when an error ends the connection (lost), and when acquire does not call clear (the lock
// stays).
func TestFailedStatementAdvisory(t *testing.T) {
	t.Parallel()
	s := postgres(t)
	// The statement takes the lock and then fails, like a statement that is cancelled at the last
	// moment.
	s.exec(t, `CREATE SCHEMA fake; CREATE TABLE fake.on (broken boolean);
		CREATE FUNCTION fake.pg_try_advisory_lock(key bigint) RETURNS boolean LANGUAGE plpgsql AS $$
		BEGIN
			IF NOT pg_catalog.pg_try_advisory_lock(key) THEN RETURN false; END IF;
			IF EXISTS (SELECT FROM fake.on) THEN RAISE EXCEPTION SQLSTATE '57014'; END IF;
			RETURN true;
		END $$`)
	s.dsn += "&search_path=fake,pg_catalog"
	a, b := s.open(t, nativelock.Options{}), s.open(t, nativelock.Options{})
	kept := []driver.Grant{mustGet(t, a, request("x", 5, time.Minute)), mustGet(t, a, request("y", 0, time.Minute))}
	before := s.held(t)
	s.exec(t, "INSERT INTO fake.on VALUES (true)")
	for range 3 {
		if _, err := a.TryAcquire(t.Context(), request("x", 5, time.Minute)); sqlStateOf(err) != "57014" {
			t.Errorf("%v: must be the error of the server", err)
		}
	}
	if after := s.held(t); strings.Join(before, ",") != strings.Join(after, ",") {
		t.Errorf("locks %v, before %v", after, before)
	}
	s.exec(t, "DELETE FROM fake.on")
	results, err := a.Extend(t.Context(), time.Minute, kept...)
	outcomes(t, results, err, driver.GrantOK)
	mustBeFull(t, b, request("y", 0, time.Minute))
	for range 4 {
		mustGet(t, b, request("x", 5, time.Minute))
	}
}

func sqlStateOf(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// A full lock table causes an error that says so, and held leases are kept.
//
// Fails when clear has only its first statement, which reads pg_locks and so needs space, too.
func TestLockTableFullAdvisory(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	s := postgresOn(t, sqltest.Postgres(t, sqltest.Options{Settings: []string{"max_locks_per_transaction=10",
		"max_connections=20"}}))
	n := s.open(t, nativelock.Options{})
	first := mustGet(t, n, request("x", 0, time.Minute))
	// Another client fills the lock table: a statement that fails keeps the locks that it took.
	other, err := s.pool(t).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	_, err = other.ExecContext(t.Context(), "SELECT pg_advisory_lock(9, i) FROM generate_series(1, 100000) AS i")
	if err == nil {
		t.Fatal("there was room for 100,000 locks")
	}
	err = nil
	for i := 0; err == nil && i < 50_000; i++ {
		_, err = n.TryAcquire(t.Context(), request(strconv.Itoa(i), 0, time.Minute))
	}
	if !errors.Is(err, driver.ErrFault) || !strings.Contains(err.Error(), "max_locks_per_transaction") {
		t.Errorf("%v: must tell what to raise", err)
	}
	results, err := n.Extend(t.Context(), time.Minute, first)
	outcomes(t, results, err, driver.GrantOK)
}
