package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/dlock/sqllock/pgxlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// A network is silent for a second and has then forgotten the old connections (a firewall that lost
// its table, a host with a new address). No lease is lost: the store works again immediately, with
// any number of calls in progress.
//
// Fails when a failed connection keeps its place in the pool until the server has closed it: pgx
// waits 15 s for that.
func TestConnectionsThatDieInSilencePostgres(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	for _, way := range []string{"pgx", "database/sql"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			server := sqltest.SharedPostgres(t)
			proxy := servertest.NewProxyFor(t, server.Addr())
			dsn := strings.Replace(server.DSN("", "", server.NewDatabase(t)), server.Addr(), proxy.Addr(), 1) +
				"&connect_timeout=2"
			open := viaPgx(t, dsn)
			if way == "database/sql" {
				open = viaSQL(t, dsn)
			}
			store := open(t, sqllock.Options{})
			if err := store.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			ttl := 14 * time.Second // pgx would wait longer
			session, err := dlock.NewSession(store, dlock.SessionOptions{TTL: ttl, StoreTimeout: 2 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close(context.Background())
			patient, enough := context.WithTimeout(t.Context(), testkit.Patience) // the first call also connects
			defer enough()
			lease, err := session.Mutex("kept").Acquire(patient)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var workers, busy sync.WaitGroup
			for i := range 8 { // so that all four connections are in use when the silence begins
				busy.Add(1)
				workers.Go(func() {
					grants := 0
					for ctx.Err() == nil {
						l, err := session.Mutex(fmt.Sprint("busy", i)).TryAcquire(ctx)
						if err != nil {
							continue
						}
						_ = l.Release(ctx)
						if grants++; grants == 10 {
							busy.Done()
						}
					}
				})
			}
			busy.Wait()
			late := testkit.MeasureLateness(t, 20*time.Millisecond)
			silent := time.Now()
			proxy.BlackHole(true)
			time.Sleep(time.Second) // duration of the outage
			proxy.Strand()
			proxy.BlackHole(false)
			back := time.Now()
			err = testkit.Poll(20*time.Second, "a grant", func(ctx context.Context) error {
				l, err := session.Mutex("after").TryAcquire(ctx)
				if err == nil {
					err = l.Release(ctx)
				}
				return err
			})
			if took, stood := time.Since(back), late.Since(back); err != nil || took > 6*time.Second+stood {
				t.Errorf("granted %v after the network was well, and must be within 6s besides %v in which this "+
					"process stood still: %v", took.Round(time.Millisecond), stood, err)
			} else {
				t.Logf("granted %v after the network was well", took.Round(time.Millisecond))
			}
			stop()
			workers.Wait()
			select {
			case <-lease.Done():
				t.Errorf("%v after the silence began: %v", time.Since(silent).Round(time.Millisecond), lease.Err())
			case <-time.After(time.Until(silent.Add(ttl + 100*time.Millisecond))):
			}
			closing := time.Now()
			if err := store.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(closing); took > 3*time.Second {
				t.Errorf("Close took %v", took.Round(time.Millisecond))
			}
		})
	}
}

// A cancelled call does not affect the connections of other calls.
//
// Fails when every failed call closes all connections.
func TestCancelledCallsLeaveThePoolAlonePostgres(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedPostgres(t)
	database := server.NewDatabase(t)
	s := viaPgx(t, server.DSN("", "", database))(t, sqllock.Options{})
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), server.DSN("", "", database)+"&application_name=test")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	acquire := func(ctx context.Context, token string) error {
		_, err := s.TryAcquire(ctx, driver.Request{Name: token, Token: token, TTL: time.Minute})
		return err
	}
	waits := func(ctx context.Context) error {
		return errIf(ctx, pool, "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() AND "+
			"(wait_event_type = 'Lock' OR wait_event = 'PgSleep')", "nobody waits")
	}
	backends := func() (list string) {
		t.Helper()
		if err := pool.QueryRow(t.Context(),
			"SELECT coalesce(string_agg(pid::text, ' ' ORDER BY pid), '') FROM pg_stat_activity"+
				" WHERE datname = current_database() AND application_name <> 'test'").Scan(&list); err != nil {
			t.Fatal(err)
		}
		return list
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(),
		"SELECT pg_advisory_xact_lock(hashtextextended('tickslot token waits', 0))"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { gone <- acquire(ctx, "waits") }()
	if err := testkit.Poll(10*time.Second, "a call waits", waits); err != nil {
		t.Fatal(err)
	}
	if err := acquire(t.Context(), "other"); err != nil { // on a second connection
		t.Fatal(err)
	}
	before := backends()
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("%v: must be cancelled", err)
	}
	if err := acquire(t.Context(), "another"); err != nil {
		t.Fatal(err)
	}
	if err := testkit.Poll(10*time.Second, "one connection is left", func() error {
		if list := backends(); strings.Contains(list, " ") || list == "" {
			return fmt.Errorf("connections: %q", list)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if left := backends(); !strings.Contains(before, left) {
		t.Errorf("connection %s is left, were %s", left, before)
	}
}

// errIf returns an error if the query returns true.
func errIf(ctx context.Context, pool *pgxpool.Pool, query, why string) error {
	var is bool
	err := pool.QueryRow(ctx, query).Scan(&is)
	if err == nil && is {
		err = errors.New(why)
	}
	return err
}

// If the server has closed idle connections, the next call still succeeds. This also holds a moment
// later, and for connections that no call has used yet.
//
// Fails when the first call fails because of a closed connection.
func TestConnectionsClosedWhileIdlePostgres(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"pgx", "database/sql"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := postgres(t, way).migrated(t)
			store := s.open(t, sqllock.Options{})
			g, err := store.TryAcquire(t.Context(), driver.Request{Name: "a", Token: "t", TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			for what, call := range map[string]func() error{
				"extend":  func() error { _, err := store.Extend(t.Context(), time.Minute, g); return err },
				"inspect": func() error { _, err := store.Inspect(t.Context(), "a"); return err },
			} {
				const others = " FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
				s.exec(t, "SELECT count(pg_terminate_backend(pid))"+others)
				testkit.Eventually(t, testkit.Patience, "the connections are closed", func() bool {
					return strings.TrimSpace(s.exec(t, "SELECT count(*)"+others)) == "0"
				})
				if way == "database/sql" {
					time.Sleep(1100 * time.Millisecond) // pgx does not check connections used within the last second
				}
				if err := call(); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

// nosy is a tracer that stores everything, like tracers that record arguments.
type nosy struct {
	mu   sync.Mutex
	told []string
}

func (n *nosy) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told = append(n.told, fmt.Sprint(data.SQL, data.Args))
	return ctx
}

func (n *nosy) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// The tracer of the application's pool sees the statements of the store but no tokens, because a
// token is enough to release a lease.
//
// Fails when the store's pool uses the tracer unchanged.
func TestTracersSeeNoTokenPostgres(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedPostgres(t)
	config, err := pgxpool.ParseConfig(server.DSN("", "", server.NewDatabase(t)))
	if err != nil {
		t.Fatal(err)
	}
	tracer := &nosy{}
	config.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	s := pgxlock.New(pool, sqllock.Options{})
	defer s.Close()
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	g, err := s.TryAcquire(t.Context(), driver.Request{Name: "a", Token: servertest.Canary, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Extend(t.Context(), time.Minute, g); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Release(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	told := strings.Join(tracer.told, "\n")
	if strings.Contains(told, servertest.Canary) {
		t.Errorf("the tracer was told a token: %s", told)
	}
	if !strings.Contains(told, "_extend") {
		t.Errorf("the tracer was told nothing: %s", told)
	}
}

// A connection that takes longer to connect than a call may last is used once it is ready.
//
// Fails when a call that ends while it waits for a connection closes all connections, including
// those in progress.
func TestSlowConnectsPostgres(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedPostgres(t)
	config, err := pgxpool.ParseConfig(server.DSN("", "", server.NewDatabase(t)))
	if err != nil {
		t.Fatal(err)
	}
	var slow atomic.Bool
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if slow.Load() {
			time.Sleep(400 * time.Millisecond) // like TLS and a login across an ocean
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	migrated := pgxlock.New(pool, sqllock.Options{})
	defer migrated.Close()
	if err := migrated.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	slow.Store(true)
	store := pgxlock.New(pool, sqllock.Options{})
	defer store.Close()
	session, err := dlock.NewSession(store, dlock.SessionOptions{TTL: 3 * time.Second,
		StoreTimeout: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.Background())
	var lease *dlock.Lease
	testkit.Eventually(t, 10*time.Second, "a grant", func() (err error) {
		lease, err = session.Mutex("a").TryAcquire(t.Context())
		return err
	})
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
