package commands_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// A fault of the store or of a command line is reported on one line. The line says where the store
// is, what failed, and what to type. It names no Go package or function.
//
// Fails when an error of a driver or of cobra is printed unchanged, or once for each part of the
// store.
func TestFaultsAreSaidInOneLine(t *testing.T) {
	t.Parallel()
	pg, my := sqltest.SharedPostgres(t), sqltest.SharedMariaDB(t)
	plain, withTLS := redistest.New(t, redistest.Options{}), redistest.New(t, redistest.Options{TLS: true})
	myURL := "mysql://root:" + servertest.Canary + "@" + my.Addr() + "/"
	database, myDatabase := pg.NewDatabase(t), my.NewDatabase(t)
	const lacksOutbox = `lacks tables of the outbox that this command needs, or they have other names: run "tickslot ` +
		`migrate up --only outbox", or say what the hosts use with --schema, --outbox-table`
	const lacksDurable = `lacks tables of durable runs that this command needs, or they have other names: run ` +
		`"tickslot migrate up`
	const lacksTables = `lacks tables that this command needs, or they have other names: run "tickslot migrate up"`
	for name, test := range map[string]struct {
		url, command string
		code         int
		says         string
	}{
		"no slashes": {"redis:127.0.0.1:6379", "timers ls", 1,
			"lacks its slashes: it must look like redis://host:6379/0"},
		"no slashes pg": {"postgres:host/db", "timers ls", 1,
			"lacks its slashes: it must look like postgres://host"},
		"no host": {"redis:///0", "timers ls", 1, "must look like redis://host:6379/0"},
		"wrong port": {"redis://127.0.0.1:1/0", "timers ls", 1,
			"no answer from Redis 127.0.0.1:1: connection refused\n"},
		"wrong port pg": {"postgres://a:b@127.0.0.1:1/x", "timers ls", 1,
			"no answer from Postgres 127.0.0.1:1/x: connection refused\n"},
		"wrong port mysql": {"mysql://a:b@127.0.0.1:1/x", "timers ls", 1,
			"no answer from MySQL 127.0.0.1:1/x: connection refused\n"},
		"wrong host":   {"redis://nowhere.invalid:1/0", "timers ls", 1, "there is no host nowhere.invalid"},
		"TLS to plain": {"rediss://" + plain.Addr(), "timers ls", 1, "let the URL begin with redis://."},
		"plain to TLS": {"redis://" + withTLS.Addr(), "timers ls", 1,
			"closes the connection. If the server wants TLS, let the URL begin with rediss://."},
		"TLS to plain pg": {strings.Replace(pg.DSN("", "", database), "=disable", "=require", 1), "timers ls", 1,
			"speaks no TLS. Leave sslmode out of the URL"},
		"TLS to plain my": {myURL + myDatabase + "?tls=true", "timers ls", 1,
			"speaks no TLS. Leave tls out of the URL"},
		"not a Redis": {"redis://" + my.Addr(), "timers ls", 1, "what answers is no Redis"},
		"no database": {pg.DSN("", "", "nosuch"), "timers ls", 1,
			`database "nosuch" does not exist: correct the URL`},
		"no database mysql": {myURL + "nosuch", "timers ls", 1, "Unknown database 'nosuch': correct the URL"},
		"no login": {pg.DSN("nobody", "wrong", database), "timers ls", 1,
			`refuses the login: password authentication failed for user "nobody"`},
		"no login mysql": {"mysql://root:wrong@" + my.Addr() + "/" + myDatabase, "timers ls", 1,
			"refuses the login: Access denied for user"},
		"no tables":         {pg.DSN("", "", database), "timers ls", 1, lacksTables},
		"no tables durable": {pg.DSN("", "", database), "durable ls", 1, lacksDurable},
		"no tables mysql":   {myURL + myDatabase, "outbox ls", 1, lacksOutbox},
		"Redis, outbox": {plain.URL(), "outbox ls", 1,
			"this store has no outbox, which is on Postgres, MySQL and SQLite"},
		"Redis, durable": {plain.URL(), "durable ls", 1, "this store has no durable runs, which are on Postgres"},
		"no outbox":      {"sqlite:" + noTables(t), "outbox ls", 1, lacksOutbox},
		"no durable runs": {"sqlite:" + noTables(t), "durable ls", 1, lacksDurable +
			" --only durable\", or say what the " +
			"hosts use with --schema, --durable-table"},
		"no durable handlers":       {"sqlite:" + noTables(t), "durable handlers", 1, lacksDurable},
		"no durable run to requeue": {"sqlite:" + noTables(t), "requeue durable 1", 1, lacksDurable},
		"no tables, pause": {pg.DSN("", "", database), "pause report", 1,
			"nothing is changed: timer \"report\": Postgres"},
		"no tables sqlite": {"sqlite:" + noTables(t), "timers ls", 1, lacksTables},
		"no database, TLS": {strings.Replace(pg.DSN("", "", "nosuch"), "=disable", "=prefer", 1), "timers ls", 1,
			"correct the URL\n"},
		"no name": {plain.URL(), "pause", 2,
			`NAME is missing: use "tickslot pause NAME" (tickslot pause --help)`},
		"no limit": {plain.URL(), "limit report", 2,
			`N|reset is missing: use "tickslot limit NAME N|reset"`},
		"two names": {plain.URL(), "pause a b", 2, `unexpected argument "b"`},
		"limit below 0": {plain.URL(), "limit report -1", 2,
			"a limit cannot be below 0: use a number from 0 to 10000, or reset"},
		"no such flag": {plain.URL(), "pause report --fro 2h", 2,
			"unknown flag: --fro (tickslot pause --help has all flags)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := tickslot(t, test.url, strings.Fields(test.command)...)
			if a.code != test.code || a.out != "" || strings.Count(a.err, "\n") != 1 ||
				!strings.Contains(a.err, test.says) {
				t.Errorf("exit code %d, or not one line with %q: %s", a.code, test.says, a)
			}
			for _, inside := range []string{"cluster:", "sqllock", "registry:", "Migrate", "SQLSTATE", "arg(s)",
				servertest.Canary} {
				if strings.Contains(a.err, inside) {
					t.Errorf("%q is in it: %s", inside, a)
				}
			}
		})
	}
}

// noTables returns a SQLite file in which only the locks have tables.
func noTables(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "locks.db")
	has(t, "sqlite:"+file, "migrate up --only locks")
	return file
}
