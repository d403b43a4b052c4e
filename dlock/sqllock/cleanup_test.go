package sqllock_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
)

// cleans checks that Cleanup deletes exactly the rows that have been idle for longer than the
// retention, and that fences still grow. ago returns an SQL expression for the time the given
// number of days ago.
//
// Fails when Cleanup deletes rows in use, rows below a slot in use, rows whose fence is ahead of
// the clock, or overrides. Fails when it handles only one batch.
func cleans(t *testing.T, s subject, ago func(days int) string) {
	t.Helper()
	ctx := t.Context()
	store := s.open(t, sqllock.Options{})
	acquire := func(name, token string, slots int) driver.Grant {
		t.Helper()
		g, err := store.TryAcquire(ctx, driver.Request{Name: name, Slots: slots, Token: token, TTL: time.Hour,
			Tick: &driver.Tick{At: time.Now(), Max: 5000}})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	release := func(g driver.Grant) {
		t.Helper()
		if r, err := store.Release(ctx, g); err != nil || r[0].Outcome != driver.GrantOK {
			t.Fatal(r, err)
		}
	}
	// idle makes the rows of a name older.
	idle := func(days int, where string) {
		t.Helper()
		s.exec(t, fmt.Sprintf("UPDATE %s SET acquired_at = %s, released_at = %[2]s, expires_at = %[2]s WHERE slot "+
			">= 0 AND %s", s.table, ago(days), where))
		s.exec(t, fmt.Sprintf("UPDATE %s SET tick = tick - %d WHERE slot = -1 AND %s", s.table,
			int64(days)*24*3600*1000000, where))
	}
	rows := func(where string) int {
		t.Helper()
		n, err := strconv.Atoi(strings.TrimSpace(s.exec(t, "SELECT count(*) FROM "+s.table+" WHERE "+where)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	cleanup := func() {
		t.Helper()
		for range 2 { // the second Cleanup deletes the row of the name
			if err := store.Cleanup(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}

	old := acquire("old", "a", 3)
	release(old)
	release(acquire("recent", "a", 3))
	acquire("in use", "a", 3) // held and always extended: its expires_at is in the future
	var wide []driver.Grant
	for i := range 5 {
		wide = append(wide, acquire("shrunk", "a"+strconv.Itoa(i), 5))
	}
	release(wide[4])
	release(wide[3])
	ahead := acquire("ahead", "a", 1)
	release(ahead)
	if err := store.Update(ctx, "ordered", driver.Update{Pause: &driver.Pause{Cause: ann,
		For: time.Millisecond}}); err != nil {
		t.Fatal(err)
	}
	idle(41, "resource_name = 'old:slot:'")
	idle(39, "resource_name = 'recent:slot:'")
	idle(41, "resource_name = 'shrunk:slot:' AND slot IN (0, 3, 4)")
	idle(41, "resource_name = 'ahead:slot:'")
	s.exec(t, fmt.Sprintf("UPDATE %s SET fence = %d WHERE resource_name = 'ahead:slot:' AND slot = 0", s.table,
		time.Now().Add(time.Hour).UnixMicro()))
	// These idle rows fill several batches around the other rows.
	for i := range 1200 {
		if i%400 == 0 {
			values := make([]string, 0, 400)
			for j := range 400 {
				values = append(values, fmt.Sprintf("('%c-many-%d:slot:', 0, 1, %[3]s, %[3]s)", "amz"[i/400], i+j,
					ago(40)))
			}
			s.exec(t, "INSERT INTO "+s.table+" (resource_name, slot, fence, acquired_at, expires_at) VALUES "+
				strings.Join(values, ","))
		}
	}
	cleanup()

	for where, want := range map[string]int{
		"resource_name = 'old:slot:'":     0,
		"resource_name LIKE '_-many-%'":   0,
		"resource_name = 'ordered:slot:'": 1, // overrides stay
		"resource_name = 'recent:slot:'":  2, // one slot and the row of the name
		"resource_name = 'in use:slot:'":  2,
		// Slots 0, 1, 2 and the row of the name stay, because a gap below a slot in use would hide
		// a slot.
		"resource_name = 'shrunk:slot:'":              4,
		"resource_name = 'ahead:slot:'":               2,
		"resource_name = 'shrunk:slot:' AND slot > 2": 0,
	} {
		if n := rows(where); n != want {
			t.Errorf("%d rows where %s, want %d", n, where, want)
		}
	}
	if g := acquire("old", "b", 3); g.Fence <= old.Fence {
		t.Errorf("fence %d after %d", g.Fence, old.Fence)
	}
	if g := acquire("ahead", "b", 1); g.Fence <= driver.Fence(time.Now().Add(30*time.Minute).UnixMicro()) {
		t.Errorf("fence %d: must go on from the one that was ahead of the clock", g.Fence)
	}
	// This row was restored from an old backup.
	s.exec(t, "UPDATE "+s.table+" SET fence = 5, expires_at = "+ago(
		1)+" WHERE resource_name = 'old:slot:' AND slot = 0")
	if g := acquire("old", "c", 1); g.Fence <= old.Fence {
		t.Errorf("fence %d after a restore, %d before", g.Fence, old.Fence)
	}
	if r, err := store.Extend(context.Background(), time.Hour, wide[1]); err != nil || r[0].Outcome != driver.GrantOK {
		t.Errorf("a lease that is held: %v, %v", r, err)
	}
}

func TestCleanupPostgres(t *testing.T) {
	t.Parallel()
	cleans(t, postgres(t, "pgx").migrated(t), func(days int) string {
		return fmt.Sprintf("now() - interval '%d days'", days)
	})
}
