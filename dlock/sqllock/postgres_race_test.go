package sqllock_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// postgresWithPool returns a store in a new database, and connections with which a test changes the
// database directly.
func postgresWithPool(t *testing.T) (*sqllock.Store, *pgxpool.Pool) {
	t.Helper()
	server := sqltest.SharedPostgres(t)
	dsn := server.DSN("", "", server.NewDatabase(t))
	s := viaPgx(t, dsn)(t, sqllock.Options{})
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return s, pool
}

// An acquire finds a lease ended while a transaction that extends it has not committed. The acquire
// waits for the transaction and is refused.
//
// Fails when the row is not read again after the wait: the slot is granted twice.
func TestExtendedAtTheLastMomentPostgres(t *testing.T) {
	t.Parallel()
	s, pool := postgresWithPool(t)
	for _, tick := range []*driver.Tick{nil, {At: time.Now(), Max: 1}} {
		name := "plain"
		if tick != nil {
			name = "tick"
		}
		first := driver.Request{Name: name, Slots: 1, Token: "first-" + name, TTL: time.Minute}
		if _, err := s.TryAcquire(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if _, err := pool.Exec(t.Context(),
			"UPDATE distributed_locks SET expires_at = clock_timestamp() WHERE lock_id = $1", first.Token); err != nil {
			t.Fatal(err)
		}
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(),
			"UPDATE distributed_locks SET expires_at = clock_timestamp() + interval '1 minute' WHERE lock_id = $1",
			first.Token); err != nil {
			t.Fatal(err)
		}
		second := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			_, err := s.TryAcquire(ctx, driver.Request{Name: name, Slots: 1, Token: "second-" + name, TTL: time.Minute,
				Tick: tick})
			second <- err
		}()
		waits := func(ctx context.Context) error {
			var n int
			if err := pool.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "+
				"AND (wait_event_type = 'Lock' OR wait_event = 'PgSleep')").Scan(&n); err != nil {
				return err
			}
			if n == 0 {
				return errors.New("nobody waits")
			}
			return nil
		}
		if err := testkit.Poll(10*time.Second, "the second attempt", waits); err != nil {
			t.Error(err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-second; !errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("%s: %v: must be refused", name, err)
		}
	}
}

// If another session holds a lock in the database, a call waits for it no longer than its deadline.
// It leaves nothing behind that could take the slot afterwards.
//
// Fails when the wait in the database has no limit of its own and the connection is cut off: the
// statement would continue there.
func TestWaitsAreBoundedPostgres(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedPostgres(t)
	dsn := server.DSN("", "", server.NewDatabase(t))
	proxy := servertest.NewProxyFor(t, server.Addr())
	s := viaPgx(t, strings.Replace(dsn, server.Addr(), proxy.Addr(), 1))(t, sqllock.Options{})
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(),
		"SELECT pg_advisory_xact_lock(hashtextextended('tickslot token waits', 0))"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // must be waiting before this ends
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		_, err := s.TryAcquire(ctx, driver.Request{Name: "a", Token: "waits", TTL: time.Minute})
		failed <- err
	}()
	count := func(want string) func(context.Context) error {
		return func(ctx context.Context) error {
			var n string
			err := pool.QueryRow(ctx, "SELECT count(*)::text FROM pg_stat_activity WHERE datname = "+
				"current_database() AND (wait_event_type = 'Lock' OR wait_event = 'PgSleep')").Scan(&n)
			if err == nil && n != want {
				err = errors.New(n + " wait, want " + want)
			}
			return err
		}
	}
	if err := testkit.Poll(10*time.Second, "the attempt waits", count("1")); err != nil {
		t.Fatal(err)
	}
	proxy.BlackHole(true) // no cancellation gets through
	if err := <-failed; err == nil || errors.Is(err, driver.ErrNotAcquired) {
		t.Errorf("%v: must be an error of the store", err)
	}
	if err := testkit.Poll(testkit.Patience, "the statement ends", count("0")); err != nil {
		t.Error(err)
	}
	proxy.BlackHole(false)
}

// An extension that waits until its lease has ended does not revive the lease.
//
// Fails when the expiry is not checked again after the wait: Postgres does not read a row again
// that was only locked.
func TestExtendAfterAWaitPostgres(t *testing.T) {
	t.Parallel()
	s, pool := postgresWithPool(t)
	g, err := s.TryAcquire(t.Context(), driver.Request{Name: "a", Slots: 1, Token: "t", TTL: 400 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "SELECT FROM distributed_locks FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	answer := make(chan []driver.Result, 1)
	go func() {
		results, err := s.Extend(context.Background(), time.Hour, g)
		if err != nil {
			t.Error(err)
		}
		answer <- results
	}()
	ended := func(ctx context.Context) error {
		var over bool
		const query = "SELECT expires_at < clock_timestamp() FROM distributed_locks WHERE slot = 0"
		if err := pool.QueryRow(ctx, query).Scan(&over); err != nil || !over {
			return errors.Join(err, errors.New("the lease has not ended"))
		}
		return nil
	}
	if err := testkit.Poll(10*time.Second, "the lease", ended); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if results := <-answer; len(results) == 1 && results[0].Outcome == driver.GrantOK {
		t.Error("a lease that had ended was extended")
	}
}

// If an attempt is cancelled while the database still works on it, its token is released. The
// release waits for the attempt.
//
// Fails when the release does not wait: it finds nothing, and the slot is held for a TTL.
func TestReleaseOfAnAttemptUnderWayPostgres(t *testing.T) {
	t.Parallel()
	s, pool := postgresWithPool(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	const args = "('a:slot:', 1, 't', 60000000, NULL, 1, NULL, 0, 5000000, 'h', 1, 'i', 10000::bigint)"
	if _, err := tx.Exec(t.Context(), "SELECT * FROM "+s.FunctionName("acquire")+args); err != nil {
		t.Fatal(err)
	}
	released := make(chan []driver.Result, 1)
	go func() {
		results, err := s.Release(context.Background(), driver.Grant{Name: "a", Slots: 1, Slot: driver.AnySlot,
			Token: "t"})
		if err != nil {
			t.Error(err)
		}
		released <- results
	}()
	waits := func(ctx context.Context) error {
		var n int
		err := pool.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "+
			"(wait_event_type = 'Lock' OR wait_event = 'PgSleep')").Scan(&n)
		if err == nil && n == 0 {
			err = errors.New("nobody waits")
		}
		return err
	}
	if err := testkit.Poll(10*time.Second, "the release waits", waits); err != nil {
		t.Error(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if results := <-released; len(results) != 1 || results[0].Outcome != driver.GrantOK {
		t.Errorf("%v, want released", results)
	}
}

// After an outage in which the network drops everything, even connection attempts, the store
// recovers within seconds.
//
// Fails when a connection attempt has the usual timeout: it occupies a place in the pool for two
// minutes.
func TestSilentLossPostgres(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	server := sqltest.SharedPostgres(t)
	proxy := servertest.NewProxyFor(t, server.Addr())
	dsn := strings.Replace(server.DSN("", "", server.NewDatabase(t)), server.Addr(), proxy.Addr(), 1)
	var gone atomic.Bool
	s := viaPgx(t, dsn, func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if gone.Load() {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return dial(ctx, network, addr)
		}
	})(t, sqllock.Options{})
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	acquire := func(ctx context.Context, name string) error {
		ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		defer cancel()
		_, err := s.TryAcquire(ctx, driver.Request{Name: name, Token: "t", TTL: time.Minute})
		return err
	}
	if err := acquire(t.Context(), "before"); err != nil {
		t.Fatal(err)
	}
	gone.Store(true)
	proxy.BlackHole(true)
	var all sync.WaitGroup
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); {
		for range 8 {
			all.Go(func() { _ = acquire(context.Background(), "meanwhile") })
		}
		all.Wait()
	}
	gone.Store(false)
	proxy.BlackHole(false)
	back := time.Now()
	if err := testkit.Poll(20*time.Second, "a grant", func(ctx context.Context) error {
		return acquire(ctx, "after")
	}); err != nil {
		t.Error(err)
	}
	t.Logf("granted %v after the network was back", time.Since(back).Round(time.Millisecond))
}

// Prepared statements do not work with a pooler that shares connections. The error gives advice,
// and following it works.
func TestPgBouncerWithDatabaseSQL(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedPostgres(t)
	database := server.NewDatabase(t)
	bouncer := sqltest.PgBouncer(t, server, "transaction", sqltest.Options{Settings: []string{"default_pool_size=2",
		"max_prepared_statements=0"}}) // the default before 1.24
	good := viaSQL(t, bouncer.DSN("", "", database)+"&default_query_exec_mode=exec")(t, sqllock.Options{})
	if err := good.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		everything(t, good)
	}
	bad := []*sqllock.Store{
		viaSQL(t, bouncer.DSN("", "", database))(t, sqllock.Options{}),
		viaSQL(t, bouncer.DSN("", "", database))(t, sqllock.Options{})}
	var told error
	for i := 0; told == nil && i < 200; i++ {
		_, err := bad[i%2].TryAcquire(t.Context(), driver.Request{Name: "n" + strconv.Itoa(i), Token: "t",
			TTL: time.Minute})
		if err != nil && !errors.Is(err, driver.ErrNotAcquired) {
			told = err
		}
	}
	if told == nil || !strings.Contains(told.Error(), "default_query_exec_mode=exec") ||
		!errors.Is(told, driver.ErrSetup) {
		t.Errorf("%v: must say what to do, and that the set-up is wrong", told)
	}
}
