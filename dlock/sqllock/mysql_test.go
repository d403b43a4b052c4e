package sqllock_test

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
	"github.com/tickslot/tickslot/proof/torture/crowd"
)

// The driver would log every connection that these tests break.
func init() { _ = mysql.SetLogger(&mysql.NopLogger{}) }

// oneTrip makes the driver insert the arguments into the statement.
const oneTrip = "?interpolateParams=true"

// mysqlWays are the ways to connect to MySQL or MariaDB. They differ in how the driver sends a call
// and in the settings of the session.
func mysqlWays(t testing.TB, server *sqltest.Server) map[string]string {
	t.Helper()
	isolation := isolationVariable(t, server)
	strange := []string{"autocommit=0", isolation + "='SERIALIZABLE'", "time_zone='+05:30'",
		"sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'",
		"group_concat_max_len=4"}
	if has(t, server, "innodb_snapshot_isolation") {
		strange = append(strange, "innodb_snapshot_isolation=1")
	}
	return map[string]string{
		"one round trip": oneTrip,
		"prepared":       "",
		"read committed": oneTrip + "&clientFoundRows=true&charset=latin1&" + settings(isolation+"='READ-COMMITTED'"),
		"strange":        "?" + settings(strange...),
	}
}

// settings returns session variables in the form of the driver's DSN.
func settings(list ...string) string {
	for i, s := range list {
		name, value, _ := strings.Cut(s, "=")
		list[i] = name + "=" + url.QueryEscape(value)
	}
	return strings.Join(list, "&")
}

// isolationVariable returns the name of the isolation variable, which differs between MySQL and
// MariaDB.
func isolationVariable(t testing.TB, server *sqltest.Server) string {
	t.Helper()
	if has(t, server, "transaction_isolation") {
		return "transaction_isolation"
	}
	return "tx_isolation"
}

func has(t testing.TB, server *sqltest.Server, variable string) bool {
	t.Helper()
	return execOn(server, "")(t, "SHOW VARIABLES LIKE '"+variable+"'") != ""
}

// mysqlOn returns a subject on a new database whose collation ignores case.
func mysqlOn(t testing.TB, server *sqltest.Server, params string) subject {
	t.Helper()
	database := server.NewDatabase(t, "CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
	return subject{
		open:  viaMySQL(server.DSN("", "", database) + params),
		exec:  execOn(server, database),
		table: "distributed_locks", span: "INTERVAL %d MICROSECOND", database: database,
		as: func(_ testing.TB, user string) func(testing.TB, sqllock.Options) *sqllock.Store {
			return viaMySQL(server.DSN(user, "", database) + params)
		},
		grants: documented(t, "MySQL, MariaDB", database),
	}
}

// viaMySQL gives each host its own *sql.DB, as the package comment advises.
func viaMySQL(dsn string) func(testing.TB, sqllock.Options) *sqllock.Store {
	return func(t testing.TB, opts sqllock.Options) *sqllock.Store {
		t.Helper()
		db := openMySQL(t, dsn)
		db.SetMaxOpenConns(4)
		db.SetMaxIdleConns(4)
		return sqllock.MySQL(db, opts)
	}
}

func openMySQL(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// quickMariaDB returns a server that does not wait for its disk. Only a crash would lose data.
func quickMariaDB(t testing.TB, settings ...string) *sqltest.Server {
	t.Helper()
	return sqltest.MariaDB(t, sqltest.Options{Settings: append(settings, "innodb-flush-log-at-trx-commit=0")})
}

func TestConformanceMySQL(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	server := quickMariaDB(t)
	for way, params := range mysqlWays(t, server) {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			if way != "one round trip" {
				testkit.Long(t)
			}
			conform(t, mysqlOn(t, server, params).migrated(t).app(t))
		})
	}
}

func TestConformanceMySQLItself(t *testing.T) {
	t.Parallel()
	testkit.Long(t) // TestConformanceMySQL's store on the other server of the family
	server := sqltest.MySQL(t, sqltest.Options{Settings: []string{"innodb-flush-log-at-trx-commit=0"}})
	conform(t, mysqlOn(t, server, oneTrip).migrated(t).app(t))
}

func TestTimersMySQL(t *testing.T) {
	t.Parallel()
	for way, params := range map[string]string{"one round trip": oneTrip, "prepared": ""} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			testkit.SkipShort(t)
			testkit.Long(t) // make test runs these tests on Postgres and Redis
			keepsTimers(t, once(mysqlOn(t, sqltest.SharedMariaDB(t), params).migrated(t).app(t)))
		})
	}
}

func TestContentionMySQL(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	s := mysqlOn(t, quickMariaDB(t), oneTrip).migrated(t)
	for _, c := range contentions { // half as many, because a grant takes longer than in Postgres
		crowd.Contend(t, s.hosts(t), c.slots, c.workers, c.attempts*4)
	}
	if n := strings.TrimSpace(s.exec(t,
		"SELECT COUNT FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'")); n != "0" {
		t.Errorf("%s deadlocks: must be none, because all lock in one order, and no gaps", n)
	}
}

// The settings of a session do not affect which requests are granted.
//
// Fails when the session's isolation level is used: at SERIALIZABLE, reads and writes wait for each
// other.
func TestContentionOnStrangeSessionsMySQL(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	server := quickMariaDB(t)
	for _, way := range []string{"read committed", "strange"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := mysqlOn(t, server, mysqlWays(t, server)[way]).migrated(t)
			const attempts = 600
			crowd.Contend(t, s.hosts(t), 3, 12, attempts)
			crowd.Contend(t, s.hosts(t), 12, 12, attempts)
		})
	}
}

// A replica that applies the primary's binary log, in any format, has the same table in the end.
//
// Fails when a procedure writes values that depend on the primary, such as SYSDATE(), or runs at
// READ COMMITTED.
func TestReplicasMySQL(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	for i, format := range []string{"STATEMENT", "MIXED", "ROW"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			primary := quickMariaDB(t, "log-bin=binlog", "server-id=1", "binlog-format="+format)
			replica := quickMariaDB(t, "server-id=2")
			if !strings.Contains(execOn(primary, "")(t, "SELECT VERSION()"), "MariaDB") {
				servertest.Require(t, errors.New(
					"a replica of MariaDB: the statements of this test are not those of MySQL"),
					"install mariadb-server")
			}
			execOn(primary, "")(t, "CREATE USER copier; GRANT REPLICATION SLAVE ON *.* TO copier")
			execOn(replica, "")(t, fmt.Sprintf(
				"CHANGE MASTER TO master_host='127.0.0.1', master_port=%d, master_user='copier', "+
					"master_log_file='binlog.000001', master_log_pos=4;"+
					"START SLAVE", primary.Port()))
			s := mysqlOn(t, primary, "?"+settings(isolationVariable(t, primary)+"='READ-COMMITTED'")).migrated(t)
			everything(t, s.open(t, sqllock.Options{}))
			crowd.Contend(t, s.hosts(t), 3, 4+i, 300)
			database := strings.TrimSpace(s.exec(t, "SELECT DATABASE()"))
			position := strings.Fields(s.exec(t, "SHOW MASTER STATUS"))
			if got := strings.TrimSpace(execOn(replica, "")(t,
				fmt.Sprintf("SELECT MASTER_POS_WAIT('%s', %s, 20)", position[0], position[1]))); got == "NULL" ||
				got == "-1" {
				t.Fatalf("the replica has stopped:\n%s", execOn(replica, "")(t, "SHOW SLAVE STATUS"))
			}
			sums := map[string]string{}
			for name, server := range map[string]*sqltest.Server{"primary": primary, "replica": replica} {
				sums[name] = execOn(server, database)(t,
					"SELECT COUNT(*), SUM(fence) FROM distributed_locks; CHECKSUM TABLE distributed_locks EXTENDED")
			}
			if sums["primary"] != sums["replica"] {
				t.Errorf("%v", sums)
			}
		})
	}
}
