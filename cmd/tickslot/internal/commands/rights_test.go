package commands_test

import (
	"database/sql"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

const docs = "../../../../docs/"

// A rightsBase is a database with data for every part, and a user without rights.
type rightsBase struct {
	t              *testing.T
	server         *sqltest.Server
	database, kind string
	user, url      string
	db             *sql.DB // a connection of root
}

func newRightsBase(t *testing.T, kind string) *rightsBase {
	t.Helper()
	b := &rightsBase{t: t, kind: kind}
	driverName, asUser := "pgx", ""
	if kind == "Postgres" {
		b.server = sqltest.SharedPostgres(t)
	} else {
		b.server, driverName = sqltest.SharedMariaDB(t), "mysql"
	}
	b.database = b.server.NewDatabase(t)
	b.user = "u" + b.database[len(b.database)-10:]
	root := b.server.DSN("", "", b.database)
	b.url, asUser = b.server.DSN(b.user, "", b.database), "CREATE ROLE "+b.user+" LOGIN PASSWORD '"+servertest.Canary+
		"'; REVOKE ALL ON SCHEMA public FROM PUBLIC"
	if kind != "Postgres" {
		at := ":" + servertest.Canary + "@" + b.server.Addr() + "/" + b.database
		root, b.url = "mysql://root"+at, "mysql://"+b.user+at
		asUser = "CREATE USER " + b.user + " IDENTIFIED BY '" + servertest.Canary + "'; CREATE TABLE bystander " +
			"(a INT); GRANT SELECT ON bystander TO " + b.user // needs one right to connect
	}
	has(t, root, "migrate up")
	execute(t, b.server, b.database, asUser)
	t.Cleanup(func() {
		if kind == "Postgres" {
			execute(t, b.server, b.database, "DROP OWNED BY "+b.user+" CASCADE; DROP ROLE "+b.user)
		} else {
			execute(t, b.server, b.database, "DROP USER "+b.user)
		}
	})
	var err error
	if b.db, err = sql.Open(driverName, b.server.DSN("", "", b.database)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.db.Close() })
	return b
}

// exec executes a statement as root, without starting a client program, which would take three
// times as long.
func (b *rightsBase) exec(statement string) {
	b.t.Helper()
	if _, err := b.db.ExecContext(b.t.Context(), statement); err != nil {
		b.t.Fatalf("%s: %v", statement, err)
	}
}

// seed creates what the commands find: a held slot, a queued run, and a dead message.
func (b *rightsBase) seed() {
	b.t.Helper()
	open, id := sqllock.MySQL, "0x00000000000000000000000000000001"
	if b.kind == "Postgres" {
		open, id = sqllock.Postgres, "'"+message+"'"
	}
	locks := open(b.db, sqllock.Options{})
	defer locks.Close()
	_, err := locks.TryAcquire(b.t.Context(), driver.Request{Name: "timer:report", Slots: 1, TTL: time.Hour,
		Token: "token", Holder: holder})
	if err != nil {
		b.t.Fatal(err)
	}
	key := strings.NewReplacer("Postgres", "key", "MySQL, MariaDB", "`key`").Replace(b.kind)
	seed := "INSERT INTO tickslot_outbox (message_id, topic, " + key + ", key_hash, payload, headers, state, " +
		"finished_at) VALUES (" + id + ", 'orders', '', 0, 'x', '{}', 'dead', now());"
	execute(b.t, b.server, b.database, seed)
	if b.kind == "Postgres" {
		has(b.t, b.server.DSN("", "", b.database), "trigger mail --durable --by ann --force", "queued run 1")
	}
}

const message = "00000000-0000-0000-0000-000000000001"

// The commands that need a right on a table or one of its procedures.
var (
	looks = map[string][]string{"distributed_locks": {"slots ls", "explain report"}, "tickslot_registry": {"hosts ls"},
		"tickslot_outbox": {"outbox ls"}, "tickslot_durable_runs": {"durable ls"},
		"tickslot_durable_handlers":  {"durable handlers"},
		"tickslot_durable_schedules": {"durable schedules"}}
	changes = map[string][]string{"distributed_locks": {"limit report 3", "trigger report", "cancel report --slot 0"},
		"tickslot_registry": {"pause report --for 1h"}, "tickslot_outbox": {"requeue outbox " + message},
		"tickslot_durable_runs":     {"trigger mail --durable --force", "cancel --durable 1", "requeue durable 1"},
		"tickslot_durable_handlers": {"limit mail 3 --durable --force", "pause mail --durable --for 1h --force"}}
)

// refused runs commands and returns what they print about rights.
func (b *rightsBase) refused(commands []string) (all string) {
	for _, c := range commands {
		if a := tickslot(b.t, b.url, strings.Fields(c)...); missing.MatchString(a.err) {
			all += c + ": " + a.err
		} else if a.code != 0 && !strings.Contains(a.err, "no such") {
			all += c + ": " + a.err
		}
	}
	return all
}

var missing = regexp.MustCompile("privilege|right|denied|may not")

// The rights listed in docs/command-line.md are sufficient for a reader and for an operator, and
// each of them is needed: without it, a command reports a missing right.
//
// Fails when a command needs an undocumented right, or when a documented one is unnecessary.
func TestRights(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Postgres", "MySQL, MariaDB"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newRightsBase(t, kind)
			b.seed()
			schema := "public"
			if kind != "Postgres" {
				schema = b.database
			}
			for _, of := range []struct {
				who      string
				commands map[string][]string
			}{{"who looks", looks}, {"operator", changes}} {
				heading := "command line, " + of.who + ", " + kind
				grants, err := sqltest.Documented(docs+"command-line.md", heading, schema, b.user)
				if err != nil {
					t.Fatal(err)
				}
				execute(t, b.server, b.database, strings.Join(grants, "\n"))
				for table, commands := range of.commands {
					if kind != "Postgres" && strings.Contains(table, "durable") {
						continue
					}
					if said := b.refused(commands); said != "" {
						t.Errorf("%s: %s", of.who, said)
					}
				}
				for _, right := range sqltest.Rights(grants) {
					table := regexp.MustCompile(`distributed_locks|tickslot_\w+|SCHEMA`).FindString(right.On)
					if table == "SCHEMA" {
						table = "tickslot_registry"
					}
					b.exec(right.Revoke)
					if said := b.refused(of.commands[table]); !missing.MatchString(said) || strings.Contains(said,
						servertest.Canary) {
						t.Errorf("%s without %s: %q", of.who, right, said)
					}
					b.exec(right.Grant)
				}
			}
		})
	}
}

// On Redis, an operator needs the rights of a host. The documented rights are sufficient and needed
// there too.
//
// Fails when a command needs an undocumented right, or when a documented one is unnecessary.
func TestRightsOnRedis(t *testing.T) {
	t.Parallel()
	url, registry, server := redisFleetOn(t)
	write(t, registry, cluster.Batch{Host: hostRow(holder, "1.2", "production", 1)})
	operator := as(t, server)
	for _, c := range []string{"limit report 3", "pause report --for 1h", "resume report",
		"trigger report --expires 1m", "cancel report --slot 0"} {
		if a := tickslot(t, operator, strings.Fields("--prefix shop: "+c)...); a.code != 0 || a.err != "" {
			t.Errorf("an operator: %s: %s", c, a)
		}
	}
	text, err := os.ReadFile(docs + "command-line.md")
	if err != nil {
		t.Fatal(err)
	}
	said := regexp.MustCompile("ACL SETUSER viewer (.*)").FindSubmatch(text)
	if said == nil {
		t.Fatal("docs/command-line.md has no user who only looks")
	}
	admin := server.Client()
	set := func(rules ...string) {
		t.Helper()
		args := []any{"ACL", "SETUSER", "viewer"}
		for _, rule := range rules {
			args = append(args, rule)
		}
		if err := errors.Join(admin.Do(t.Context(), args...).Err(), admin.ScriptFlush(t.Context()).Err()); err != nil {
			t.Fatal(err) // if the server knew the script, EVAL would not be needed
		}
	}
	rules := strings.Fields(strings.NewReplacer("'", "", ">secret", ">"+servertest.Canary).Replace(string(said[1])))
	set(rules...)
	viewer := strings.Replace(url, "//:", "//viewer:", 1)
	looks := func() (refused string) {
		for _, c := range []string{"slots ls", "hosts ls", "timers ls", "runs ls", "runs ls --timer report",
			"events ls", "leaders ls", "leases ls", "explain report"} {
			if a := tickslot(t, viewer, strings.Fields("--prefix shop: "+c)...); a.code != 0 || a.err != "" {
				return c + ": " + a.err
			}
		}
		return ""
	}
	if said := looks(); said != "" {
		t.Errorf("who looks: %s", said)
	}
	for _, rule := range rules {
		command, ok := strings.CutPrefix(rule, "+")
		if !ok {
			continue
		}
		set("-" + command)
		if said := looks(); !strings.Contains(said, "ACL") || strings.Contains(said, servertest.Canary) {
			t.Errorf("without %s: %q", rule, said)
		}
		set(rule)
	}
	if a := tickslot(t, viewer, "--prefix", "shop:", "limit", "report", "2"); a.code == 0 {
		t.Error("who only looks has changed a limit")
	}
}
