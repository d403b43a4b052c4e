package sqllock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/servertest"
	"github.com/tickslot/tickslot/internal/sqltest"
)

// A lease that ends is extended at the last moment, in a transaction that has not been committed when somebody else looks, to whom it
// seems free. He waits for that transaction, and is refused.
//
// Fails when the row is not looked at again after the wait: the slot is granted twice.
func TestExtendedAtTheLastMomentPostgres(t *testing.T) {
	t.Parallel()
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
	defer pool.Close()
	for _, tick := range []*dlock.Tick{nil, {At: time.Now(), Max: 1}} {
		name := "plain"
		if tick != nil {
			name = "tick"
		}
		first := dlock.Request{Name: name, Slots: 1, Token: "first-" + name, TTL: time.Minute}
		if _, err := s.TryAcquire(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if _, err := pool.Exec(t.Context(), "UPDATE distributed_locks SET expires_at = clock_timestamp() WHERE lock_id = $1", first.Token); err != nil {
			t.Fatal(err)
		}
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "UPDATE distributed_locks SET expires_at = clock_timestamp() + interval '1 minute' WHERE lock_id = $1", first.Token); err != nil {
			t.Fatal(err)
		}
		second := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			_, err := s.TryAcquire(ctx, dlock.Request{Name: name, Slots: 1, Token: "second-" + name, TTL: time.Minute, Tick: tick})
			second <- err
		}()
		waits := func(ctx context.Context) error {
			var n int
			if err := pool.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&n); err != nil {
				return err
			}
			if n == 0 {
				return errors.New("nobody waits")
			}
			return nil
		}
		if err := servertest.Poll(10*time.Second, "the second attempt", waits); err != nil {
			t.Error(err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-second; !errors.Is(err, dlock.ErrNotAcquired) {
			t.Errorf("%s: %v: must be refused", name, err)
		}
	}
}

// A lock that somebody else holds in the database is waited for until the caller's deadline, no longer, and nothing is left behind that would
// take the slot afterwards.
//
// Fails when the wait in the database has no bound of its own and the connection is cut off: the statement would go on there.
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
	if _, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock(hashtextextended('tickslot token waits', 0))"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		_, err := s.TryAcquire(ctx, dlock.Request{Name: "a", Token: "waits", TTL: time.Minute})
		failed <- err
	}()
	count := func(want string) func(context.Context) error {
		return func(ctx context.Context) error {
			var n string
			err := pool.QueryRow(ctx, "SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&n)
			if err == nil && n != want {
				err = errors.New(n + " wait, want " + want)
			}
			return err
		}
	}
	if err := servertest.Poll(10*time.Second, "the attempt waits", count("1")); err != nil {
		t.Fatal(err)
	}
	proxy.BlackHole(true) // no word that the caller has given up gets through
	if err := <-failed; err == nil || errors.Is(err, dlock.ErrNotAcquired) {
		t.Errorf("%v: must be an error of the store", err)
	}
	if err := servertest.Poll(5*time.Second, "the statement ends", count("0")); err != nil {
		t.Error(err)
	}
	proxy.BlackHole(false)
}
