package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// The server's clock steps back by an hour. No held slot is granted, extensions work, and fences
// grow.
//
// Fails when a fence is only the time, or when an extension must end later than the lease did
// before.
func TestI1I4ClockStepsBackMySQL(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedMariaDB(t)
	dsn := server.DSN("", "", server.NewDatabase(t)) + oneTrip
	now := viaMySQL(dsn)(t, sqllock.Options{})
	if err := now.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	back := viaMySQL(dsn+"&timestamp="+strconv.FormatInt(time.Now().Add(-time.Hour).Unix(), 10))(t, sqllock.Options{})
	for _, slots := range []int{0, 1} {
		req := request("a", slots)
		g, err := now.TryAcquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		next := req
		next.Token = "next"
		if _, err := back.TryAcquire(t.Context(), next); !errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("%v: must be refused", err)
		}
		for range 2 {
			if r, err := back.Extend(t.Context(), time.Minute, g); err != nil || r[0].Outcome != driver.GrantOK {
				t.Errorf("extend: %v, %v", r, err)
			}
			if again, err := back.TryAcquire(t.Context(), req); err != nil || again.Fence != g.Fence {
				t.Errorf("asked again: %v, %v", again, err)
			}
		}
		if r, err := back.Release(t.Context(), g); err != nil || r[0].Outcome != driver.GrantOK {
			t.Errorf("release: %v, %v", r, err)
		}
		if r, err := back.Release(t.Context(), g); err != nil || r[0].Outcome != driver.GrantLost {
			t.Errorf("second release: %v, %v", r, err)
		}
		h, err := back.TryAcquire(t.Context(), next)
		if err != nil || h.Fence <= g.Fence {
			t.Errorf("fence %d after %d, %v", h.Fence, g.Fence, err)
		}
	}
}

// A procedure that is interrupted by an administrator or by a server limit leaves no lock behind.
//
// Fails when the procedure does not roll back and its connection is not closed: the name stays
// locked.
func TestInterruptedMySQL(t *testing.T) {
	t.Parallel()
	store, other, server := newLockScene(t, oneTrip)
	watcher, database := openMySQL(t, server.DSN("", "", "")), other.database()
	if _, err := store.TryAcquire(t.Context(), request("a", 0)); err != nil {
		t.Fatal(err)
	}
	other.exec("UPDATE distributed_locks SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE slot = 0",
		"CREATE TRIGGER slow BEFORE UPDATE ON distributed_locks FOR EACH ROW DO SLEEP(5)")
	next := request("a", 0)
	next.Token = "next"
	done := make(chan error, 1)
	go func() {
		_, err := callWithTimeout(10*time.Second, func(ctx context.Context) error {
			_, err := store.TryAcquire(ctx, next)
			return err
		})
		done <- err
	}()
	// MariaDB 10.11 ignores one or two of forty kills and keeps sleeping. An administrator would
	// repeat them.
	var err error
	testkit.Eventually(t, 9*time.Second, "it has locked the name, takes the slot, and is interrupted", func() error {
		select {
		case err = <-done:
			return nil
		case <-time.After(100 * time.Millisecond):
		}
		var id int
		if err := watcher.QueryRowContext(t.Context(), "SELECT id FROM information_schema.processlist "+
			"WHERE info LIKE '%SLEEP%' AND db = ?", database).Scan(&id); err != nil {
			return err
		}
		if _, err := watcher.ExecContext(t.Context(), "KILL QUERY "+strconv.Itoa(id)); err != nil {
			return err
		}
		return errors.New("it was interrupted just now")
	})
	if err == nil || errors.Is(err, driver.ErrNotAcquired) || errors.Is(err, driver.ErrFault) {
		t.Errorf("interrupted: %v", err)
	}
	other.exec("START TRANSACTION")
	if took, err := callWithTimeout(5*time.Second, func(ctx context.Context) error {
		_, err := other.conn.ExecContext(ctx,
			"SELECT * FROM distributed_locks WHERE resource_name = 'a' AND slot = -1 FOR UPDATE")
		return err
	}); err != nil {
		t.Fatalf("the name is still locked after %v: %v", took, err)
	}
	other.exec("ROLLBACK", "DROP TRIGGER slow")
	if _, err := store.TryAcquire(t.Context(), next); err != nil {
		t.Error(err)
	}
}

// Hosts whose sessions have different time zones agree on the end of a lease.
//
// Fails when a time depends on the session's time zone.
func TestTimeZonesMySQL(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedMariaDB(t)
	dsn := server.DSN("", "", server.NewDatabase(t)) + oneTrip
	var hosts []*sqllock.Store
	for _, zone := range []string{"+00:00", "+05:30", "-08:00"} {
		hosts = append(hosts, viaMySQL(dsn+"&"+settings("time_zone='"+zone+"'"))(t, sqllock.Options{}))
	}
	if err := hosts[0].Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, host := range hosts {
		req := request("a"+strconv.Itoa(i), 1)
		g, err := host.TryAcquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range hosts {
			next := req
			next.Token = "next"
			_, err := other.TryAcquire(t.Context(), next)
			if no, ok := errors.AsType[*driver.NotAcquiredError](err); !ok || no.ExpiresIn > time.Minute ||
				no.ExpiresIn < 30*time.Second || no.HeldFor > 30*time.Second {
				t.Errorf("%v: must be refused for most of a minute", err)
			}
			if r, err := other.Extend(t.Context(), time.Minute, g); err != nil || r[0].Outcome != driver.GrantOK {
				t.Errorf("extend: %v, %v", r, err)
			}
			if held, err := other.List(t.Context(), req.Name, 1); err != nil || len(held) != 1 ||
				held[0].ExpiresIn > time.Minute {
				t.Errorf("list: %v, %v", held, err)
			}
		}
	}
}

// Many hosts use a new name for the first time at the same time, with a tick that may start only
// once.
//
// Fails when error 1062 is not caught: two hosts insert the same row.
func TestFirstGrantsAtTheSameTimeMySQL(t *testing.T) {
	t.Parallel()
	store, _, _ := newLockScene(t, oneTrip)
	hosts := []*sqllock.Store{store}
	for i := range 40 {
		granted := 0
		var mu sync.Mutex
		var all sync.WaitGroup
		at := time.Now()
		for h := range 8 {
			all.Go(func() {
				req := request("new"+strconv.Itoa(i), 4)
				req.Token += "-" + strconv.Itoa(h)
				req.Tick = &driver.Tick{At: at, Max: 1}
				_, err := hosts[h%len(hosts)].TryAcquire(context.Background(), req)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					granted++
				} else if !errors.Is(err, driver.ErrNotAcquired) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if granted != 1 {
			t.Errorf("%d starts of one tick", granted)
		}
	}
}

// Slots whose rows were deleted by hand are granted again. With up to sixteen slots, the next
// acquire grants them; with more, a later one does. A name whose own row was deleted keeps working.
//
// Fails when a slot without a row counts as held.
func TestDeletedRowsMySQL(t *testing.T) {
	t.Parallel()
	store, other, _ := newLockScene(t, oneTrip)
	for _, n := range []int{16, 100} {
		acquire := func(token string) (driver.Grant, error) {
			req := request("n"+strconv.Itoa(n), n)
			req.Token = token
			return store.TryAcquire(t.Context(), req)
		}
		for i := range n {
			if _, err := acquire("t" + strconv.Itoa(i)); err != nil {
				t.Fatal(err)
			}
		}
		other.exec(fmt.Sprintf(
			"DELETE FROM distributed_locks WHERE resource_name = 'n%d:slot:' AND slot IN (-1, 3, 11)", n))
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
