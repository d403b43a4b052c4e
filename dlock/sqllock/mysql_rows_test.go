package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// lockedByOthers expects an error that comes before the caller's deadline, says what to look for,
// and is not an outage. On a busy machine the error may be late, so each retry has more time.
func lockedByOthers(t *testing.T, what string, call func(context.Context) error) {
	t.Helper()
	var errs []error
	for patience := time.Second; patience <= 8*time.Second; patience *= 2 {
		took, err := callWithTimeout(patience, call)
		if errors.Is(err, driver.ErrFault) && strings.Contains(err.Error(), "left open") {
			return
		}
		errs = append(errs, fmt.Errorf("after %v: %w", took, err))
		if !errors.Is(err, context.DeadlineExceeded) {
			break
		}
	}
	t.Errorf("%s: %v: must say that something is locked, and match ErrFault", what, errors.Join(errs...))
}

// A transaction that was left open keeps the row of one slot locked. This slot is not granted, but
// all others are, with and without a tick.
//
// Fails when an acquire waits for a locked row while another slot is free, and when the answer
// comes after the caller has left.
func TestForeignRowLockCostsOneSlotMySQL(t *testing.T) {
	t.Parallel()
	for _, ticks := range []bool{false, true} {
		store, other, _ := newLockScene(t, oneTrip)
		tick := int64(0)
		acquire := func(token string) (g driver.Grant, err error) {
			req := driver.Request{Name: "a", Slots: 3, Token: token, TTL: time.Minute}
			if ticks {
				tick++
				req.Tick = &driver.Tick{At: time.Now().Add(-time.Hour + time.Duration(tick)*time.Second), Max: 3}
			}
			_, err = callWithTimeout(5*time.Second, func(ctx context.Context) error {
				g, err = store.TryAcquire(ctx, req)
				return err
			})
			return g, err
		}
		var before []driver.Grant
		for i := range 3 {
			g, err := acquire(fmt.Sprint("before", i))
			if err != nil {
				t.Fatal(err)
			}
			before = append(before, g)
		}
		if _, err := store.Release(t.Context(), before...); err != nil {
			t.Fatal(err)
		}
		for _, slot := range []string{"0", "1, 2"} { // the first choice, and the next one
			other.exec("START TRANSACTION")
			for _, one := range strings.Split(slot, ", ") { // for several, MySQL would lock a range
				other.exec("SELECT * FROM distributed_locks WHERE resource_name = 'a:slot:' AND slot = " + one +
					" FOR UPDATE")
			}
			var got []driver.Grant
			for i := range 3 - len(strings.Split(slot, ",")) {
				g, err := acquire(fmt.Sprint("beside", slot[:1], i))
				if err != nil || strings.Contains(slot, fmt.Sprint(g.Slot)) {
					t.Errorf("ticks %t, slot %s locked: %+v, %v: must be granted another one", ticks, slot, g, err)
					continue
				}
				got = append(got, g)
			}
			lockedByOthers(t, "acquire when the only free slot is locked", func(ctx context.Context) error {
				_, err := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: 3, Token: "late" + slot[:1],
					TTL: time.Minute})
				return err
			})
			other.exec("ROLLBACK")
			if g, err := acquire("after" + slot[:1]); err != nil {
				t.Errorf("when nothing is locked any more: %v", err)
			} else {
				got = append(got, g)
			}
			if r, err := store.Release(t.Context(), got...); err != nil {
				t.Errorf("%v, %v", r, err)
			}
		}
	}
}

// Some servers roll back the whole transaction after a lock wait. If an extension waited for a gap,
// this also undoes the earlier ones. None of them is reported as extended.
//
// Fails when the procedure continues after such a timeout.
func TestRollbackOnTimeoutMySQL(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	server := sqltest.MySQL(t, sqltest.Options{Settings: []string{"innodb-rollback-on-timeout=ON"}})
	s := mysqlOn(t, server, oneTrip).migrated(t)
	store := s.open(t, sqllock.Options{})
	var grants []driver.Grant
	for i := range 3 {
		g, err := store.TryAcquire(t.Context(), request(fmt.Sprint("a", i), 2))
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, g)
	}
	conn, err := openMySQL(t, server.DSN("", "", s.database)).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, statement := range []string{"START TRANSACTION",
		"SELECT * FROM distributed_locks WHERE resource_name = 'a2:slot:' AND slot <= 0 FOR UPDATE"} {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	const ends = "SELECT GROUP_CONCAT(expires_at > UTC_TIMESTAMP(6) + INTERVAL 30 MINUTE ORDER BY resource_name) " +
		"FROM distributed_locks WHERE slot >= 0 AND lock_id IS NOT NULL"
	results, err := store.Extend(t.Context(), time.Hour, grants...)
	extended := strings.Split(s.exec(t, ends), ",")
	if len(extended) != len(grants) {
		t.Fatal(extended)
	}
	for i, r := range results {
		if err == nil && r.Outcome == driver.GrantOK && extended[i] != "1" {
			t.Errorf("lease %d is reported as extended, and is not", i)
		}
	}
	t.Logf("%v, %v; in the table: %v", results, err, extended)
}

// If another session has locked a row, only this lease's outcome is unknown. All other leases of
// the call are extended or released. On MySQL, a locked range of rows may also cost the lease of
// the name before.
//
// Fails when a call waits for a lock: all leases of the host are lost with the locked one.
func TestForeignRowLockCostsOneLeaseMySQL(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	store, other, server := newLockScene(t, oneTrip)
	isMariaDB := strings.Contains(execOn(server, "")(t, "SELECT VERSION()"), "MariaDB")
	var grants []driver.Grant
	for i := range 10 {
		g, err := store.TryAcquire(t.Context(), request(fmt.Sprint("a", i), 2))
		if err != nil {
			t.Fatal(err)
		}
		g.Succeeded = i%2 == 0
		grants = append(grants, g)
	}
	const locked, name = 4, "a4" // its success must be recorded
	for what, rows := range map[string][]string{"slot": {"slot = 0"}, "slot and name": {"slot = 0", "slot = -1"},
		"name": {"slot = -1"}, "range": {"slot <= 0"}} {
		other.exec("START TRANSACTION")
		for _, row := range rows {
			other.exec("SELECT * FROM distributed_locks WHERE resource_name = '" + name + ":slot:' AND " + row +
				" FOR UPDATE")
		}
		for op, call := range map[string]func(context.Context) ([]driver.Result, error){
			"extend": func(ctx context.Context) ([]driver.Result, error) {
				return store.Extend(ctx, time.Hour, grants...)
			},
			"release others": func(ctx context.Context) ([]driver.Result, error) {
				return store.Release(ctx, nobodys(grants)...)
			},
		} {
			var results []driver.Result
			took, err := callWithTimeout(3*time.Second, func(ctx context.Context) (err error) {
				results, err = call(ctx)
				return err
			})
			if err != nil {
				t.Errorf("%s locked, %s: %v after %v", what, op, err, took)
				continue
			}
			for i, r := range results {
				switch {
				case !isMariaDB && what == "range" && i == locked-1 && r.Outcome == driver.GrantUnknown:
					// The end of this lease lies in the gap before the range.
				case op == "extend" && i == locked && what != "name":
					if r.Outcome != driver.GrantUnknown || !errors.Is(r.Err, driver.ErrFault) ||
						!strings.Contains(r.Err.Error(), "left open") {
						t.Errorf("%s locked, %s: %+v: must be unknown, and say why", what, op, r)
					}
				case op == "extend" && r.Outcome != driver.GrantOK, op != "extend" && r.Outcome != driver.GrantLost:
					t.Errorf("%s locked, %s %d: %+v", what, op, i, r)
				}
			}
		}
		if what != "slot" {
			lockedByOthers(t, what+" locked: acquire", func(ctx context.Context) error {
				_, err := store.TryAcquire(ctx, driver.Request{Name: name, Slots: 2, Token: "late", TTL: time.Minute})
				return err
			})
		}
		if what != "name" {
			lockedByOthers(t, what+" locked: the same acquire again", func(ctx context.Context) error {
				_, err := store.TryAcquire(ctx, request(name, 2))
				return err
			})
		}
		other.exec("ROLLBACK")
		if r, err := store.Extend(t.Context(), time.Hour, grants...); err != nil ||
			r[locked].Outcome != driver.GrantOK {
			t.Errorf("%s unlocked: %+v, %v", what, r[locked], err)
		}
	}
	other.exec("START TRANSACTION",
		"SELECT * FROM distributed_locks WHERE resource_name = '"+name+":slot:' AND slot = -1 FOR UPDATE")
	r, err := store.Release(t.Context(), grants...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r {
		if want := map[bool]driver.GrantOutcome{true: driver.GrantUnknown,
			false: driver.GrantOK}[i == locked]; r[i].Outcome != want {
			t.Errorf("release %d: %+v: must be %v", i, r[i], want)
		}
	}
	other.exec("ROLLBACK")
	if r, err := store.Release(t.Context(), grants[locked]); err != nil || r[0].Outcome != driver.GrantOK {
		t.Errorf("release when nothing is locked any more: %+v, %v", r, err)
	}
}

// nobodys returns grants of the same names with unknown tokens.
func nobodys(grants []driver.Grant) (list []driver.Grant) {
	for _, g := range grants {
		g.Token = "nobodys" + g.Token
		list = append(list, g)
	}
	return list
}

// Cleanup skips rows that another session has locked and does not wait for them.
//
// Fails when Cleanup waits with the rows of other names locked, or until its time is up.
func TestCleanupSkipsWhatIsLockedMySQL(t *testing.T) {
	t.Parallel()
	store, other, _ := newLockScene(t, oneTrip)
	for _, name := range []string{"a", "b", "c", "d"} {
		g, err := store.TryAcquire(t.Context(), request(name, 2))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Release(t.Context(), g); err != nil {
			t.Fatal(err)
		}
	}
	other.exec("UPDATE distributed_locks SET acquired_at = '1980-01-01', released_at = '1980-01-01', expires_at = "+
		"'1980-01-01' WHERE slot >= 0",
		"START TRANSACTION", "SELECT * FROM distributed_locks WHERE resource_name = 'b:slot:' AND slot = 0 OR "+
			"resource_name = 'c:slot:' AND slot = -1 FOR UPDATE")
	left := func() (names string) {
		t.Helper()
		row := openMySQL(t, other.dsn).QueryRow(
			"SELECT COALESCE(GROUP_CONCAT(LEFT(resource_name, 1) ORDER BY resource_name), '') FROM " +
				"distributed_locks WHERE slot = 0")
		if err := row.Scan(&names); err != nil {
			t.Fatal(err)
		}
		return names
	}
	if took, err := callWithTimeout(5*time.Second, store.Cleanup); err != nil || took > 4*time.Second {
		t.Errorf("%v after %v", err, took)
	}
	if names := left(); names != "b,c" {
		t.Errorf("left are %q: must be those that are locked, b and c", names)
	}
	other.exec("ROLLBACK")
	if err := store.Cleanup(t.Context()); err != nil || left() != "" {
		t.Errorf("when nothing is locked any more: %v, left are %q", err, left())
	}
}
