package sqllock_test

import (
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

// Fails when Migrate returns an error because another host has just created a procedure.
func TestMigrateMySQL(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedMariaDB(t)
	for range 5 { // repeated, because it is a race
		manyMigrate(t, mysqlOn(t, server, oneTrip))
	}
}

func TestTableNamesMySQL(t *testing.T) {
	t.Parallel()
	for way, params := range map[string]string{"one round trip": oneTrip, "prepared": ""} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			if way == "prepared" {
				testkit.Long(t) // sends the same statements
			}
			quotedTables(t, mysqlOn(t, sqltest.SharedMariaDB(t), params))
		})
	}
	t.Run("in lower case", func(t *testing.T) {
		t.Parallel()
		testkit.SkipShort(t)
		s := mysqlOn(t, quickMariaDB(t, "lower-case-table-names=1"), oneTrip)
		for range testkit.Rounds(t, 0, 1) {
			quotedTables(t, s)
		}
		everything(t, s.migrated(t).open(t, sqllock.Options{TableName: "DISTRIBUTED_Locks"}))
		if err := s.open(t, sqllock.Options{TableName: "DISTRIBUTED_Locks"}).Verify(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Invalid table names are errors before the server is called.
func TestNamesThatMySQLDoesNotHave(t *testing.T) {
	t.Parallel()
	db := openMySQL(t, "nobody@tcp(127.0.0.1:1)/nowhere")
	for _, opts := range []sqllock.Options{{TableName: "locks "}, {TableName: "locks😀"}, {Schema: "shop "},
		{Schema: "😀"}} {
		if err := sqllock.MySQL(db, opts).Check(); err == nil || !strings.Contains(err.Error(), "MySQL has no names") {
			t.Errorf("%+v: %v", opts, err)
		}
	}
	if err := sqllock.MySQL(nil, sqllock.Options{}).Check(); err == nil || !strings.Contains(err.Error(), "*sql.DB") {
		t.Errorf("no database: %v", err)
	}
}

func TestBadSchemaMySQL(t *testing.T) {
	t.Parallel()
	s := mysqlOn(t, sqltest.SharedMariaDB(t), oneTrip)
	noTable(t, s)
	wrongTable(t, s, "CREATE TABLE wrong (resource_name VARCHAR(300), slot INT UNSIGNED, fence INT, acquired_at "+
		"TIMESTAMP NULL, expires_at DATETIME,"+
		" host_name VARCHAR(255) CHARACTER SET latin1, revoked TEXT CHARACTER SET latin1, overrides_version INT, "+
		"paused_until TIMESTAMP NULL, slot_limit BIGINT, PRIMARY KEY (slot)) ENGINE=MyISAM DEFAULT CHARSET utf8mb4",
		"column resource_name of `wrong` is varchar(300) utf8mb4 utf8mb4_general_ci, and has to be varbinary(544)",
		"slot of `wrong` is int unsigned", "fence of `wrong` is int,",
		"acquired_at of `wrong` is timestamp,", "expires_at of `wrong` is datetime,",
		"host_name of `wrong` is varchar(255) latin1",
		"revoked of `wrong` is text latin1", "overrides_version of `wrong` is int,",
		"paused_until of `wrong` is timestamp,", "slot_limit of `wrong` is bigint,",
		"has no column lock_id", "engine MyISAM", "index PRIMARY of `wrong` is on (slot)", "index holders")

	// This table lacks its procedures, as an older version would leave it.
	s.migrated(t)
	s.exec(t, "DROP PROCEDURE distributed_locks_acquire_v1")
	old := s.open(t, sqllock.Options{})
	if err := old.Verify(t.Context()); !errors.Is(err, sqllock.ErrSchema) ||
		!strings.Contains(err.Error(), "of the 6 procedures of this version this user sees 5") {
		t.Errorf("old schema: %v", err)
	}
	if _, err := old.TryAcquire(t.Context(), driver.Request{Name: "a", Token: "t", TTL: time.Minute}); !errors.Is(err,
		driver.ErrSetup) {
		t.Errorf("old schema: %v", err)
	}
	if err := old.Migrate(t.Context()); err != nil {
		t.Errorf("old schema: %v", err)
	}
	everything(t, old)

	// A table whose name differs only in case is a different table, but cannot have its own
	// procedures.
	s.exec(t, "CREATE TABLE DISTRIBUTED_LOCKS (x INT)")
	if err := old.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"Distributed_Locks", "dístributed_locks"} {
		if err := s.open(t, sqllock.Options{TableName: name}).Migrate(t.Context()); !errors.Is(err,
			sqllock.ErrSchema) || !strings.Contains(err.Error(), "by case or accents") {
			t.Errorf("%s: %v: must say that the procedures would be the same", name, err)
		}
	}
}

// The statements of Schema are complete when applied in order, even in another database than the
// connection's, and for a connection without a database.
func TestSchemaIsWhatMigrateDoesMySQL(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedMariaDB(t)
	other := server.NewDatabase(t)
	for _, database := range []string{server.NewDatabase(t), ""} {
		store := viaMySQL(server.DSN("", "", database)+oneTrip)(t,
			sqllock.Options{Schema: other, TableName: "t" + database})
		statements, err := store.Schema()
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range statements {
			execOn(server, database)(t, "DELIMITER //\n"+statement+"//\n")
		}
		if err := store.Verify(t.Context()); err != nil {
			t.Error(err)
		}
		everything(t, store)
		if out := execOn(server, other)(t, "SELECT COUNT(*) FROM t"+database); strings.TrimSpace(out) == "0" {
			t.Error("the table in the other database was not used")
		}
	}
}

// A procedure keeps the sql_mode of the session that created it. Migrate sets a neutral sql_mode
// and restores the old one.
//
// Fails when Migrate leaves it unchanged.
func TestMigrateUnderAnySQLModeMySQL(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedMariaDB(t)
	for _, mode := range []string{"ORACLE", "EMPTY_STRING_IS_NULL", "ANSI,NO_BACKSLASH_ESCAPES", ""} {
		db := openMySQL(t, server.DSN("", "", server.NewDatabase(t))+"?"+settings("sql_mode='"+mode+"'"))
		db.SetMaxOpenConns(1)
		var before, after string
		if err := db.QueryRowContext(t.Context(), "SELECT @@sql_mode").Scan(&before); err != nil {
			if strings.Contains(err.Error(), "1231") {
				continue // this server does not support the mode
			}
			t.Fatal(err)
		}
		store := sqllock.MySQL(db, sqllock.Options{})
		if err := store.Migrate(t.Context()); err != nil {
			t.Errorf("%s: %v", mode, err)
			continue
		}
		everything(t, store)
		if err := db.QueryRowContext(t.Context(), "SELECT @@sql_mode").Scan(&after); err != nil || after != before {
			t.Errorf("%s: sql_mode is %q, was %q: %v", mode, after, before, err)
		}
	}
}

// The user that docs/sql.md describes can call everything but Migrate and has no other privileges.
//
// Fails with one grant less, and when the procedures run with their owner's privileges: the user
// would then need no grants on the table.
func TestLeastPrivilegeMySQL(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedMariaDB(t)
	for _, params := range []string{oneTrip, ""} {
		s := mysqlOn(t, server, params).migrated(t)
		s.exec(t, "CREATE TABLE other (x INT)")
		s = s.app(t)
		store := s.open(t, sqllock.Options{})
		if err := store.Migrate(t.Context()); err != nil {
			t.Errorf("migrate, when there is nothing to do: %v", err)
		}
		everything(t, store)
		if err := s.open(t, sqllock.Options{TableName: "another"}).Migrate(t.Context()); err == nil ||
			!strings.Contains(err.Error(), "privilege") {
			t.Errorf("migrate: %v: must say that a privilege is missing", err)
		}
		db := openMySQL(t, server.DSN("app", "", s.database))
		for _, forbidden := range []string{"SELECT * FROM other", "TRUNCATE distributed_locks",
			"DROP TABLE distributed_locks", "CREATE TABLE mine (x INT)"} {
			if _, err := db.ExecContext(t.Context(), forbidden); err == nil ||
				!strings.Contains(err.Error(), "denied") {
				t.Errorf("%s: the user can: %v", forbidden, err)
			}
		}
		oneRightLess(t, s)
	}
}

func TestCleanupMySQL(t *testing.T) {
	t.Parallel()
	cleans(t, mysqlOn(t, sqltest.SharedMariaDB(t), oneTrip).migrated(t), daysAgo)
}

func daysAgo(days int) string { return fmt.Sprintf("UTC_TIMESTAMP(6) - INTERVAL %d DAY", days) }

// While Cleanup and acquires run concurrently, fences grow, a claimed tick stays claimed, and no
// attempt is refused.
//
// Fails when Cleanup does not lock the name: a tick is started twice, or a slot is hidden.
func TestCleanupInUseMySQL(t *testing.T) {
	t.Parallel()
	s := mysqlOn(t, sqltest.SharedMariaDB(t), oneTrip).migrated(t)
	const slots = 3
	names := testkit.Rounds(t, 10, 40)
	stores := []*sqllock.Store{s.open(t, sqllock.Options{}), s.open(t, sqllock.Options{}), s.open(t, sqllock.Options{})}
	fences := map[string]driver.Fence{}
	var mu sync.Mutex
	for round := range 4 {
		at := time.Now().Add(time.Duration(round) * time.Millisecond)
		acquire := func(store *sqllock.Store, n, i int) (driver.Grant, error) {
			return store.TryAcquire(t.Context(), driver.Request{Name: fmt.Sprint("name", n), Slots: slots,
				Token: fmt.Sprintf("t%d-%d-%d", round, n, i), TTL: time.Hour,
				Tick: &driver.Tick{At: at, Max: slots}})
		}
		var all sync.WaitGroup
		for _, store := range stores {
			all.Go(func() {
				for range 3 {
					if err := store.Cleanup(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
			all.Go(func() {
				for n := range names {
					for i := range slots {
						g, err := acquire(store, n, i) // all three stores use the same token
						if err != nil {
							t.Error(err)
							return
						}
						key := fmt.Sprint(n, " ", g.Slot)
						mu.Lock()
						if g.Fence < fences[key] {
							t.Errorf("%s: fence %d after %d", key, g.Fence, fences[key])
						}
						fences[key] = g.Fence
						mu.Unlock()
					}
				}
			})
		}
		all.Wait()
		for n := range names {
			if _, err := acquire(stores[0], n, slots); !errors.Is(err, driver.ErrNotAcquired) ||
				!strings.Contains(err.Error(), "tick") {
				t.Errorf("name %d: %v: its tick must have had all its starts", n, err)
			}
		}
		s.exec(t, fmt.Sprintf("UPDATE distributed_locks SET acquired_at = %s, expires_at = %[1]s WHERE slot >= 0; "+
			"UPDATE distributed_locks SET tick = 0 WHERE slot = -1", daysAgo(31)))
	}
}
