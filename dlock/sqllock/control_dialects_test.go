package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// overrideColumns are the columns that store overrides.
var overrideColumns = []string{
	"revoked", "overrides_version", "paused_until", "resumed_at", "pause_origin", "slot_limit", "limit_origin",
	"triggered_at", "trigger_origin", "kept_value",
}

// Fails when one of the columns is not checked.
func TestMissingOverrideColumns(t *testing.T) {
	t.Parallel()
	for _, column := range overrideColumns {
		t.Run("MySQL "+column, func(t *testing.T) {
			t.Parallel()
			withoutColumn(t, mysqlOn(t, sqltest.SharedMariaDB(t), oneTrip), column)
		})
		t.Run("SQLite "+column, func(t *testing.T) {
			t.Parallel()
			withoutColumn(t, sqliteOn(sqlitePath(t)), column)
		})
	}
}

// Fails when a grant within a limit does not count the leases of all slots.
func TestLimitsWhileGrantingMySQL(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	s := mysqlOn(t, quickMariaDB(t), oneTrip).migrated(t)
	limitsWhileGranting(t, s.hosts(t), 25)
}

// Fails when the transaction does not read the snapshot again.
func TestLimitsWhileGrantingSQLite(t *testing.T) {
	brisk(t)
	t.Parallel()
	testkit.Long(t)
	limitsWhileGranting(t, sqliteOn(sqlitePath(t)).migrated(t).hosts(t), 25)
}

// firstUpdates makes several hosts update and acquire new names concurrently. No call may fail, and
// no update may be lost.
func firstUpdates(t *testing.T, open func() driver.Store, names int) {
	t.Helper()
	hosts := []*sqllock.Store{open().(*sqllock.Store), open().(*sqllock.Store)}
	for i := range names {
		name := "new" + strconv.Itoa(i)
		at := time.Now()
		changes := []driver.Update{
			{Limit: &driver.LimitOverride{Cause: ann, Slots: 1}}, {Trigger: &ann}, {Resume: &ann},
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		granted := 0
		for c, change := range changes {
			all.Go(func() {
				if err := hosts[c%len(hosts)].Update(context.Background(), name, change); err != nil {
					t.Errorf("update: %v", err)
				}
			})
		}
		for h := range 5 {
			all.Go(func() {
				req := driver.Request{Name: name, Slots: 4, Token: fmt.Sprint(name, "-", h), TTL: time.Hour,
					Tick: &driver.Tick{At: at, Max: 1}}
				_, err := hosts[h%len(hosts)].TryAcquire(context.Background(), req)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					granted++
				} else if !errors.Is(err, driver.ErrNotAcquired) {
					t.Errorf("acquire: %v", err)
				}
			})
		}
		all.Wait()
		o, err := hosts[0].Inspect(t.Context(), name)
		if err != nil || granted != 1 || o[0].Limit == nil || o[0].Trigger == nil ||
			!o[0].LastTick.Equal(time.UnixMicro(at.UnixMicro())) {
			t.Errorf("%d granted; orders %+v, %v", granted, o, err)
		}
		_, err = hosts[1].TryAcquire(t.Context(), driver.Request{Name: name, Slots: 4, Token: "late", TTL: time.Hour})
		if no, ok := errors.AsType[*driver.NotAcquiredError](err); !ok || no.Reason != driver.ReasonFull ||
			no.Info.SlotLimit != 1 {
			t.Errorf("%v: must be full, by the limit", err)
		}
	}
}

// Fails when only one of several concurrent inserts of a name's row succeeds.
func TestFirstUpdatesAtTheSameTime(t *testing.T) {
	t.Parallel()
	t.Run("MySQL", func(t *testing.T) {
		t.Parallel()
		firstUpdates(t, mysqlOn(t, sqltest.SharedMariaDB(t), oneTrip).migrated(t).hosts(t), 30)
	})
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		brisk(t)
		firstUpdates(t, sqliteOn(sqlitePath(t)).migrated(t).hosts(t), 15)
	})
}

// refusedByOverride sets overrides that refuse requests and calls lock, which locks everything that
// can be locked. All requests must still be refused.
func refusedByOverride(t *testing.T, store *sqllock.Store, lock func()) {
	t.Helper()
	update := func(name string, changes ...driver.Update) {
		for _, change := range changes {
			if err := store.Update(t.Context(), name, change); err != nil {
				t.Fatal(err)
			}
		}
	}
	acquire := func(name, token string, tick *driver.Tick) (driver.Grant, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		req := driver.Request{Name: name, Slots: 3, Token: token, TTL: time.Hour, Tick: tick,
			Holder: driver.Holder{Host: "h-" + token, PID: 1, ID: "i"}}
		return store.TryAcquire(ctx, req)
	}
	begun := time.Now().Add(-time.Minute)
	if _, err := acquire("run", "t", &driver.Tick{At: begun, Max: 3}); err != nil {
		t.Fatal(err)
	}
	if _, err := acquire("held", "v", &driver.Tick{At: begun.Add(-time.Minute), Max: 3}); err != nil {
		t.Fatal(err)
	}
	update("paused", driver.Update{Pause: &driver.Pause{Cause: ann, For: time.Hour}})
	update("none", driver.Update{Limit: &driver.LimitOverride{Cause: ann, Slots: 0}})
	update("first", driver.Update{Trigger: &ann})
	for _, token := range []string{"a", "b"} {
		if _, err := acquire("limited", token, nil); err != nil {
			t.Fatal(err)
		}
	}
	update("limited", driver.Update{Limit: &driver.LimitOverride{Cause: ann, Slots: 2}})
	var grants []driver.Grant
	for _, token := range []string{"c", "d", "e"} {
		g, err := acquire("lowered", token, nil)
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, g)
	}
	update("lowered", driver.Update{Limit: &driver.LimitOverride{Cause: ann, Slots: 1}})
	if _, err := store.Release(t.Context(), grants[0]); err != nil {
		t.Fatal(err)
	}
	update("resumed", driver.Update{Pause: &driver.Pause{Cause: ann, For: time.Hour}}, driver.Update{Resume: &ann})
	for name, at := range map[string]time.Time{"first": begun, "resumed": begun.Add(-time.Hour)} {
		// Only the first refusal of a missed tick writes, because it makes the schedule known.
		_, _ = acquire(name, "u", &driver.Tick{At: at, Max: 1, MissedAt: at})
	}
	lock()
	for name, want := range map[string]struct {
		reason driver.Reason
		tick   *driver.Tick
		holder string
	}{
		"paused":  {driver.ReasonPaused, nil, ""},
		"none":    {driver.ReasonPaused, nil, ""},
		"resumed": {driver.ReasonPaused, &driver.Tick{At: begun, Max: 1, MissedAt: begun}, ""},
		"first":   {driver.ReasonTickFirst, &driver.Tick{At: begun, Max: 1, MissedAt: begun}, ""},
		"run":     {driver.ReasonTickTaken, &driver.Tick{At: begun, Max: 3, MissedAt: begun}, "h-t"},
		"held":    {driver.ReasonTickHeld, &driver.Tick{At: begun, Max: 3, MissedAt: begun}, ""},
		"limited": {driver.ReasonFull, nil, "h-a"},
		"lowered": {driver.ReasonFull, nil, "h-d"}, // slot 0 is free, but one slot too many is held
	} {
		_, err := acquire(name, "u", want.tick)
		no, ok := errors.AsType[*driver.NotAcquiredError](err)
		if !ok || no.Reason != want.reason || no.Holder.Host != want.holder || want.reason == driver.ReasonPaused &&
			no.PausedBy != ann ||
			want.reason == driver.ReasonFull && (no.ExpiresIn < 30*time.Minute || no.HeldFor > time.Minute) {
			t.Errorf("%s: %+v, %v: must be refused with %s", name, no, err, want.reason)
		}
	}
	if o, err := store.Inspect(t.Context(), "paused", "none"); err != nil || o[0].Pause == nil || o[1].Limit == nil {
		t.Errorf("inspect: %+v, %v", o, err)
	}
}

// Fails when a refusal takes a lock, and when a limit names the holder of a slot within it instead
// of the holder whose lease ends first.
func TestOverridesRefuseWithoutALockMySQL(t *testing.T) {
	t.Parallel()
	store, other, _ := newLockScene(t, oneTrip)
	refusedByOverride(t, store, func() {
		other.exec("START TRANSACTION", "SELECT * FROM distributed_locks FOR UPDATE")
	})
}

// Fails when a refusal takes a lock, and when a limit names the holder of a slot within it instead
// of the holder whose lease ends first.
func TestOverridesRefuseWithoutALockSQLite(t *testing.T) {
	t.Parallel()
	s := sqliteOn(sqlitePath(t)).migrated(t)
	refusedByOverride(t, s.open(t, sqllock.Options{}), func() { s.exec(t, "BEGIN IMMEDIATE") })
}

// If a lease is revoked while it is being extended, it is lost. The holder learns of the revocation
// although the extension's transaction took its snapshot before.
//
// Fails when the revocation is read from the snapshot of the transaction.
func TestRevokedWhileExtendedMySQL(t *testing.T) {
	t.Parallel()
	store, other, server := newLockScene(t, oneTrip)
	watcher, database := openMySQL(t, server.DSN("", "", "")), other.database()
	var grants []driver.Grant
	for _, token := range []string{"t0", "t1"} {
		req := request("a", 2)
		req.Token = token
		g, err := store.TryAcquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, g)
	}
	// While the other session holds this lock, the extension of slot 0 waits within its
	// transaction.
	other.exec("DO GET_LOCK('"+database+"', 0)",
		"CREATE TRIGGER gate BEFORE UPDATE ON distributed_locks FOR EACH ROW IF OLD.slot = 0 THEN "+
			"DO GET_LOCK('"+database+"', 60), RELEASE_LOCK('"+database+"'); END IF")
	type answer struct {
		results []driver.Result
		err     error
	}
	done := make(chan answer, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*testkit.Patience)
	defer cancel()
	go func() {
		r, err := store.Extend(ctx, time.Minute, grants...)
		done <- answer{r, err}
	}()
	testkit.Eventually(t, testkit.Patience, "the extension is in its transaction", func() bool {
		var waiting int
		err := watcher.QueryRowContext(t.Context(),
			"SELECT COUNT(*) FROM information_schema.processlist WHERE db = ? AND state = 'User lock'",
			database).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
		return waiting > 0
	})
	other.exec(`UPDATE distributed_locks SET revoked = '{"by":"ann"}' WHERE resource_name = 'a:slot:' AND slot = 1`,
		"DO RELEASE_LOCK('"+database+"')")
	got := <-done
	if got.err != nil || got.results[0].Outcome != driver.GrantOK || got.results[1].Outcome != driver.GrantLost ||
		got.results[1].RevokedBy == nil || got.results[1].RevokedBy.By != "ann" {
		t.Errorf("%+v, %v: the second must be lost, revoked by ann", got.results, got.err)
	}
}

// byHand writes overrides into the table in the way of a person who does not know their format.
func byHand(t *testing.T, s subject, inAnHour string) {
	t.Helper()
	store := s.migrated(t).open(t, sqllock.Options{})
	acquire := func(token string) (driver.Grant, error) {
		return store.TryAcquire(t.Context(), driver.Request{Name: "a", Slots: 2, Token: token, TTL: time.Hour})
	}
	g, err := acquire("t")
	if err != nil {
		t.Fatal(err)
	}
	head := " WHERE resource_name = 'a:slot:' AND slot = -1"
	for text, want := range map[string]driver.Cause{
		"NULL": {}, `'{"by":"me","note":"x"}'`: {By: "me", Note: "x"},
		"'größer \"世界\" 🔒'": {By: "größer \"世界\" 🔒"},
		"'5'":               {By: "5"}, "''": {},
	} {
		s.exec(t, "UPDATE "+s.table+" SET paused_until = "+inAnHour+", pause_origin = "+text+head)
		_, err := acquire("u")
		if no, ok := errors.AsType[*driver.NotAcquiredError](err); !ok || no.Reason != driver.ReasonPaused ||
			no.PausedBy != want {
			t.Errorf("%s: %v: must be paused by %+v", text, err, want)
		}
		if o, err := store.Inspect(t.Context(), "a"); err != nil || o[0].Pause == nil || o[0].Pause.Cause != want {
			t.Errorf("%s: %+v, %v: must be paused by %+v", text, o, err, want)
		}
		s.exec(t, "UPDATE "+s.table+" SET revoked = "+text+" WHERE resource_name = 'a:slot:' AND slot = 0")
		r, err := store.Extend(t.Context(), time.Hour, g)
		switch {
		case err != nil:
			t.Errorf("%s: extend: %v", text, err)
		case text == "NULL" && r[0].Outcome != driver.GrantOK:
			t.Errorf("%s: extend: %+v", text, r)
		case text != "NULL" && (r[0].Outcome != driver.GrantLost || r[0].RevokedBy == nil || *r[0].RevokedBy != want):
			t.Errorf("%s: extend: %+v: must be revoked by %+v", text, r, want)
		}
	}
	// An invalid number of slots counts as no limit.
	s.exec(t, "UPDATE "+s.table+" SET paused_until = NULL, slot_limit = -5"+head)
	second, err := acquire("v")
	if err != nil || second.Slot == g.Slot || second.Info.SlotLimit != 0 {
		t.Errorf("%+v, %v: must be the other slot", second, err)
	}
	if _, err := acquire("w"); !errors.Is(err, driver.ErrNotAcquired) {
		t.Errorf("%v: must be full", err)
	}
}

// Fails when the text must be JSON, when the character set of a connection changes it, and when a
// negative limit hides the leases.
func TestOverridesByHand(t *testing.T) {
	t.Parallel()
	for way, params := range map[string]string{"one trip": oneTrip, "latin1": oneTrip + "&charset=latin1",
		"prepared": ""} {
		t.Run("MySQL "+way, func(t *testing.T) {
			t.Parallel()
			byHand(t, mysqlOn(t, sqltest.SharedMariaDB(t), params), "UTC_TIMESTAMP(6) + INTERVAL 1 HOUR")
		})
	}
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		byHand(t, sqliteOn(sqlitePath(t)), "(CAST(strftime('%s', 'now') AS INTEGER) + 3600) * 1000000")
	})
}

// askedAgain repeats attempts whose answers were lost, after the number of slots has changed or the
// lease was revoked.
func askedAgain(t *testing.T, store *sqllock.Store) {
	t.Helper()
	limit := func(slots int) {
		update := driver.Update{Limit: &driver.LimitOverride{Cause: ann, Slots: slots}}
		if slots < 0 {
			update = driver.Update{ResetLimit: &ann}
		}
		if err := store.Update(t.Context(), "a", update); err != nil {
			t.Fatal(err)
		}
	}
	acquire := func(token string, ttl time.Duration) (driver.Grant, error) {
		return store.TryAcquire(t.Context(), driver.Request{Name: "a", Slots: 1, Token: token, TTL: ttl})
	}
	limit(3)
	var grants []driver.Grant
	for _, token := range []string{"t0", "t1", "t2"} {
		g, err := acquire(token, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, g)
	}
	for _, slots := range []int{1, 0, -1} {
		limit(slots)
		for i, want := range grants {
			if g, err := acquire(fmt.Sprint("t", i), time.Minute); err != nil || g.Slot != want.Slot ||
				g.Fence != want.Fence {
				t.Errorf("asked again, with a limit of %d: %+v, %v: must be %+v", slots, g, err, want)
			}
		}
	}
	if err := store.Revoke(t.Context(), "a", grants[2].Slot, grants[2].Fence, ann); err != nil {
		t.Fatal(err)
	}
	if g, err := acquire("t2", time.Hour); err != nil || g.Fence != grants[2].Fence {
		t.Errorf("a lease that was revoked, asked again: %+v, %v: it is held", g, err)
	}
	if g, err := acquire("t1", time.Hour); err != nil || g.Fence != grants[1].Fence {
		t.Errorf("asked again: %+v, %v", g, err)
	}
	held, err := store.List(t.Context(), "a", 1)
	if err != nil || len(held) != 3 || held[1].ExpiresIn < 30*time.Minute || held[2].ExpiresIn < 30*time.Minute {
		t.Errorf("%+v, %v: slots 1 and 2 must last for an hour, because whoever asked trusts them from now on", held,
			err)
	}
	r, err := store.Extend(t.Context(), 2*time.Hour, grants[2])
	if err != nil || r[0].Outcome != driver.GrantLost || r[0].RevokedBy == nil || *r[0].RevokedBy != ann {
		t.Errorf("the first heartbeat of the lease that was revoked: %+v, %v: must be lost, revoked by ann", r, err)
	}
	if held, err := store.List(t.Context(), "a", 1); err != nil || len(held) != 3 || held[2].ExpiresIn > time.Hour {
		t.Errorf("%+v, %v: a heartbeat must not prolong what was revoked", held, err)
	}
}

// Fails when a token is searched only in the declared slots, and when a revoked lease ends before
// its caller stops trusting it: the slot would then have two valid holders.
func TestAskedAgainAfterUpdates(t *testing.T) {
	t.Parallel()
	t.Run("MySQL", func(t *testing.T) {
		t.Parallel()
		askedAgain(t, mysqlOn(t, sqltest.SharedMariaDB(t), oneTrip).migrated(t).open(t, sqllock.Options{}))
	})
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		askedAgain(t, sqliteOn(sqlitePath(t)).migrated(t).open(t, sqllock.Options{}))
	})
}

// An update is one transaction. Inspect is one statement for any number of names.
func TestStatementsOfUpdatesSQLite(t *testing.T) {
	brisk(t)
	t.Parallel()
	h := &hook{}
	store := sqllock.SQLite(h.open(t, sqliteDSN(sqlitePath(t))), sqllock.Options{})
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	names := make([]string, 1000)
	for i := range names {
		names[i] = "a" + strconv.Itoa(i)
	}
	var g driver.Grant
	var err error
	write := func(statement string) []string {
		return []string{"PRAGMA busy_timeout", "BEGIN IMMEDIATE", statement, "COMMIT"}
	}
	for _, c := range []struct {
		what string
		want []string
		call func()
	}{
		{"update", write("INSERT"), func() {
			err = store.Update(t.Context(), "a1", driver.Update{Limit: &driver.LimitOverride{Cause: ann, Slots: 2},
				Resume: &ann, Trigger: &ann})
		}},
		{"inspect", []string{"SELECT"}, func() { _, err = store.Inspect(t.Context(), names...) }},
		{"acquire within a limit", []string{"SELECT", "PRAGMA busy_timeout", "BEGIN IMMEDIATE", "SELECT", "INSERT",
			"INSERT", "COMMIT"}, func() {
			g, err = store.TryAcquire(t.Context(), driver.Request{Name: "a1", Slots: 1, Token: "t", TTL: time.Hour})
		}},
		{"revoke", write("UPDATE"), func() { err = store.Revoke(t.Context(), "a1", g.Slot, g.Fence, ann) }},
		{"extend what was revoked", write("UPDATE"), func() { _, err = store.Extend(t.Context(), time.Hour, g) }},
	} {
		if got := h.statements(c.call); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q; %v", c.what, got, c.want, err)
		}
	}
}
