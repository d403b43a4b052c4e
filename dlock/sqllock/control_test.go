package sqllock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
)

var ann = driver.Cause{By: "ann", Note: "grün 世界 \U0001F512"}

// limitsWhileGranting repeatedly sets and resets a limit of 2. Meanwhile, workers acquire, extend
// and release the name's slots and other goroutines update the name. While the limit is in force,
// no grant may be made beside two other leases. No call may fail: a deadlock in the database would
// be an error.
func limitsWhileGranting(t *testing.T, open func() driver.Store, flips int) {
	t.Helper()
	const slots, workers, limit, name = 8, 10, 2, "flip"
	c := limitCheck{held: map[string]int{}}
	over := make(chan struct{})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()

	var all sync.WaitGroup
	for w := range workers {
		store := open()
		all.Go(func() {
			for round := 0; ; round++ {
				select {
				case <-over:
					return
				default:
				}
				var grants []driver.Grant
				for len(grants) <= round%2 { // every second round takes two at once
					req := driver.Request{Name: name, Slots: slots, Token: rand.Text(), TTL: time.Minute,
						Holder: driver.Holder{Host: "h", PID: w}}
					if w == 0 { // this worker uses another call
						req.Tick = &driver.Tick{At: time.Now(), Max: 100}
					}
					asked := c.asks()
					g, err := store.TryAcquire(ctx, req)
					if errors.Is(err, driver.ErrNotAcquired) {
						break
					}
					if err != nil {
						t.Errorf("acquire: %v", err)
						return
					}
					if n := c.granted(g.Token, asked); n > limit {
						t.Errorf("with a limit of %d, %d are held, and one of them was asked for within the limit",
							limit, n)
					}
					grants = append(grants, g)
				}
				if _, err := store.Extend(ctx, time.Minute, grants...); err != nil {
					t.Errorf("extend: %v", err)
				}
				for i := range grants {
					c.gives(grants[i].Token)
					grants[i].Succeeded = round%3 == 0
				}
				for len(grants) > 0 { // repeat, because an update may have locked a lease's row
					results, err := store.Release(ctx, grants...)
					if err != nil {
						t.Errorf("release: %v", err)
						return
					}
					left := grants[:0]
					for i, r := range results {
						if r.Outcome == driver.GrantUnknown {
							left = append(left, grants[i])
						}
					}
					grants = left
				}
			}
		})
	}
	control := open().(driver.Controller)
	all.Go(func() { // these goroutines also update the name
		for {
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
			}
			if err := control.Update(ctx, name, driver.Update{Trigger: &ann, Resume: &ann}); err != nil {
				t.Errorf("update: %v", err)
			}
			if err := control.Revoke(ctx, name, 0, 1, ann); !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("revoke: %v", err)
			}
		}
	})
	set := func(slots int) {
		update := driver.Update{Limit: &driver.LimitOverride{Cause: ann, Slots: slots}}
		if slots < 0 {
			update = driver.Update{ResetLimit: &ann}
		}
		if err := control.Update(ctx, name, update); err != nil {
			t.Errorf("update: %v", err)
		}
	}
	several := func() bool { return c.count() >= 10 }
	for flip := 1; flip <= flips && !t.Failed(); flip++ {
		for _, phase := range []struct{ limit, number int }{{-1, 0}, {limit, flip}} {
			set(phase.limit)
			c.begins(phase.number)
			if err := testkit.Poll(30*time.Second, "grants", several); err != nil {
				t.Error(err)
			}
			c.begins(0)
		}
	}
	close(over)
	all.Wait()
}

// A limitCheck records the holders of a name.
type limitCheck struct {
	mu      sync.Mutex
	limited int            // number of the limit in force; 0 for none
	grants  int            // number of grants since then
	held    map[string]int // tokens, with the limit in force at their request
}

func (c *limitCheck) begins(limited int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limited, c.grants = limited, 0
}

func (c *limitCheck) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.grants
}

func (c *limitCheck) asks() (limited int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.limited
}

// granted returns the number of held leases if a limit is in force and at least one of them was
// requested under it.
func (c *limitCheck) granted(token string, asked int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[token] = asked
	c.grants++
	for _, asked := range c.held {
		if asked != 0 && asked == c.limited {
			return len(c.held)
		}
	}
	return 0
}

func (c *limitCheck) gives(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, token)
}

// Fails when leases above a lowered limit do not count, and when an update locks rows in another
// order than an extension.
func TestLimitsWhileGrantingPostgres(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	s := postgresOn(t, sqltest.Postgres(t, sqltest.Options{Settings: []string{"fsync=off"}}), "pgx").migrated(t)
	limitsWhileGranting(t, s.hosts(t), testkit.Rounds(t, 6, 50))
}

// An update of a limit waits for grants in progress.
//
// Fails when the update does not wait for the rows: the next acquire does not see the grant and
// becomes the second within a limit of one.
func TestLimitWaitsForGrantsPostgres(t *testing.T) {
	t.Parallel()
	s, pool := postgresWithPool(t)
	request := func(token string) driver.Request {
		return driver.Request{Name: "a", Slots: 3, Token: token, TTL: time.Hour}
	}
	var grants []driver.Grant
	for _, token := range []string{"0", "1", "2"} {
		g, err := s.TryAcquire(t.Context(), request(token))
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, g)
	}
	release := func(g driver.Grant) {
		t.Helper()
		if r, err := s.Release(t.Context(), g); err != nil || r[0].Outcome != driver.GrantOK {
			t.Fatal(r, err)
		}
	}
	release(grants[1]) // an existing row is taken without the lock on the name
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), acquireAsT(s)); err != nil {
		t.Fatal(err)
	}
	release(grants[0]) // the next attempt would take this slot
	release(grants[2])
	updated, second := make(chan error, 1), make(chan error, 1)
	go func() {
		err := s.Update(context.Background(), "a", driver.Update{Limit: &driver.LimitOverride{Cause: ann, Slots: 1}})
		updated <- err
		_, err = s.TryAcquire(context.Background(), request("u"))
		second <- err
	}()
	if err := testkit.Poll(10*time.Second, "the update waits", somebodyWaits(pool)); err != nil {
		t.Error(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-updated; err != nil {
		t.Error(err)
	}
	no, _ := errors.AsType[*driver.NotAcquiredError](<-second)
	if no == nil || no.Reason != driver.ReasonFull || no.Holder.Host != "h" || no.Info.SlotLimit != 1 {
		t.Errorf("%+v: must be full, of the grant that was being made", no)
	}
}

// If there is a lease beyond a lowered limit, grants within the limit wait for each other.
//
// Fails when such a grant does not take the lock on the name: each counts only one lease, and there
// are three within a limit of two.
func TestGrantsWithinALimitWaitPostgres(t *testing.T) {
	t.Parallel()
	s, pool := postgresWithPool(t)
	acquire := func(token string) (driver.Grant, error) {
		return s.TryAcquire(context.Background(), driver.Request{Name: "a", Slots: 3, Token: token, TTL: time.Hour})
	}
	var grants []driver.Grant
	for i := range 3 {
		g, err := acquire(strconv.Itoa(i))
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, g)
	}
	if _, err := s.Release(t.Context(), grants[:2]...); err != nil { // the lease of slot 2 stays
		t.Fatal(err)
	}
	if err := s.Update(t.Context(), "a", driver.Update{Limit: &driver.LimitOverride{Cause: ann,
		Slots: 2}}); err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), acquireAsT(s)); err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	go func() {
		_, err := acquire("u")
		second <- err
	}()
	if err := testkit.Poll(10*time.Second, "the second attempt waits", somebodyWaits(pool)); err != nil {
		t.Error(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-second; !errors.Is(err, driver.ErrNotAcquired) {
		t.Errorf("%v: must be refused: two are held", err)
	}
}

// acquireAsT returns the statement of TryAcquire with token t and host h, for tests that run it in
// their own transaction.
func acquireAsT(s *sqllock.Store) string {
	return "SELECT * FROM " + s.FunctionName("acquire") +
		"('a:slot:', 3, 't', 60000000, NULL, 1, NULL, 0, 5000000, 'h', 1, 'i', 10000)"
}

// A grant that was decided before a limit was set, and is made after that, respects the limit.
//
// Fails when the grant does not check for a new update: two are granted within a limit of one.
func TestLimitOvertakesGrantPostgres(t *testing.T) {
	t.Parallel()
	s, pool := postgresWithPool(t)
	var grants []driver.Grant
	for _, token := range []string{"0", "1", "2"} {
		g, err := s.TryAcquire(t.Context(), driver.Request{Name: "a", Slots: 3, Token: token, TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, g)
	}
	if _, err := s.Release(t.Context(), grants...); err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	// A read takes no slot.
	if _, err := tx.Exec(t.Context(), "LOCK TABLE distributed_locks IN EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	overtaken := make(chan error, 1)
	go func() {
		_, err := s.TryAcquire(context.Background(), driver.Request{Name: "a", Slots: 3, Token: "t", TTL: time.Hour})
		overtaken <- err
	}()
	if err := testkit.Poll(10*time.Second, "the attempt waits", somebodyWaits(pool)); err != nil {
		t.Error(err)
	}
	for _, statement := range []string{
		"SELECT " + s.FunctionName("update") + "('a:slot:', NULL, NULL, 1, '{}', NULL, NULL, NULL, 10000)",
		strings.Replace(acquireAsT(s), "'t'", "'first'", 1),
	} {
		if _, err := tx.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	no, _ := errors.AsType[*driver.NotAcquiredError](<-overtaken)
	if no == nil || no.Reason != driver.ReasonFull || no.Holder.Host != "h" || no.Info.SlotLimit != 1 {
		t.Errorf("%+v: must be full", no)
	}
}

// somebodyWaits returns nil as soon as a session waits for a lock in the database.
func somebodyWaits(pool *pgxpool.Pool) func(context.Context) error {
	return func(ctx context.Context) error {
		var n int
		err := pool.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "+
			"(wait_event_type = 'Lock' OR wait_event = 'PgSleep')").Scan(&n)
		if err == nil && n == 0 {
			err = errors.New("nobody waits")
		}
		return err
	}
}

// A revoked lease lasts for as long as its holder trusts it, counted from the last answered
// request. The holder's first heartbeat reports the revocation.
//
// Fails when a request that is repeated after a lost reply does not extend a revoked lease: its
// holder would still trust it after the slot was granted to another.
func TestAskedAgainWhenRevokedPostgres(t *testing.T) {
	t.Parallel()
	s := postgres(t, "pgx").migrated(t).open(t, sqllock.Options{})
	req := driver.Request{Name: "a", Slots: 1, Token: "t", TTL: time.Minute}
	g, err := s.TryAcquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Revoke(t.Context(), "a", g.Slot, g.Fence, ann); err != nil {
		t.Fatal(err)
	}
	req.TTL = time.Hour
	if again, err := s.TryAcquire(t.Context(), req); err != nil || again.Fence != g.Fence {
		t.Errorf("asked again: %+v, %v: must be the same grant", again, err)
	}
	if held, err := s.List(t.Context(), "a", 1); err != nil || len(held) != 1 || held[0].ExpiresIn < 59*time.Minute {
		t.Errorf("%+v, %v: must last for an hour", held, err)
	}
	if r, err := s.Extend(t.Context(), time.Minute, g); err != nil || r[0].Outcome != driver.GrantLost ||
		r[0].RevokedBy == nil {
		t.Errorf("%+v, %v: must be revoked", r, err)
	}
}

// Any text written into the table by hand counts as an override.
//
// Fails when the text must be JSON: the answer is an error of the store, so timers follow
// OnStoreDown.
func TestOverrideByHandPostgres(t *testing.T) {
	t.Parallel()
	s := postgres(t, "pgx").migrated(t)
	store := s.open(t, sqllock.Options{})
	if err := store.Update(t.Context(), "a", driver.Update{Trigger: &ann}); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]driver.Cause{"'me'": {By: "me"}, "NULL": {},
		"'{\"by\":\"me\",\"note\":\"x\"}'": {By: "me", Note: "x"}} {
		s.exec(t, "UPDATE distributed_locks SET paused_until = now() + interval '1 hour', pause_origin = "+text+
			" WHERE resource_name = 'a:slot:' AND slot = -1")
		_, err := store.TryAcquire(t.Context(), driver.Request{Name: "a", Slots: 1, Token: "t", TTL: time.Minute})
		if no, ok := errors.AsType[*driver.NotAcquiredError](err); !ok || no.Reason != driver.ReasonPaused ||
			no.PausedBy != want {
			t.Errorf("%s: %v: must be paused by %+v", text, err, want)
		}
	}
	if o, err := store.Inspect(t.Context(), "a"); err != nil || o[0].Trigger == nil || o[0].Trigger.Cause != ann {
		t.Errorf("%+v, %v: the trigger must be by ann", o, err)
	}
}
