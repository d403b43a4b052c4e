package commands_test

import (
	"testing"

	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// Commands work on each database, also through a pooler that gives each transaction another
// connection.
//
// Fails when a statement is prepared, or when a URL is misread.
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
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		server := sqltest.SharedMariaDB(t)
		url := "mysql://root:" + servertest.Canary + "@" + server.Addr() + "/" + server.NewDatabase(t)
		works(t, url)
	})
}

// works creates the tables and makes a change.
func works(t *testing.T, url string) {
	t.Helper()
	has(t, url, "migrate up", "locks:", "registry:", "outbox:")
	has(t, url, "migrate validate", "locks:", "registry:", "outbox:")
	has(t, url, "limit report 2 --by ann --force", "limited to 2")
	has(t, url, "explain report", "its limit was set to 2 by ann")
	has(t, url, "events ls", "timer:report", "operator")
	has(t, url, "dead ls", "no dead letters")
}
