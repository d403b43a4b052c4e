package commands_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// A result is the result of one check of the doctor.
type result struct {
	About, Text, Fix, Severity string
}

// A fault is set up by a test and must be found by the doctor.
type fault struct {
	name  string
	setUp func(t *testing.T) (url string)
	flags string
	fails []string // for each check that must fail, a part of its text; nil if any number may fail
	fix   string   // a part of the advice of one of them; "" if all must pass
}

const slowTrips = "leases are renewed too late when it gets worse"

// noHosts is the note about a store in which no host is registered.
const noHosts = "none is registered, so they cannot be compared"

// runDoctor runs the doctor and checks that its exit code matches its results. Slow round trips are
// ignored unless a test checks for slowTrips, because a busy machine is slow.
func runDoctor(t *testing.T, url, flags string) (failed []result) {
	t.Helper()
	a := tickslot(t, url, append(strings.Fields(flags), "doctor", "-o", "json", "--calls", "3")...)
	var all []result
	if err := json.Unmarshal([]byte(a.out), &all); err != nil {
		t.Fatal(err, a)
	}
	failures := 0
	for _, f := range all {
		if (f.Severity == "ok") != (f.Fix == "") {
			t.Errorf("a check that finds something without a fix, or passes with one: %+v", f)
		}
		if !slices.Contains([]string{"ok", "note", "warning", "failure"}, f.Severity) ||
			strings.Contains(f.Text+f.Fix, "Migrate") {
			t.Errorf("no severity, or a name of Go: %+v", f)
		}
		if f.Severity != "ok" && !strings.Contains(f.Text, noHosts) {
			failed = append(failed, f)
		}
		if f.Severity == "failure" {
			failures++
		}
	}
	if (a.code == 1) != (failures > 0) || a.code > 1 {
		t.Errorf("exit code %d, although %d checks failed: %s", a.code, failures, a)
	}
	return failed
}

func checkFaults(t *testing.T, faults []fault) {
	t.Helper()
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			f.check(t)
		})
	}
}

func (f fault) check(t *testing.T) {
	t.Helper()
	failed := runDoctor(t, f.setUp(t), f.flags)
	if !slices.Contains(f.fails, slowTrips) {
		failed = butSlowTrips(failed)
	}
	all, fixes := "", ""
	for _, r := range failed {
		all += fmt.Sprintf("\n%s: %s\n\t%s", r.About, r.Text, r.Fix)
		fixes += r.Fix + "\n"
	}
	if len(failed) != len(f.fails) && (f.fails != nil || f.fix == "") || !strings.Contains(fixes, f.fix) {
		t.Errorf("%d checks failed, not %d, or %q is not the fix: %s", len(failed), len(f.fails), f.fix, all)
	}
	for _, text := range f.fails {
		if !slices.ContainsFunc(failed, func(r result) bool {
			return strings.Contains(r.About+": "+r.Text, text)
		}) {
			t.Errorf("not found: %q in %s", text, all)
		}
	}
}

// A lack is a right that a user does not have on a table or procedure.
type lack struct {
	right, on string
	fails     []string
	fix       string
}

// checkLacks revokes one right after the other from a user, runs the doctor, and grants the right
// again. It uses a single database, because creating one for each right takes longer than the
// doctor.
func checkLacks(t *testing.T, driver string, server *sqltest.Server, lacks []lack,
	in func(t *testing.T) (database, user, url string)) {
	t.Helper()
	t.Run("rights", func(t *testing.T) {
		t.Parallel()
		database, user, url := in(t)
		root, err := sql.Open(driver, server.DSN("", "", database))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { root.Close() })
		execute := func(t *testing.T, statement string) {
			t.Helper()
			if _, err := root.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		for _, l := range lacks {
			t.Run("no "+l.right+" on "+l.on, func(t *testing.T) {
				right := l.right + " ON " + l.on
				execute(t, "REVOKE "+right+" FROM "+user)
				fault{setUp: func(*testing.T) string { return url }, fails: l.fails, fix: l.fix}.check(t)
				execute(t, "GRANT "+right+" TO "+user)
			})
		}
	})
}

func butSlowTrips(results []result) []result {
	return slices.DeleteFunc(results, func(r result) bool { return strings.Contains(r.Text, slowTrips) })
}

// healthy starts a Redis server without faults.
func healthy(t *testing.T, args ...string) *redistest.Server {
	t.Helper()
	return redistest.New(t, redistest.Options{Args: append([]string{"--appendonly", "yes"}, args...)})
}

// registryRights returns the commands that docs/redis.md lists for the registry.
func registryRights(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(docs + "redis.md")
	if err != nil {
		t.Fatal(err)
	}
	said := regexp.MustCompile("(?sm)^- for the registry alone: `(.*?)`").FindSubmatch(text)
	if said == nil {
		t.Fatal("docs/redis.md has no rights for the registry")
	}
	return strings.Join(strings.Fields(string(said[1])), " ")
}

// as returns a Redis URL for a user with the rights listed in docs/redis.md, except the given ones.
func as(t *testing.T, server *redistest.Server, without ...string) string {
	t.Helper()
	user, err := redistest.DocumentedUser(docs + "redis.md")
	if err != nil {
		t.Fatal(err)
	}
	args := []any{"ACL", "SETUSER"}
	for _, word := range slices.Concat(user, strings.Fields(registryRights(t)), without) {
		args = append(args, word)
	}
	if err := server.Client().Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Replace(server.URL(), "//:", "//tickslot:", 1)
}

// The doctor finds the faults of a Redis server, one at a time, and nothing else.
//
// Fails when a fault is not found, has no advice, or leaves the exit code at 0.
func TestDoctorOnRedis(t *testing.T) {
	t.Parallel()
	checkFaults(t, []fault{
		{name: "healthy", setUp: func(t *testing.T) string { return healthy(t).URL() }},
		{"least privilege", func(t *testing.T) string { return as(t, healthy(t)) }, "--prefix shop:", nil, ""},
		{"eviction", func(t *testing.T) string {
			return healthy(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru").URL()
		}, "", []string{"maxmemory-policy is allkeys-lru"}, "set it to noeviction"},
		{"no persistence", func(t *testing.T) string {
			return redistest.New(t, redistest.Options{Args: []string{"--appendonly", "no", "--save", ""}}).URL()
		}, "", []string{"neither the append-only file nor snapshots are on"}, "set appendonly yes"},
		{"replicas are not waited for", func(t *testing.T) string { return master(t).URL() }, "",
			[]string{"min-replicas-to-write is 0"}, "set min-replicas-to-write 1"},
		{"a replica", func(t *testing.T) string { return replica(t, healthy(t)).URL() }, "",
			[]string{"this server is a replica"}, "connect to the master"},
		{"no right to the registry", func(t *testing.T) string { return as(t, healthy(t), "-hgetall") },
			"--prefix shop:", []string{"hosts: the registry cannot be read"},
			"ACL SETUSER USER '~{PREFIX*' " + registryRights(t) + " (docs/redis.md, under Registry)"},
		{"no right to INFO", func(t *testing.T) string { return as(t, healthy(t), "-info") }, "--prefix shop:",
			[]string{"may not execute INFO"}, "grant +info"},
		{"no right to TIME", func(t *testing.T) string { return as(t, healthy(t), "-time") }, "--prefix shop:",
			[]string{"may not execute TIME", "the registry cannot be read"}, "docs/redis.md"},
		{"no right to the keys", func(t *testing.T) string { return as(t, healthy(t)) }, "--prefix other:",
			[]string{"hosts: the registry cannot be read", "keys of locks: this user may not use them"},
			"See that --prefix is that of the hosts"},
		{"fewer replicas than are waited for", func(t *testing.T) string {
			return healthy(t, "--min-replicas-to-write", "5").URL()
		}, "", []string{"only 0 replicas are in step, and min-replicas-to-write is 5"}, "Start replicas"},
		{"fewer replicas, which may not be asked", func(t *testing.T) string {
			return as(t, healthy(t, "--min-replicas-to-write", "1"), "-config")
		}, "--prefix shop:", []string{"only 0 replicas are in step"}, "Start replicas"},
		{"memory is full", func(t *testing.T) string {
			return healthy(t, "--maxmemory", "1mb", "--maxmemory-policy", "noeviction").URL()
		}, "", []string{"the memory is full"}, "Raise maxmemory"},
		{"appendfsync no", func(t *testing.T) string { return healthy(t, "--appendfsync", "no").URL() }, "",
			[]string{"appendfsync is no"}, "Set appendfsync everysec"},
		{"another password", func(t *testing.T) string {
			return strings.Replace(healthy(t).URL(), servertest.Canary, "hunter2", 1)
		}, "", []string{"connection: the store does not answer: WRONGPASS"}, "password"},
		{"nobody is there", func(*testing.T) string { return "redis://127.0.0.1:1/0" }, "",
			[]string{"connection: the store does not answer"}, "See that it runs"},
		{"a clock an hour off", func(t *testing.T) string {
			server, clock := redistest.NewWithClock(t, redistest.Options{Args: []string{"--appendonly", "yes"}})
			clock.Set(time.Hour)
			return server.URL()
		}, "", []string{"behind the server's"}, "synchronize both with NTP"},
		{"slow round trips", func(t *testing.T) string {
			server := healthy(t)
			proxy := servertest.NewProxyFor(t, server.Addr())
			proxy.DelayReplies(450 * time.Millisecond)
			return strings.Replace(server.URL(), server.Addr(), proxy.Addr(), 1)
		}, "", []string{slowTrips}, "raise StoreTimeout"},
	})
}

// replica starts a replica of a master and waits until it is in sync.
func replica(t *testing.T, of *redistest.Server) *redistest.Server {
	t.Helper()
	server := redistest.New(t, redistest.Options{Args: []string{"--repl-diskless-sync-delay", "0"}})
	if err := server.Client().ReplicaOf(t.Context(), "127.0.0.1", fmt.Sprint(of.Port())).Err(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "the replica is in sync", func() bool {
		info, err := of.Client().Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "state=online")
	})
	return server
}

func master(t *testing.T) *redistest.Server {
	t.Helper()
	server := healthy(t, "--repl-diskless-sync-delay", "0")
	replica(t, server)
	return server
}

// grants returns the GRANT statements of a page for a role, on the schema public or on the
// database.
func grants(t *testing.T, page, of, schema, role string) string {
	t.Helper()
	list, err := sqltest.Documented(docs+page, of, schema, role)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, "\n") + "\n"
}

// granted returns the rights of a host that does everything.
func granted(t *testing.T, schema, role, on string) string {
	t.Helper()
	registry, worker, locks := "registry, "+on, "durable, a worker", grants(t, "sql.md", on, schema, role)
	all := locks + strings.ReplaceAll(locks, "distributed_locks", "tickslot_outbox_locks") +
		grants(t, "sql.md", registry, schema, role) + grants(t, "sql.md", "outbox, relay, "+on, schema, role)
	if on == "Postgres" {
		all += grants(t, "sql.md", worker, schema, role)
	}
	return all
}

// base returns a Postgres database with all tables, and with rights for the user app.
func base(t *testing.T, server *sqltest.Server) (database string) {
	t.Helper()
	database = server.NewDatabase(t)
	has(t, server.DSN("", "", database), "migrate up")
	execute(t, server, database, granted(t, "public", "app", "Postgres"))
	return database
}

func execute(t *testing.T, server *sqltest.Server, database, statements string) {
	t.Helper()
	if _, err := server.Exec(database, statements); err != nil {
		t.Fatal(err)
	}
}

// The doctor finds the faults of a Postgres server, one at a time, and nothing else.
//
// Fails when a fault is not found, has no advice, or leaves the exit code at 0.
func TestDoctorOnPostgres(t *testing.T) {
	t.Parallel()
	sqltest.RequirePgBouncer(t)
	server := sqltest.SharedPostgres(t)
	template := base(t, server)
	copied := func(t *testing.T) string { return server.NewDatabase(t, "TEMPLATE "+template) }
	app := func(statements ...string) func(t *testing.T) string {
		return func(t *testing.T) string {
			database := copied(t)
			for _, s := range statements {
				execute(t, server, database, strings.ReplaceAll(s, ":database", database))
			}
			return server.DSN("app", "", database)
		}
	}
	faults := []fault{
		{name: "healthy", setUp: app()},
		{"a pooler that gives each transaction another connection", func(t *testing.T) string {
			return sqltest.PgBouncer(t, server, "transaction").DSN("app", "", copied(t))
		}, "", []string{"pooler: a pooler gives each transaction another connection"}, "pool_mode = session"},
		{"a superuser", func(t *testing.T) string { return server.DSN("", "", copied(t)) }, "",
			[]string{"is a superuser"}, "docs/sql.md"},
		{"no right on the locks", app("REVOKE UPDATE ON distributed_locks FROM app"), "",
			[]string{"app lacks UPDATE on"}, "GRANT UPDATE ON"},
		{"no right on the schema", app("REVOKE USAGE ON SCHEMA public FROM app, public"), "", nil, "GRANT USAGE ON"},
		{"no tables", func(t *testing.T) string { return server.DSN("app", "", server.NewDatabase(t)) }, "",
			[]string{"tables of locks"}, "migrate up --only locks"},
		{"older locks", app("DELETE FROM distributed_locks_migrations"), "",
			[]string{"tables of locks"}, "migrate up --only locks"},
		{"an older registry", app("ALTER TABLE tickslot_registry DROP COLUMN renewed_at"), "",
			[]string{"tables of registry", "hosts: the registry cannot be read"}, "migrate up --only registry"},
		{"a part of durable runs", app("DROP TABLE tickslot_durable_attempts"), "",
			[]string{"tables of durable"}, "migrate up --only durable"},
		{"an older outbox", app("DELETE FROM tickslot_outbox_migrations"), "", []string{"tables of outbox"},
			"migrate up --only outbox"},
		{"read-only", app("ALTER ROLE app IN DATABASE :database SET default_transaction_read_only = on"), "",
			[]string{"transactions are read-only here"}, "SET default_transaction_read_only = off"},
		{"isolation", app("ALTER ROLE app IN DATABASE :database SET default_transaction_isolation = " +
			"'serializable'"), "", []string{"transactions are serializable here"}, "read committed"},
		{"fsync and clock", func(t *testing.T) string {
			other := sqltest.Postgres(t, sqltest.Options{Settings: []string{"fsync=off"}, ClockAhead: time.Hour})
			return other.DSN("app", "", base(t, other))
		}, "", []string{"fsync is off", "behind the server's"}, "set it to on"},
	}
	checkFaults(t, faults)
	var lacks []lack
	for table, rights := range map[string]string{"tickslot_registry": "SELECT INSERT UPDATE DELETE",
		"tickslot_durable_runs": "SELECT INSERT UPDATE DELETE", "tickslot_durable_attempts": "INSERT DELETE",
		"tickslot_durable_schedules": "UPDATE", "tickslot_durable_handlers": "DELETE",
		"tickslot_outbox": "SELECT UPDATE DELETE", "tickslot_outbox_attempts": "INSERT DELETE",
		"tickslot_outbox_inbox": "DELETE", "tickslot_outbox_layout": "UPDATE"} {
		for right := range strings.FieldsSeq(rights) {
			fails := []string{`this user lacks ` + right + ` on "public"."` + table + `"`}
			if table == "tickslot_registry" && right == "SELECT" {
				fails = append(fails, "hosts: the registry cannot be read")
			}
			lacks = append(lacks, lack{right, table, fails,
				fmt.Sprintf(`GRANT %s ON "public".%q TO "app"`, right, table)})
		}
	}
	checkLacks(t, "pgx", server, lacks, func(t *testing.T) (database, user, url string) {
		database = copied(t)
		return database, "app", server.DSN("app", "", database)
	})
}

// The doctor finds the faults of a MariaDB server.
//
// Fails when a fault is not found, has no advice, or leaves the exit code at 0.
func TestDoctorOnMariaDB(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedMariaDB(t)
	planted := func(t *testing.T, server *sqltest.Server, statements string) (database, user, url string) {
		database = server.NewDatabase(t)
		user = "u" + database[len(database)-10:]
		as := func(user string) string {
			return "mysql://" + user + ":" + servertest.Canary + "@" + server.Addr() + "/" + database
		}
		has(t, as("root"), "migrate up")
		execute(t, server, database, "CREATE USER "+user+" IDENTIFIED BY '"+servertest.Canary+"';"+
			granted(t, database, user, "MySQL, MariaDB")+statements)
		return database, user, as(user)
	}
	plant := func(server *sqltest.Server, statements string) func(t *testing.T) string {
		return func(t *testing.T) string {
			_, _, url := planted(t, server, statements)
			return url
		}
	}
	faults := []fault{
		{name: "healthy", setUp: plant(server, "")},
		{"an older registry", plant(server, "ALTER TABLE tickslot_registry DROP COLUMN renewed_at"), "",
			[]string{"tables of registry", "hosts: the registry cannot be read"}, "migrate up --only registry"},
		{"what a crash forgets", func(t *testing.T) string {
			other := sqltest.MariaDB(t, sqltest.Options{Settings: []string{"innodb-flush-log-at-trx-commit=2"}})
			return plant(other, "")(t)
		}, "", []string{"innodb_flush_log_at_trx_commit is 2"}, "set it to 1"},
		{"read-only", func(t *testing.T) string {
			other := sqltest.MariaDB(t)
			return plant(other, "SET GLOBAL read_only = 1")(t)
		}, "", []string{"this server is read-only"}, "connect to the primary"},
	}
	checkFaults(t, faults)
	var lacks []lack
	for table, rights := range map[string]string{"tickslot_registry": "INSERT UPDATE DELETE",
		"distributed_locks": "INSERT DELETE", "tickslot_outbox": "UPDATE DELETE",
		"tickslot_outbox_attempts": "INSERT DELETE",
		"tickslot_outbox_layout":   "UPDATE"} {
		for right := range strings.FieldsSeq(rights) {
			lacks = append(lacks, lack{right, table, []string{"this user lacks " + right + " on `"},
				"GRANT " + right + " ON `"})
		}
	}
	for procedure, shared := range map[string][]string{"distributed_locks_acquire_v1": {"settings for leases"},
		"tickslot_outbox_locks_revoke_v1": nil} {
		lacks = append(lacks, lack{"EXECUTE", "PROCEDURE " + procedure,
			append(shared, "this user lacks EXECUTE on PROCEDURE `"+procedure),
			"GRANT EXECUTE ON PROCEDURE `" + procedure + "` TO 'u"})
	}
	checkLacks(t, "mysql", server, lacks, func(t *testing.T) (database, user, url string) {
		return planted(t, server, "")
	})
}

// The doctor finds the faults that hosts report, and differences between hosts.
//
// Fails when a fault is not found, has no advice, or leaves the exit code at 0.
func TestDoctorOnHosts(t *testing.T) {
	t.Parallel()
	other := dlock.Holder{Host: "web-2", PID: 8, ID: "def"}
	beside := func(row *cluster.Heartbeat) func(t *testing.T) string {
		return func(t *testing.T) string {
			url, file := sqlite(t)
			registry := sqlregistry.SQLite(open(t, file), sqlregistry.Options{})
			write(t, registry, cluster.Batch{Host: hostRow(holder, "1.2", "production", 1)})
			write(t, registry, cluster.Batch{Host: row})
			return url
		}
	}
	refused := func(change func(*cluster.Heartbeat)) func(t *testing.T) string {
		r := hostRow(other, "1.2", "staging", 2)
		r.Detail = []byte(`{"refused":true,"timers":[{"name":"report","max_concurrency":2}]}`)
		if change != nil {
			change(r)
		}
		return beside(r)
	}
	row := func(change func(*cluster.Heartbeat)) *cluster.Heartbeat {
		r := hostRow(other, "1.2", "production", 1)
		change(r)
		return r
	}
	checkFaults(t, []fault{
		{name: "healthy", setUp: beside(hostRow(other, "1.2", "production", 1))},
		{"limits", beside(hostRow(other, "1.2", "production", 2)), "",
			[]string{"limits: hosts differ for timer report: 1 × 1, 1 × 2"}, "the same MaxConcurrency"},
		{"versions of the program", beside(hostRow(other, "1.3", "production", 1)), "",
			[]string{"version of the program: hosts differ: 1 × 1.2, 1 × 1.3"}, "Finish the roll-out"},
		{"versions of tickslot", beside(row(func(r *cluster.Heartbeat) { r.Version = "v1.1.0" })), "",
			[]string{"version of tickslot: hosts differ: 1 × v1.0.0, 1 × v1.1.0"}, "Finish the roll-out"},
		{"environments", beside(hostRow(other, "1.2", "staging", 1)), "",
			[]string{"environment: hosts differ: 1 × production, 1 × staging"}, "prefix, of its own"},
		{"a process that is refused", refused(nil), "",
			[]string{"environment: web-2/8/def was refused and takes no work: its environment is staging"},
			"Correct the setting from which that process takes its environment"},
		{"a process that was refused, and has stopped", refused(func(h *cluster.Heartbeat) { h.Left = true }),
			"",
			[]string{"environment: web-2/8/def was refused and takes no work"}, "prefix of its own"},
		{"a process that was refused a while ago", func(t *testing.T) string {
			url, file := sqlite(t)
			write(t, sqlregistry.SQLite(open(t, file), sqlregistry.Options{}), cluster.Batch{
				Host: hostRow(holder, "1.2", "production", 1),
				Events: []cluster.Event{{ID: "e", Slot: -1, Holder: other, Kind: cluster.EventHostRefused,
					Text: "its environment is staging", Ago: 59 * time.Minute}}})
			return url
		}, "", []string{"environment: web-2/8/def was refused"}, "prefix of its own"},
		{"a loop with an error", beside(hostRow(other, "1.2", "production", 1, cluster.RunnerDetail{Kind: "leader",
			Name: "billing", State: "candidate", Err: "no route"})), "",
			[]string{"web-2/8/def: leader billing: no route"}, "Its log says more"},
		{"a clock", beside(row(func(r *cluster.Heartbeat) { r.ClockOffset = -5 * time.Second })), "",
			[]string{"the clock of web-2/8/def is -5s off"}, "NTP"},
		{"a silent process", func(t *testing.T) string {
			url, file := sqlite(t)
			db := open(t, file)
			registry := sqlregistry.SQLite(db, sqlregistry.Options{})
			write(t, registry, cluster.Batch{Host: hostRow(holder, "1.2", "production", 1)})
			silent := hostRow(other, "1.2", "production", 1)
			write(t, registry, cluster.Batch{Host: silent})
			// One and a half TTLs ago: the host is gone only after two.
			if _, err := db.Exec("UPDATE tickslot_registry SET renewed_at = renewed_at - ? WHERE machine = ?",
				silent.TTL.Microseconds()*3/2, other.Host); err != nil {
				t.Fatal(err)
			}
			return url
		}, "", []string{"web-2/8/def is silent"}, "See whether the process runs"},
		{"durable runs without tables", func(t *testing.T) string {
			url, file := sqlite(t)
			if _, err := open(t, file).Exec("DROP TABLE tickslot_durable_runs"); err != nil {
				t.Fatal(err)
			}
			write(t, sqlregistry.SQLite(open(t, file), sqlregistry.Options{}), cluster.Batch{Host: hostRow(holder, "1",
				"production", 1, cluster.RunnerDetail{Kind: "worker", Name: "default"})})
			return url
		}, "", []string{"tables of durable"}, "migrate up --only durable"},
		{"a file without a write-ahead log", func(t *testing.T) string {
			url, file := sqlite(t)
			if _, err := open(t, file).Exec("PRAGMA journal_mode = delete"); err != nil {
				t.Fatal(err)
			}
			return url
		}, "", []string{"journal_mode is delete"}, "execute PRAGMA journal_mode = wal"},
	})
}

// The doctor's exit code is 1 only for failures, not during a rollout or for a user with
// unnecessary rights. If it finds no hosts, it asks whether the prefix is right.
//
// Fails when a warning or a note counts as a failure, or a failure does not.
func TestDoctorTellsFailuresFromWarnings(t *testing.T) {
	t.Parallel()
	url, file := sqlite(t)
	a := tickslot(t, url, "doctor", "--calls", "1")
	if a.code != 0 || !strings.Contains(a.out, "note hosts: "+noHosts) || !strings.Contains(a.out, "--prefix") {
		t.Errorf("no hosts: exit code %d: %s", a.code, a)
	}
	registry := sqlregistry.SQLite(open(t, file), sqlregistry.Options{})
	write(t, registry, cluster.Batch{Host: hostRow(holder, "1.2", "production", 1)})
	write(t, registry, cluster.Batch{Host: hostRow(dlock.Holder{Host: "web-2", PID: 8, ID: "def"}, "1.3", "production",
		2)})
	a = tickslot(t, url, "doctor", "--calls", "1")
	if a.code != 0 || !strings.Contains(a.out, "warn version of the program") ||
		!strings.Contains(a.out, "warn limits") {
		t.Errorf("a roll-out: exit code %d: %s", a.code, a)
	}
	write(t, registry, cluster.Batch{Host: hostRow(dlock.Holder{Host: "web-3", PID: 9, ID: "ghi"}, "1.3", "staging",
		2)})
	a = tickslot(t, url, "doctor", "--calls", "1")
	if a.code != 1 || !strings.Contains(a.out, "FAIL environment") {
		t.Errorf("two environments: exit code %d: %s", a.code, a)
	}
}
