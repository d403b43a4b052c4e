package sqllock_test

import (
	"context"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// audits expects exactly one warning for each text in wants, in this order.
func audits(t *testing.T, what string, store *sqllock.Store, wants ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	warnings, err := store.Audit(ctx)
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if len(warnings) != len(wants) {
		t.Errorf("%s: %d warnings, want %d: %q", what, len(warnings), len(wants), warnings)
		return
	}
	for i, want := range wants {
		if !strings.Contains(warnings[i], want) {
			t.Errorf("%s: %q does not tell of %q", what, warnings[i], want)
		}
	}
}

// role creates a role with the permissions that the package comment lists, in a database with a
// table. It also returns a function that opens a store as this role.
func role(t *testing.T, server *sqltest.Server, database string) (name string, exec func(testing.TB, string) string,
	open func(testing.TB, sqllock.Options) *sqllock.Store) {
	t.Helper()
	exec = execOn(server, database)
	subject{open: viaPgx(t, server.DSN("", "", database)), exec: exec}.migrated(t)
	name = strings.ReplaceAll(sqltest.Unique("role"), ":", "") + database
	exec(t, "REVOKE ALL ON SCHEMA public FROM PUBLIC; CREATE ROLE "+name+" LOGIN PASSWORD '"+servertest.Canary+
		"'; GRANT USAGE ON SCHEMA public TO "+name+";"+
		"GRANT SELECT, INSERT, UPDATE, DELETE ON distributed_locks TO "+name+";"+
		"GRANT SELECT ON distributed_locks_migrations TO "+name)
	t.Cleanup(func() { exec(t, "DROP OWNED BY "+name+"; DROP ROLE "+name) })
	return name, exec, viaPgx(t, server.DSN(name, "", database))
}

// Audit has no warnings for a newly installed server and a role with the documented privileges. It
// warns of settings with which a crash loses leases, of a read-only server, and of missing
// privileges. A PgBouncer in transaction mode and synchronous_commit = off endanger no lease.
//
// Fails when a setting or privilege is not checked, or is checked with the wrong sign.
func TestAuditPostgres(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedPostgres(t)
	database := server.NewDatabase(t)
	name, exec, open := role(t, server, database)
	audits(t, "documented rights", open(t, sqllock.Options{}))
	extend := open(t, sqllock.Options{}).FunctionName("extend")
	audits(t, "a superuser", viaPgx(t, server.DSN("", "", database))(t, sqllock.Options{}),
		driver.AuditNote+"postgres is a superuser")
	exec(t, "ALTER ROLE "+name+" SET synchronous_commit = off")
	bouncer := sqltest.PgBouncer(t, server, "transaction")
	audits(t, "database/sql", viaSQL(t, server.DSN(name, "", database))(t, sqllock.Options{}))
	// PgBouncer logs in every client as that role.
	audits(t, "PgBouncer", viaPgx(t, bouncer.DSN("", "", database))(t, sqllock.Options{}), "postgres is a superuser")
	for _, c := range []struct{ what, do, undo, want string }{
		{"no DELETE", "REVOKE DELETE ON distributed_locks FROM $", "GRANT DELETE ON distributed_locks TO $",
			"so Cleanup fails: GRANT DELETE ON \"public\".\"distributed_locks\" TO " + name},
		{"no INSERT and UPDATE", "REVOKE INSERT, UPDATE ON distributed_locks FROM $",
			"GRANT INSERT, UPDATE ON distributed_locks TO $", "lacks INSERT, UPDATE on"},
		{"no EXECUTE", "REVOKE EXECUTE ON FUNCTION " + extend + " FROM PUBLIC", "GRANT EXECUTE ON FUNCTION " + extend +
			" TO PUBLIC",
			"may not execute \"public\"." + extend},
		{"read-only", "ALTER ROLE $ SET default_transaction_read_only = on",
			"ALTER ROLE $ RESET default_transaction_read_only", "read-only"},
		{"serializable", "ALTER ROLE $ SET default_transaction_isolation = 'serializable'",
			"ALTER ROLE $ RESET default_transaction_isolation", "transactions are serializable here"},
	} {
		exec(t, strings.ReplaceAll(c.do, "$", name))
		audits(t, c.what, viaPgx(t, server.DSN(name, "", database))(t, sqllock.Options{}), c.want)
		exec(t, strings.ReplaceAll(c.undo, "$", name))
	}
	audits(t, "all rights again", viaPgx(t, server.DSN(name, "", database))(t, sqllock.Options{}))
	exec(t, "REVOKE USAGE ON SCHEMA public FROM "+name)
	store := viaPgx(t, server.DSN(name, "", database))(t, sqllock.Options{Schema: "public"})
	if warnings, _ := store.Audit(t.Context()); len(warnings) != 1 ||
		!strings.Contains(warnings[0], "GRANT USAGE ON SCHEMA") {
		t.Errorf("no USAGE: %q", warnings)
	}

	unsafe := sqltest.Postgres(t, sqltest.Options{Settings: []string{"fsync=off"}})
	_, _, open = role(t, unsafe, unsafe.NewDatabase(t))
	audits(t, "fsync=off", open(t, sqllock.Options{}), "fsync is off")
}

// Fails when one of the settings is not checked.
func TestAuditMySQL(t *testing.T) {
	t.Parallel()
	audits(t, "a usual server", mysqlOn(t, sqltest.SharedMariaDB(t), oneTrip).migrated(t).open(t, sqllock.Options{}))
	s := mysqlOn(t, sqltest.MariaDB(t, sqltest.Options{Settings: []string{"innodb-flush-log-at-trx-commit=2", "log-bin",
		"sync-binlog=0"}}), oneTrip).migrated(t)
	s.exec(t, "SET GLOBAL read_only = 1")
	store := s.open(t, sqllock.Options{})
	audits(t, "three settings", store, "innodb_flush_log_at_trx_commit is 2", "sync_binlog is 0", "read-only")
	s.exec(t, "SET GLOBAL read_only = 0; SET GLOBAL sync_binlog = 1; SET GLOBAL innodb_flush_log_at_trx_commit = 1")
	audits(t, "corrected", store)
	s.exec(t, "SET GLOBAL innodb_flush_log_at_trx_commit = 0")
	audits(t, "flushed once a second", store, "innodb_flush_log_at_trx_commit is 0")
}

// Fails when Audit does not check the path, and when it takes an in-memory database for a file.
func TestAuditSQLiteFileSystem(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "locks.db")
	store := sqliteOn(path).migrated(t).open(t, sqllock.Options{})
	audits(t, "a disk of this machine", store)
	store.SetRemoteKind(func(got string) string {
		if got != path {
			t.Errorf("asked for %q, want %q", got, path)
		}
		return "nfs4"
	})
	audits(t, "a network", store, "the file is on nfs4")
	memory := sqllock.SQLite(openSQLite(t, ":memory:"), sqllock.Options{})
	if err := memory.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	audits(t, "memory", memory)
}

// Fails when a shallower mount point wins, when /data counts as a parent of /database, and when
// escapes are not decoded.
func TestKindOfFileSystem(t *testing.T) {
	t.Parallel()
	const mounts = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:44 / /data rw shared:5 master:1 - nfs4 server:/export rw,vers=4.2
41 40 8:2 / /data/local rw - xfs /dev/sdb1 rw
42 22 0:45 / /mnt/with\040space rw - cifs //server/share rw
43 22 0:46 / /over rw - ext4 /dev/sdc1 rw
44 43 0:47 / /over rw - fuse.sshfs host:/ rw
nonsense
45 22 - broken
`
	for path, want := range map[string]string{
		"/var/locks.db": "ext4", "/data/locks.db": "nfs4", "/database/locks.db": "ext4",
		"/data/local/x/locks.db": "xfs", "/data": "nfs4",
		"/mnt/with space/locks.db": "cifs", "/over/locks.db": "fuse.sshfs",
	} {
		if got := sqllock.KindOf(path, mounts); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if got := sqllock.KindOf("/x", ""); got != "" {
		t.Errorf("nothing is mounted: %q", got)
	}
}

// Fails when the difference has the wrong sign, when the round trip is not allowed for, and when
// only one direction has a limit. Fails for a database whose answer has another time zone or unit.
func TestAuditOfTheClock(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedPostgres(t)
	_, _, open := role(t, server, server.NewDatabase(t))
	mysql := mysqlOn(t, sqltest.SharedMariaDB(t), oneTrip).migrated(t)
	elsewhere := strings.TrimSpace(mysql.exec(t, "SELECT DATABASE()"))
	for what, store := range map[string]*sqllock.Store{
		"Postgres": open(t, sqllock.Options{}), "MariaDB": mysql.open(t, sqllock.Options{}),
		"MariaDB in another time zone": viaMySQL(sqltest.SharedMariaDB(t).DSN("", "",
			elsewhere)+oneTrip+"&time_zone=%27%2B05%3A00%27")(t, sqllock.Options{}),
	} {
		for offset, side := range map[time.Duration]string{
			3 * time.Second: "ahead of", -3 * time.Second: "behind", time.Hour: "ahead of", 500 * time.Millisecond: "",
			-500 * time.Millisecond: "",
		} {
			store.SetHostClock(func() time.Time { return time.Now().Add(offset) })
			if side == "" {
				audits(t, what+" "+offset.String(), store)
				continue
			}
			warnings, err := store.Audit(t.Context())
			if err != nil || len(warnings) != 1 {
				t.Errorf("%s, %v: %q, %v", what, offset, warnings, err)
				continue
			}
			told := regexp.MustCompile(`the clock of this host is (\S+) (ahead of|behind) the server's`).
				FindStringSubmatch(warnings[0])
			if told == nil || told[2] != side {
				t.Errorf("%s, %v: %q: want %q", what, offset, warnings[0], side)
				continue
			}
			if d, err := time.ParseDuration(told[1]); err != nil || (d-offset.Abs()).Abs() > 500*time.Millisecond {
				t.Errorf("%s, %v: %q", what, offset, warnings[0])
			}
		}
		// A slow answer is inexact, because the clock may have been read at any moment of the call.
		slow := time.Duration(0)
		store.SetHostClock(func() time.Time {
			now := time.Now().Add(slow)
			slow += 5 * time.Second
			return now
		})
		audits(t, what+", a round trip of 5s", store)
	}
}
