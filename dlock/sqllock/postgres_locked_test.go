package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/testkit"
)

// lockRow locks a row in a transaction that stays open, as with autocommit off, until unlock is
// called.
func lockRow(t *testing.T, pool *pgxpool.Pool, resource string, slot int) (unlock func()) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unlock = func() { _ = tx.Rollback(context.Background()) }
	t.Cleanup(unlock)
	var found bool
	err = tx.QueryRow(t.Context(), "SELECT true FROM distributed_locks WHERE resource_name = $1 AND slot = $2 FOR "+
		"UPDATE", resource, slot).Scan(&found)
	if err != nil {
		t.Fatal(err)
	}
	return unlock
}

// freed creates the rows of n slots of a name by acquiring and releasing each.
func freed(t *testing.T, s *sqllock.Store, name string, n int) {
	t.Helper()
	var grants []driver.Grant
	for i := range n {
		g, err := s.TryAcquire(t.Context(), driver.Request{Name: name, Slots: n, Token: fmt.Sprint(name, i),
			TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, g)
	}
	for _, g := range grants { // one after the other, so that slot 0 ended first
		if _, err := s.Release(t.Context(), g); err != nil {
			t.Fatal(err)
		}
	}
}

// briefly returns the context of a call with little time.
func briefly(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// If another transaction keeps a row locked, only its slot is affected: all other free slots are
// granted immediately. If there is no other slot, the error names the cause. It is not an outage,
// because with StoreDownRunLocal every host would then run.
//
// Fails when an acquire waits for the row of the slot that ended first, and when the server waits
// for as long as the caller.
func TestForeignLockCostsOneSlotPostgres(t *testing.T) {
	t.Parallel()
	s, pool := postgresWithPool(t)
	// A busy machine may be late, which the test measures. The deadline leaves room for this.
	const atOnce, patience = 500 * time.Millisecond, 4 * time.Second
	late := testkit.MeasureLateness(t, 10*time.Millisecond)
	for _, ticking := range []bool{false, true} {
		name := fmt.Sprint("ticking-", ticking)
		freed(t, s, name, 3)
		unlock := lockRow(t, pool, name+":slot:", 0)
		acquire := func(token string) (driver.Grant, error) {
			req := driver.Request{Name: name, Slots: 3, Token: name + token, TTL: time.Minute}
			if ticking {
				req.Tick = &driver.Tick{At: time.Now(), Max: 1}
			}
			return s.TryAcquire(briefly(t, patience), req)
		}
		for _, token := range []string{"one", "two"} {
			began := time.Now()
			g, err := acquire(token)
			took, late := time.Since(began), late.Since(began)
			if err != nil || g.Slot == 0 || took > atOnce+late {
				t.Errorf("%s: slot %d, %v after %v on a machine that was %v late: must be granted at once", name,
					g.Slot, err, took, late)
			}
		}
		_, err := acquire("three")
		if !errors.Is(err, driver.ErrFault) || errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("%s: %v: must be a fault of the name", name, err)
		}
		for _, want := range []string{"slot 0 is free", "(process ", "left open"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: missing %q in: %v", name, want, err)
			}
		}
		unlock()
		if g, err := acquire("four"); err != nil || g.Slot != 0 {
			t.Errorf("%s, unlocked: slot %d, %v", name, g.Slot, err)
		}
	}
}

// While the row of the only free slot is locked, a new slot is granted if the name has room for
// more rows.
//
// Fails when an acquire waits although there is another slot.
func TestForeignLockAndANewSlotPostgres(t *testing.T) {
	t.Parallel()
	s, pool := postgresWithPool(t)
	freed(t, s, "a", 1)
	lockRow(t, pool, "a:slot:", 0)
	if g, err := s.TryAcquire(briefly(t, time.Second), driver.Request{Name: "a", Slots: 2, Token: "t",
		TTL: time.Minute}); err != nil || g.Slot != 1 {
		t.Errorf("slot %d, %v: must be slot 1", g.Slot, err)
	}
	// This row has the data of the whole name.
	lockRow(t, pool, "a:slot:", -1)
	if g, err := s.TryAcquire(briefly(t, time.Second), driver.Request{Name: "a", Slots: 3, Token: "u",
		TTL: time.Minute}); err != nil || g.Slot != 2 {
		t.Errorf("slot %d, %v: must be slot 2", g.Slot, err)
	}
}

// If another session keeps the row of a lease locked, only this lease of the host is affected.
//
// Fails when a heartbeat waits for the rows of all its leases.
func TestForeignLockCostsOneLeasePostgres(t *testing.T) {
	t.Parallel()
	s, pool := postgresWithPool(t)
	// On a busy machine, this is long enough to extend the other leases.
	const ttl = 8 * time.Second
	session, err := dlock.NewSession(s, dlock.SessionOptions{TTL: ttl, StoreTimeout: ttl / 3})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.Background())
	var leases []*dlock.Lease
	for i := range 5 {
		l, err := session.Mutex("m" + strconv.Itoa(i)).TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, l)
	}
	unlock := lockRow(t, pool, "m0", 0)
	select {
	case <-leases[0].Done():
	case <-time.After(2 * ttl):
		t.Error("the lease whose row is locked is still trusted")
	}
	time.Sleep(ttl / 20) // so that all leases would end at about the same time
	if err := leases[0].Err(); err == nil || !strings.Contains(err.Error(), "row of it locked") {
		t.Errorf("%v: must say what is in the way", err)
	}
	for _, l := range leases[1:] {
		if !l.Valid() {
			t.Errorf("%s: %v", l.Name(), l.Err())
		}
	}
	unlock()
}

// A release skips the lease whose row is locked. It does not record a success if the row of the
// name is locked.
//
// Fails when a release waits for the rows of all its leases or for the row of a name.
func TestForeignLockAndReleasePostgres(t *testing.T) {
	t.Parallel()
	s, pool := postgresWithPool(t)
	var grants []driver.Grant
	for _, name := range []string{"a", "b", "c"} {
		g, err := s.TryAcquire(t.Context(), driver.Request{Name: name, Slots: 1, Token: name, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		g.Succeeded = true
		grants = append(grants, g)
	}
	lockRow(t, pool, "a:slot:", 0)
	lockRow(t, pool, "b:slot:", -1)
	results, err := s.Release(briefly(t, time.Second), grants...)
	if err != nil || results[0].Outcome != driver.GrantUnknown || results[1].Outcome != driver.GrantOK ||
		results[2].Outcome != driver.GrantOK {
		t.Errorf("%v, %v: the first is not known, the others are released", results, err)
	}
	if err == nil && !errors.Is(results[0].Err, driver.ErrFault) {
		t.Errorf("%v: must say what is in the way", results[0].Err)
	}
	for i, known := range map[int]bool{1: false, 2: true} {
		g, err := s.TryAcquire(t.Context(), driver.Request{Name: grants[i].Name, Slots: 1, Token: "again" +
			grants[i].Name, TTL: time.Minute})
		if err != nil || g.Info.SuccessAge > 0 != known {
			t.Errorf("%s: success %v ago, %v: must be known: %t", grants[i].Name, g.Info.SuccessAge, err, known)
		}
	}
}

// The error after a lock wait says what to look for.
//
// Fails when the server waits for as long as the caller, so that its answer comes too late.
func TestLockedRowsAreToldOfPostgres(t *testing.T) {
	t.Parallel()
	s, pool := postgresWithPool(t)
	g, err := s.TryAcquire(t.Context(), driver.Request{Name: "a", Slots: 1, Token: "t", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	lockRow(t, pool, "a:slot:", 0)
	for what, call := range map[string]func(context.Context) error{
		"revoke": func(ctx context.Context) error { return s.Revoke(ctx, "a", 0, g.Fence, ann) },
		"set limit": func(ctx context.Context) error {
			return s.Update(ctx, "a", driver.Update{Limit: &driver.LimitOverride{Cause: ann, Slots: 2}})
		},
	} {
		if err := call(briefly(t, 2*time.Second)); !errors.Is(err, driver.ErrFault) ||
			!strings.Contains(err.Error(), "left open") {
			t.Errorf("%s: %v: must say what to look for", what, err)
		}
	}
}

// idleRows inserts rows that have been idle for longer than any retention.
const idleRows = "INSERT INTO distributed_locks (resource_name, slot, fence, acquired_at, expires_at) SELECT %s, " +
	"'1980-01-01', '1980-01-01' FROM generate_series(0, %d) AS i"

// Cleanup skips locked rows, so it waits for no lock and blocks no other call. The rows of a grant
// in progress are locked, so Cleanup leaves no slot without a row.
//
// Fails when Cleanup deletes without checking for locks: it waits while it has rows of other names
// locked.
func TestCleanupWaitsForNobodyPostgres(t *testing.T) {
	t.Parallel()
	s, pool := postgresWithPool(t)
	for _, rows := range []string{"'a' || i || ':slot:', 0, 1", "'locked:slot:', i, 1", "'z:slot:', i, 1"} {
		if _, err := pool.Exec(t.Context(), fmt.Sprintf(idleRows, rows, 63)); err != nil {
			t.Fatal(err)
		}
	}
	unlock := lockRow(t, pool, "locked:slot:", 40)
	if err := s.Cleanup(briefly(t, 5*time.Second)); err != nil {
		t.Errorf("beside a row that is locked: %v", err)
	}
	var left string
	const names = "SELECT coalesce(string_agg(resource_name || slot, ' ' ORDER BY resource_name, slot), '') FROM " +
		"distributed_locks WHERE slot IN (0, 40, 41, 63)"
	if err := pool.QueryRow(t.Context(), names).Scan(&left); err != nil || left != "locked:slot:0 locked:slot:40" {
		t.Errorf("left: %q, %v: must be the row that is locked, and those below", left, err)
	}
	unlock()

	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(),
		"SELECT pg_advisory_xact_lock(hashtextextended('tickslot name locked:slot:', 0))"); err != nil {
		t.Fatal(err)
	}
	if err := s.Cleanup(briefly(t, 5*time.Second)); err != nil {
		t.Errorf("beside a name that is locked: %v", err)
	}
	if err := pool.QueryRow(t.Context(), names).Scan(&left); err != nil || left != "locked:slot:0 locked:slot:40" {
		t.Errorf("left: %q, %v: the name is in use", left, err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Cleanup(briefly(t, 5*time.Second)); err != nil {
		t.Error(err)
	}
	if err := pool.QueryRow(t.Context(), names).Scan(&left); err != nil || left != "" {
		t.Errorf("left: %q, %v", left, err)
	}
}

// If a session has locked the whole table, this delays Cleanup and calls without a deadline only by
// seconds.
//
// Fails when a statement has no lock timeout: it would outlive its process in the server.
func TestLockedTablePostgres(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	s, pool := postgresWithPool(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "LOCK TABLE distributed_locks"); err != nil {
		t.Fatal(err)
	}
	calls := map[string]func(context.Context) error{
		"cleanup": s.Cleanup,
		"list":    func(ctx context.Context) error { _, err := s.List(ctx, "a", 1); return err },
		"inspect": func(ctx context.Context) error { _, err := s.Inspect(ctx, "a"); return err },

		"enumerate": func(ctx context.Context) error { _, err := s.Enumerate(ctx, "", 10); return err },
		"acquire": func(ctx context.Context) error {
			_, err := s.TryAcquire(ctx, driver.Request{Name: "a", Token: "t", TTL: time.Minute})
			return err
		},
		"extend": func(ctx context.Context) error {
			_, err := s.Extend(ctx, time.Minute, driver.Grant{Name: "a", Token: "t"})
			return err
		},
	}
	done := make(chan error, len(calls))
	for what, call := range calls {
		go func() {
			err := call(context.Background())
			if !errors.Is(err, driver.ErrFault) || !strings.Contains(err.Error(), "left open") {
				done <- fmt.Errorf("%s: %w: must say what to look for", what, err)
				return
			}
			done <- nil
		}()
	}
	late := time.After(15 * time.Second)
	for range calls {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-late:
			t.Fatal("a call without a deadline waits forever")
		}
	}
}

// The time of Cleanup depends on the number of rows, not on the number of slots of one name.
//
// Fails when Cleanup checks separately for each row whether a higher one is in use: 10,000 slots
// took 17 s.
func TestCleanupOfManySlotsPostgres(t *testing.T) {
	t.Parallel()
	s, pool := postgresWithPool(t)
	if _, err := pool.Exec(t.Context(), fmt.Sprintf(idleRows, "'a:slot:', i, 1", driver.MaxSlots-1)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := s.Cleanup(t.Context()); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("%d slots took %v", driver.MaxSlots, took.Round(time.Millisecond))
	}
	if err := testkit.Poll(time.Second, "nothing is left", func(ctx context.Context) error {
		return errIf(ctx, pool, "SELECT count(*) > 0 FROM distributed_locks", "rows are left")
	}); err != nil {
		t.Error(err)
	}
}
