package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// onEachTable runs a test on a database of each kind. ago returns an SQL expression for the time
// the given number of seconds ago.
func onEachTable(t *testing.T, test func(t *testing.T, s subject, ago func(seconds int) string)) {
	t.Helper()
	t.Run("Postgres", func(t *testing.T) {
		t.Parallel()
		test(t, postgres(t, "pgx").migrated(t), func(seconds int) string {
			return fmt.Sprintf("(clock_timestamp() - interval '1 second' * %d)", seconds)
		})
	})
	for way, params := range map[string]string{"one trip": oneTrip, "prepared, latin1": "?charset=latin1"} {
		t.Run("MySQL, "+way, func(t *testing.T) {
			t.Parallel()
			test(t, mysqlOn(t, sqltest.SharedMariaDB(t), params).migrated(t), func(seconds int) string {
				return fmt.Sprintf("(UTC_TIMESTAMP(6) - INTERVAL %d SECOND)", seconds)
			})
		})
	}
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		test(t, sqliteOn(sqlitePath(t)).migrated(t), func(seconds int) string {
			return fmt.Sprintf("((CAST(strftime('%%s', 'now') AS INTEGER) - %d) * 1000000)", seconds)
		})
	})
}

// enumerate reads all pages and returns the leases by name and slot. It reports an error if a lease
// occurs twice.
func enumerate(t testing.TB, store *sqllock.Store, limit int) map[string]driver.LeaseInfo {
	t.Helper()
	all := map[string]driver.LeaseInfo{}
	next := ""
	for pages := 0; ; pages++ {
		p, err := store.Enumerate(t.Context(), next, limit)
		if err != nil || pages > 10_000 {
			t.Fatalf("page %d after %q: %v", pages, next, err)
		}
		if len(p.Leases) > limit {
			t.Errorf("a page of %d leases, with a limit of %d", len(p.Leases), limit)
		}
		for _, l := range p.Leases {
			key := fmt.Sprint(l.Name, " ", l.Slot)
			if l.Mutex {
				key = l.Name
			}
			if _, twice := all[key]; twice {
				t.Errorf("%s is there twice", key)
			}
			all[key] = l
		}
		if next = p.Next; next == "" {
			return all
		}
	}
}

// mustAcquire takes a lock with a new token, which also identifies the holder.
func mustAcquire(t testing.TB, store *sqllock.Store, name string, slots int) driver.Grant {
	t.Helper()
	token := strings.Trim(sqltest.Unique("t"), ":")
	g, err := store.TryAcquire(t.Context(), driver.Request{Name: name, Slots: slots, Token: token, TTL: time.Hour,
		Holder: driver.Holder{Host: "höst", PID: 7, ID: token}})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func mustRelease(t testing.TB, store *sqllock.Store, g driver.Grant) {
	t.Helper()
	if r, err := store.Release(t.Context(), g); err != nil || r[0].Outcome != driver.GrantOK {
		t.Fatal(r, err)
	}
}

// Enumerate returns the leases under the prefix that are held or were released within the last
// minute, and no other rows of the table.
//
// Fails when it returns leases of other prefixes, leases that expired or ended long ago, or the
// rows of names. Fails when a lease at the edge of a page is missing.
func TestEnumerate(t *testing.T) {
	t.Parallel()
	onEachTable(t, func(t *testing.T, s subject, ago func(int) string) {
		store := s.open(t, sqllock.Options{Prefix: "shöp:"})
		for _, prefix := range []string{"a:", "shöp", "shöq:", "z:"} { // before and after our prefix in the table
			other := s.open(t, sqllock.Options{Prefix: prefix})
			mustAcquire(t, other, "m", 0)
			mustAcquire(t, other, "s", 3)
		}
		at := func(name string, slot int) string {
			return fmt.Sprintf(" WHERE resource_name = 'shöp:%s' AND slot = %d", name, slot)
		}
		held := map[string]driver.Grant{}
		for _, name := range []string{"m", "世 it's \"a\" \\ lock", "%", strings.Repeat("n", driver.MaxNameLen)} {
			held[name] = mustAcquire(t, store, name, 0)
			held[name+" 0"] = mustAcquire(t, store, name, 2)
			held[name+" 1"] = mustAcquire(t, store, name, 2)
		}
		held["again"] = mustAcquire(t, store, "again", 0)
		mustRelease(t, store, held["again"])
		held["again"] = mustAcquire(t, store, "again", 0)
		released := map[string]driver.Grant{
			"just":    mustAcquire(t, store, "just", 0),
			"coarse":  mustAcquire(t, store, "coarse", 0),
			"old":     mustAcquire(t, store, "old", 0),
			"ahead":   mustAcquire(t, store, "ahead", 0),
			"wide 0":  mustAcquire(t, store, "wide", 3),
			"wide 1":  mustAcquire(t, store, "wide", 3),
			"by hand": mustAcquire(t, store, "by hand", 0),
		}
		for _, g := range released {
			mustRelease(t, store, g)
		}
		mustAcquire(t, store, "expired", 0)
		for _, set := range []string{
			"released_at = " + ago(40) + at("wide:slot:", 1),
			"released_at = " + ago(90) + at("old", 0),
			"released_at = " + ago(-3600) + at("ahead", 0), // the clock was set back
			"released_at = " + ago(-30) + at("coarse", 0),
			"released_at = NULL" + at("by hand", 0),
			"expires_at = " + ago(10) + at("expired", 0),
			"acquired_at = " + ago(600) + ", renewed_at = " + ago(900) + at("again", 0),
			"acquired_at = NULL, renewed_at = NULL" + at("%", 0),
			"acquired_at = " + ago(-600) + at("m", 0), // the clock was set back
			"expires_at = " + ago(-600) + at("m:slot:", -1),
		} {
			s.exec(t, "UPDATE "+s.table+" SET "+set)
		}
		for _, name := range []string{"old", "ahead", "by hand"} {
			delete(released, name)
		}
		if err := store.Update(t.Context(), "paused", driver.Update{Pause: &driver.Pause{Cause: ann,
			For: time.Hour}}); err != nil {
			t.Fatal(err)
		}
		s.exec(t, "INSERT INTO "+s.table+" (resource_name, slot, overrides_version) VALUES ('', -1, 1)")
		for _, limit := range []int{1, 2, 7, driver.MaxPage} {
			all := enumerate(t, store, limit)
			for name, l := range all {
				g, isHeld := held[name]
				if !isHeld {
					g = released[name]
				}
				if g.Token == "" || l.Fence != g.Fence || l.Name != g.Name || l.Mutex != (g.Slots == 0) ||
					l.Slot != g.Slot || l.Holder != (driver.Holder{Host: "höst", PID: 7, ID: g.Token}) {
					t.Errorf("%s: %+v, want %+v", name, l, g)
				}
				if isHeld != (l.ReleasedAgo == 0) || isHeld != (l.ExpiresIn > 30*time.Minute) ||
					!isHeld && (l.ExpiresIn != 0 || l.ReleasedAgo > time.Minute) {
					t.Errorf("%s: %+v: held must be %t", name, l, isHeld)
				}
				if known := l.RenewedAgo > 0; known == (name == "again" || name == "%") || l.RenewedAgo > time.Minute {
					t.Errorf("%s was renewed %v ago", name, l.RenewedAgo)
				}
			}
			if len(all) != len(held)+len(released) {
				t.Errorf("limit %d: %d leases, want %d: %v", limit, len(all), len(held)+len(released), all)
			}
			if l := all["wide 1"]; l.ReleasedAgo < 39*time.Second {
				t.Errorf("%+v: must have been released 40 s ago", l)
			}
			if l := all["coarse"]; l.ReleasedAgo != time.Microsecond {
				t.Errorf("%+v: must have been released a microsecond ago", l)
			}
			if l := all["again"]; l.HeldFor < 599*time.Second {
				t.Errorf("%+v: must have been held for 600 s", l)
			}
		}
		// Rows of other prefixes may be part of a page but are not sent.
		if seen, sent, err := store.EnumerateRows(t.Context(), "a", 1000); err != nil ||
			seen <= len(sent) || len(sent) != len(held)+len(released) {
			t.Errorf("of %d rows %q are sent, %v: must be %d", seen, sent, err, len(held)+len(released))
		}
		if all := enumerate(t, s.open(t, sqllock.Options{Prefix: "none:"}), 3); len(all) != 0 {
			t.Errorf("%v: no lease has this prefix", all)
		}
	})
}

// A lease in Enumerate and List shows when it was last granted or extended.
//
// Fails when a grant, a repeated request or an extension does not store this time, and when an
// extension that changed nothing stores it.
func TestRenewedAgo(t *testing.T) {
	t.Parallel()
	onEachTable(t, func(t *testing.T, s subject, ago func(int) string) {
		store := s.open(t, sqllock.Options{})
		req := driver.Request{Name: "a", Slots: 2, Token: "t", TTL: time.Hour,
			Shared: []driver.SemaphoreSpec{{Name: "b", Slots: 2}}}
		first, err := store.TryAcquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		grants := append([]driver.Grant{first}, first.Shared...)
		renewed := func(what string, want bool) {
			t.Helper()
			all := enumerate(t, store, 10)
			for _, g := range grants {
				listed, err := store.List(t.Context(), g.Name, g.Slots)
				if err != nil || len(listed) != 1 || listed[0].Mutex {
					t.Fatalf("%s: list of %s: %+v, %v", what, g.Name, listed, err)
				}
				for _, l := range []driver.LeaseInfo{listed[0], all[fmt.Sprint(g.Name, " ", g.Slot)]} {
					if l.Fence == 0 || l.RenewedAgo < time.Microsecond || l.RenewedAgo < 500*time.Second != want {
						t.Errorf("%s: %+v: renewed must be %t", what, l, want)
					}
				}
			}
			s.exec(t, "UPDATE "+s.table+" SET acquired_at = "+ago(900)+", renewed_at = "+ago(600)+" WHERE slot >= 0")
		}
		renewed("granted in a new slot", true)
		if _, err := store.TryAcquire(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		renewed("the same request again", true)
		renewed("nothing was done", false)
		if r, err := store.Extend(t.Context(), time.Hour, grants...); err != nil || r[1].Outcome != driver.GrantOK {
			t.Fatal(r, err)
		}
		renewed("extended", true)
		for _, g := range grants {
			mustRelease(t, store, g)
		}
		req.Token = "u"
		if first, err = store.TryAcquire(t.Context(), req); err != nil || first.Slot != 0 {
			t.Fatal(first, err)
		}
		grants = append([]driver.Grant{first}, first.Shared...)
		renewed("granted in a slot that was released", true)
		for _, g := range grants {
			if err := store.Revoke(t.Context(), g.Name, g.Slot, g.Fence, ann); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := store.Extend(t.Context(), time.Hour, grants...); err != nil || r[0].Outcome != driver.GrantLost {
			t.Fatal(r, err)
		}
		renewed("refused, because it was revoked", false)
		if held, err := store.List(t.Context(), "none", 0); err != nil || len(held) != 0 {
			t.Error(held, err)
		}
		mustAcquire(t, store, "m", 0)
		if held, err := store.List(t.Context(), "m", 0); err != nil || len(held) != 1 || !held[0].Mutex {
			t.Errorf("%+v, %v: must be a mutex", held, err)
		}
	})
}

// A lease that is held throughout occurs once in every list, even if other leases are granted,
// extended and released meanwhile.
//
// Fails when a page depends on more than the last key of the page before.
func TestEnumerateWhileOthersWrite(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	onEachTable(t, func(t *testing.T, s subject, _ func(int) string) {
		if strings.Contains(t.Name(), "SQLite") {
			brisk(t)
		}
		store, other := s.open(t, sqllock.Options{}), s.open(t, sqllock.Options{})
		var held []driver.Grant
		for i := range 12 {
			held = append(held, mustAcquire(t, store, fmt.Sprint("held", i), i%3))
		}
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer stop()
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				r, err := other.Extend(ctx, time.Hour, held...)
				var g driver.Grant
				if err == nil {
					g, err = other.TryAcquire(ctx, driver.Request{Name: fmt.Sprint("held", i%20), Slots: 5,
						Token: fmt.Sprint("c", i), TTL: time.Hour})
				}
				if err == nil && i%2 == 0 {
					_, err = other.Release(ctx, g)
				}
				if err != nil && ctx.Err() == nil && !errors.Is(err, driver.ErrNotAcquired) {
					t.Errorf("%v, %v", r, err)
					return
				}
			}
		})
		for range 50 {
			list := enumerate(t, store, 4)
			for _, g := range held {
				key := fmt.Sprint(g.Name, " ", g.Slot)
				if g.Slots == 0 {
					key = g.Name
				}
				if l := list[key]; l.Fence != g.Fence || l.ReleasedAgo != 0 {
					t.Fatalf("%s: %+v: must be held with fence %d", key, l, g.Fence)
				}
			}
		}
	})
}

// An invalid after and a limit that is too large are errors before the server is called.
func TestEnumerateChecksWhatItIsGiven(t *testing.T) {
	t.Parallel()
	store := (&scripted{}).store(t, sqllock.Options{})
	for _, c := range []struct {
		after string
		limit int
		want  string
	}{
		{"", 0, "must be 1 to 10000"}, {"", -1, "must be 1 to"}, {"", driver.MaxPage + 1, "must be 1 to"},
		{"x", 1, "not given the Next"}, {"1", 1, "not given the Next"}, {"1 ", 1, "not given the Next"},
		{"99999999999 a", 1, "not given the Next"}, {"-1a b", 1, "not given the Next"},
	} {
		p, err := store.Enumerate(t.Context(), c.after, c.limit)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q, %d: %+v, %v: want %q", c.after, c.limit, p, err, c.want)
		}
	}
}
