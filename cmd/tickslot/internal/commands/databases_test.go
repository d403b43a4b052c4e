package commands_test

import (
	"testing"

	"github.com/tickslot/tickslot/internal/servertest"
	"github.com/tickslot/tickslot/internal/sqltest"
)

// Commands work on each database, through a pooler that gives each transaction another connection,
// too; and the doctor finds that pooler, and tables that are missing.
//
// Fails when a statement is prepared, a URL is read wrongly, or the pooler is not found.
func TestDatabases(t *testing.T) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		sqltest.RequirePgBouncer(t)
		server := sqltest.SharedPostgres(t)
		database := server.NewDatabase(t)
		direct := server.DSN("", "", database)
		works(t, direct)
		has(t, direct, "durable ls", "there is no such durable run")
		pooled := sqltest.PgBouncer(t, server, "transaction").DSN("", "", database)
		has(t, pooled, "explain report", "by ann")
		has(t, pooled, "outbox ls", "there is no such message")
		finds(t, direct, "ok   pooler")
		finds(t, pooled, "MEND pooler: a pooler gives each transaction another connection", "is a superuser")
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		server := sqltest.SharedMariaDB(t)
		url := "mysql://root:" + servertest.Canary + "@" + server.Addr() + "/" + server.NewDatabase(t)
		works(t, url)
		finds(t, url, "tables of outbox: as this version needs them")
	})
}

// works creates the tables, and makes a change.
func works(t *testing.T, url string) {
	t.Helper()
	finds(t, url, "MEND tables of registry", `"tickslot migrate up --only registry"`, "distributed_locks")
	has(t, url, "migrate up", "locks:", "registry:", "outbox:")
	has(t, url, "migrate validate", "locks:", "registry:", "outbox:")
	has(t, url, "limit report 2 --by ann", "limited to 2")
	has(t, url, "explain report", "its limit was set to 2 by ann")
	has(t, url, "events ls", "timer:report", "operator")
	has(t, url, "dead ls", "there is no dead letter")
}
