package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// Every operation is one statement and one round trip, for any N and whether slots are free or not.
// This also holds on a connection that was idle for a while.
//
// Fails when connections are pinged before use, or statements are prepared.
func TestRoundTripsPostgres(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedPostgres(t)
	wire := server.NewCountingProxy(t)
	s := viaPgx(t, wire.DSN("", "", server.NewDatabase(t)))(t, sqllock.Options{})
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	one := func(what string, call func() error) {
		t.Helper()
		statements, trips := wire.Statements(), wire.RoundTrips()
		if err := call(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if n, w := wire.Statements()-statements, wire.RoundTrips()-trips; n != 1 || w != 1 {
			t.Errorf("%s took %d statements and %d round trips, want one of each", what, n, w)
		}
	}
	time.Sleep(1100 * time.Millisecond) // the pool would ping after a second
	one("acquire, after a while", func() error {
		_, err := s.TryAcquire(t.Context(), driver.Request{Name: "idle", Token: "t", TTL: time.Hour})
		return err
	})
	one("enumerate", func() error { _, err := s.Enumerate(t.Context(), "", driver.MaxPage); return err })
	furtherTrips(t, s, one)
	for _, n := range []int{0, 1, 5, testkit.Rounds(t, 50, 500), 10000} {
		var grants []driver.Grant
		acquire := func(token string, tick *driver.Tick) func() error {
			return func() error {
				g, err := s.TryAcquire(t.Context(), driver.Request{Name: "n" + strconv.Itoa(n), Slots: n, Token: token,
					TTL: time.Hour, Tick: tick})
				grants = append(grants, g)
				return err
			}
		}
		full := func() error {
			err := acquire("z", nil)()
			if errors.Is(err, driver.ErrNotAcquired) {
				grants = grants[:len(grants)-1]
				return nil
			}
			return errors.Join(err, errors.New("must be full"))
		}
		at := time.Now()
		one("acquire", acquire("t0", &driver.Tick{At: at, Max: 1}))
		one("acquire asked again", acquire("t0", &driver.Tick{At: at, Max: 1}))
		grants = grants[:1]
		if n > 0 && n <= 500 {
			for i := 1; i < n; i++ {
				one("acquire", acquire("t"+strconv.Itoa(i), nil))
			}
		}
		if n <= 500 {
			one("acquire when all are held", full)
			one("acquire with a tick that is taken", func() error {
				if err := acquire("z", &driver.Tick{At: at, Max: 1})(); !errors.Is(err, driver.ErrNotAcquired) {
					return errors.Join(err, errors.New("must be refused"))
				}
				grants = grants[:len(grants)-1]
				return nil
			})
		}
		one("extend", func() error { _, err := s.Extend(t.Context(), time.Minute, grants...); return err })
		one("release", func() error { _, err := s.Release(t.Context(), grants...); return err })
		one("acquire of a slot that was released", acquire("again", nil))
		if n == 0 {
			continue
		}
		name := "n" + strconv.Itoa(n)
		again := grants[len(grants)-1]
		one("revoke", func() error { return s.Revoke(t.Context(), name, again.Slot, again.Fence, ann) })
		one("extend what was revoked", func() error { _, err := s.Extend(t.Context(), time.Minute, again); return err })
		one("update", func() error {
			return s.Update(t.Context(), name, driver.Update{Limit: &driver.LimitOverride{Cause: ann, Slots: 3},
				Trigger: &ann})
		})
		one("acquire within a limit", acquire("limited", nil))
		one("pause", func() error {
			return s.Update(t.Context(), name, driver.Update{Pause: &driver.Pause{Cause: ann, For: time.Hour}})
		})
		one("acquire when paused", func() error {
			if err := acquire("paused", nil)(); !errors.Is(err, driver.ErrNotAcquired) {
				return errors.Join(err, errors.New("must be refused"))
			}
			return nil
		})
		one("inspect", func() error { _, err := s.Inspect(t.Context(), name, "none", "n5"); return err })
	}
}

// The same attempt, sent on several connections at once as after a late reply, gets at most one
// slot.
//
// Fails without the lock on the token: the attempt gets several.
func TestSameTokenFromManySidesPostgres(t *testing.T) {
	t.Parallel()
	s := postgres(t, "pgx").migrated(t)
	open := s.hosts(t)
	stores := []driver.Store{open(), open(), open(), open()}
	// These rows have ended, so they can be taken without the lock on the name.
	const slots = 8
	for i := range slots {
		g, err := stores[0].TryAcquire(t.Context(), driver.Request{Name: "a", Slots: slots,
			Token: "w" + strconv.Itoa(i),
			TTL:   time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		defer stores[0].Release(context.Background(), g)
	}
	for i := range slots {
		if _, err := stores[0].Release(t.Context(), driver.Grant{Name: "a", Slots: slots, Slot: driver.AnySlot,
			Token: "w" + strconv.Itoa(i)}); err != nil {
			t.Fatal(err)
		}
	}
	for round := range testkit.Rounds(t, 30, 200) {
		token := "token" + strconv.Itoa(round)
		var mu sync.Mutex
		got := map[int]driver.Grant{} // keyed by slot
		var all sync.WaitGroup
		for _, store := range stores {
			all.Go(func() {
				g, err := store.TryAcquire(context.Background(),
					driver.Request{Name: "a", Slots: slots, Token: token, TTL: time.Hour})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				got[g.Slot] = g
			})
		}
		all.Wait()
		if len(got) != 1 {
			t.Fatalf("one token has %d grants: %v", len(got), got)
		}
		for _, g := range got {
			if _, err := stores[1].Release(t.Context(), g); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A token must not be reused. A client that reuses one gets an answer but not two slots.
//
// Fails when an ended lease is searched for repeatedly.
func TestTokenUsedAgainPostgres(t *testing.T) {
	t.Parallel()
	s := postgres(t, "pgx").migrated(t).open(t, sqllock.Options{})
	for range 3 {
		g, err := s.TryAcquire(t.Context(), driver.Request{Name: "a", Slots: 3, Token: "t", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if held, err := s.List(t.Context(), "a", 3); err != nil || len(held) != 1 {
			t.Errorf("%v, %v: must be one lease", held, err)
		}
		if _, err := s.Release(t.Context(), g); err != nil {
			t.Fatal(err)
		}
	}
}

// Hosts that claim ticks at the same time never start one more often than allowed, and they claim
// every tick.
//
// Fails without the lock on the name.
func TestTicksAtTheSameTimePostgres(t *testing.T) {
	t.Parallel()
	s := postgres(t, "pgx").migrated(t)
	open := s.hosts(t)
	const hosts, allowed = 6, 2
	start := time.Now().Add(-time.Hour)
	var starts [60]atomic.Int64
	var all sync.WaitGroup
	for h := range hosts {
		store := open()
		all.Go(func() {
			for i := range starts {
				g, err := store.TryAcquire(context.Background(),
					driver.Request{Name: "a", Slots: hosts, Token: strconv.Itoa(h*1000 + i), TTL: time.Hour,
						Tick: &driver.Tick{At: start.Add(time.Duration(i) * time.Second), Max: allowed}})
				if errors.Is(err, driver.ErrNotAcquired) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				starts[i].Add(1)
				if _, err := store.Release(context.Background(), g); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for i := range starts {
		if n := starts[i].Load(); n > allowed || n == 0 {
			t.Errorf("tick %d: %d starts, want 1 to %d", i, n, allowed)
		}
	}
}

// Slots whose rows were deleted by hand are granted again. With up to sixteen slots, the next
// attempt finds them; with more, a later one does.
//
// Fails when a slot without a row counts as held.
func TestDeletedRowsPostgres(t *testing.T) {
	t.Parallel()
	s := postgres(t, "pgx").migrated(t)
	store := s.open(t, sqllock.Options{})
	for _, n := range []int{16, 100} {
		name := "n" + strconv.Itoa(n)
		acquire := func(token string) (driver.Grant, error) {
			return store.TryAcquire(t.Context(), driver.Request{Name: name, Slots: n, Token: token, TTL: time.Hour})
		}
		for i := range n {
			if _, err := acquire("t" + strconv.Itoa(i)); err != nil {
				t.Fatal(err)
			}
		}
		s.exec(t, "DELETE FROM distributed_locks WHERE resource_name = '"+name+":slot:' AND slot IN (3, 11)")
		found := map[int]bool{}
		tries := 2
		if n > 16 {
			tries = 1000 // each try checks one of seven windows; the probability that all miss is 1e-60
		}
		for i := 0; i < tries && len(found) < 2; i++ {
			g, err := acquire("u" + strconv.Itoa(i))
			if err == nil {
				found[g.Slot] = true
			} else if !errors.Is(err, driver.ErrNotAcquired) {
				t.Fatal(err)
			}
		}
		if !found[3] || !found[11] || len(found) != 2 {
			t.Errorf("N=%d: found %v, want slots 3 and 11", n, found)
		}
	}
}

// Even if the role or the database has set another isolation level and other limits, calls decide
// on fresh rows and wait for as long as they may.
//
// Fails when a call trusts the settings of its session.
func TestSessionsWithOtherSettingsPostgres(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedPostgres(t)
	for _, setting := range []string{"default_transaction_isolation = 'serializable'",
		"default_transaction_isolation = 'repeatable read'", "statement_timeout = '50ms'",
		"lock_timeout = '10ms'; ALTER DATABASE $ SET synchronous_commit = off; " +
			"ALTER DATABASE $ SET bytea_output = 'escape'; " +
			"ALTER DATABASE $ SET plan_cache_mode = force_generic_plan; " +
			"ALTER DATABASE $ SET datestyle = 'German, DMY'; ALTER DATABASE $ SET search_path = nowhere"} {
		database := server.NewDatabase(t)
		dsn := server.DSN("", "", database)
		s := subject{open: viaPgx(t, dsn), exec: execOn(server, database)}.migrated(t)
		s.exec(t, "ALTER DATABASE "+database+" SET "+strings.ReplaceAll(setting, "$", database))
		for way, open := range map[string]func(testing.TB, sqllock.Options) *sqllock.Store{"pgx": viaPgx(t, dsn),
			"database/sql": viaSQL(t, dsn)} {
			store := open(t, sqllock.Options{})
			name := way + " " + setting[:20]
			request := driver.Request{Name: name, Slots: 1, Token: "t", TTL: time.Hour}
			g, err := store.TryAcquire(t.Context(), request)
			if err != nil {
				t.Errorf("%s: acquire: %v", name, err)
				continue
			}
			again := request
			again.Token = "u"
			if _, err := store.TryAcquire(t.Context(), again); !errors.Is(err, driver.ErrNotAcquired) {
				t.Errorf("%s: a second acquire: %v", name, err)
			}
			if held, err := store.List(t.Context(), name, 1); err != nil || len(held) != 1 {
				t.Errorf("%s: List: %v, %v", name, held, err)
			}
			if _, err := store.Extend(t.Context(), time.Hour, g); err != nil {
				t.Errorf("%s: Extend: %v", name, err)
			}
			if _, err := store.Release(t.Context(), g); err != nil {
				t.Errorf("%s: Release: %v", name, err)
			}
			// Another session keeps the row of the only slot locked for a while.
			blocker, err := pgx.Connect(t.Context(), server.DSN("", "", database)+"&statement_timeout=0")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := blocker.Exec(t.Context(), "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0; "+
				"SELECT FROM public.distributed_locks FOR UPDATE"); err != nil {
				t.Fatal(err)
			}
			free := time.AfterFunc(300*time.Millisecond, func() { _ = blocker.Close(context.Background()) })
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if _, err := store.TryAcquire(ctx, again); err != nil {
				t.Errorf("%s: an acquire that waits: %v", name, err)
			}
			cancel()
			if free.Stop() {
				t.Errorf("%s: it has not waited", name)
				_ = blocker.Close(context.Background())
			}
		}
	}
}

// If the connection translates a name and the database cannot store it, the name is refused with an
// error that says so. This is not an outage.
func TestUnfitDatabasesPostgres(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedPostgres(t)
	latin := server.NewDatabase(t, "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	dsn := server.DSN("", "", latin)
	store := viaPgx(t, dsn)(t, sqllock.Options{})
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	acquire := func(store *sqllock.Store, name, token string) error {
		_, err := store.TryAcquire(t.Context(), driver.Request{Name: name, Token: token, TTL: time.Hour})
		return err
	}
	for _, name := range []string{"grün", "世界"} { // to this database, names are bytes
		if err := acquire(store, name, "t"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := acquire(store, name, "u"); !errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("%s, a second time: %v", name, err)
		}
	}
	translating := viaPgx(t, dsn+"&client_encoding=UTF8")(t, sqllock.Options{})
	if err := acquire(translating, "世", "t"); !errors.Is(err, driver.ErrFault) {
		t.Errorf("a name that the database cannot store: %v", err)
	}
	// Text from operators is stored as ASCII.
	if err := translating.Update(t.Context(), "a", driver.Update{Trigger: &ann}); err != nil {
		t.Errorf("an update: %v", err)
	}
	if o, err := store.Inspect(t.Context(), "a"); err != nil || o[0].Trigger == nil || o[0].Trigger.Cause != ann {
		t.Errorf("an update: %+v, %v", o, err)
	}
}

// tooLate is a Driver whose server cancels statements because of the role's statement_timeout: each
// single statement, and the remaining number of transactions.
type tooLate struct {
	onPool
	left *int
}

func (d tooLate) QueryRow(context.Context, string, []any, ...any) error {
	return &pgconn.PgError{Code: "57014"}
}

func (d tooLate) QueryRowAlone(ctx context.Context, query string, args []any, dest ...any) error {
	if *d.left--; *d.left >= 0 {
		return &pgconn.PgError{Code: "57014"}
	}
	return d.onPool.QueryRow(ctx, query, args, dest...)
}

// A role's statement_timeout is so short that a busy server needs several attempts to change it.
//
// Fails when a call gives up after the first attempt, or never.
func TestStatementTimeoutThatIsOverAtOncePostgres(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedPostgres(t)
	dsn := server.DSN("", "", server.NewDatabase(t))
	if err := viaPgx(t, dsn)(t, sqllock.Options{}).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for left, granted := range map[int]bool{0: true, 3: true, 4: false} {
		store := sqllock.PostgresOn(tooLate{onPool{pool}, &left}, sqllock.Options{})
		_, err := store.TryAcquire(t.Context(), driver.Request{Name: fmt.Sprint("n", left), Token: "t",
			TTL: time.Minute})
		if (err == nil) != granted {
			t.Errorf("granted: %t, %v", granted, err)
		}
	}
}
