package sqlkit_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// tables is a store or product with tables on Postgres.
type tables interface {
	Migrate(context.Context) error
	Verify(context.Context) error
}

// Row level security without a policy hides all rows from a role that does not own the tables, and
// nothing fails: there seems to be no work. Verify of each product and store reports this, names
// the table, and describes the repair. The owner, a role with BYPASSRLS, and a role whose policy
// shows all rows see everything.
//
// Fails when a product does not check this, or rejects a role from which nothing is hidden.
func TestRowLevelSecurityIsFound(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedPostgres(t)
	database := server.NewDatabase(t)
	exec := func(statements string) {
		t.Helper()
		if out, err := server.Exec(database, statements); err != nil {
			t.Fatal(out, err)
		}
	}
	open := func(user string) map[string]tables {
		return onPostgres(t, server.DSN(user, servertest.Canary, database))
	}
	owner := open("")
	for _, of := range owner {
		if err := of.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	role := strings.ReplaceAll(sqltest.Unique("rls"), ":", "") + database
	exec("CREATE ROLE " + role + " LOGIN PASSWORD '" + servertest.Canary + "'; GRANT USAGE ON SCHEMA public TO " +
		role + "; GRANT ALL ON ALL TABLES IN SCHEMA public TO " + role)
	t.Cleanup(func() { exec("DROP OWNED BY " + role + "; DROP ROLE " + role) })
	app := open(role)
	for _, step := range []struct {
		what, statement string
		hides           bool
	}{
		{"as installed", "SELECT 'TABLE'", false},
		{"no policy", "ALTER TABLE TABLE ENABLE ROW LEVEL SECURITY", true},
		{"a policy for some rows", "CREATE POLICY part ON TABLE USING (random() > 2)", true},
		{"a policy for reading", "CREATE POLICY reads ON TABLE FOR SELECT USING (true)", true},
		{"a policy for all rows", "CREATE POLICY every ON TABLE TO " + role + " USING (true)", false},
		{"one that takes rows away", "CREATE POLICY less ON TABLE AS RESTRICTIVE USING (random() > 2)", true},
		{"BYPASSRLS", "ALTER ROLE " + role + " BYPASSRLS", false},
		{"NOBYPASSRLS", "ALTER ROLE " + role + " NOBYPASSRLS", true},
		{"switched off", "ALTER TABLE TABLE DISABLE ROW LEVEL SECURITY", false},
	} {
		all := ""
		for table := range app {
			named := strings.NewReplacer("ALTER TABLE TABLE", "ALTER TABLE "+table, "TABLE", table)
			all += named.Replace(step.statement) + ";"
		}
		exec(all)
		for table, of := range app {
			err := of.Verify(t.Context())
			switch {
			case !step.hides && err != nil:
				t.Errorf("%s: %s: %v", table, step.what, err)
			case step.hides && (!errors.Is(err, driver.ErrSetup) || !strings.Contains(err.Error(), table) ||
				!strings.Contains(err.Error(), "DISABLE ROW LEVEL SECURITY")):
				t.Errorf("%s: %s: Verify: %v: must name the table and say what to do", table, step.what, err)
			}
			if err := owner[table].Verify(t.Context()); err != nil {
				t.Errorf("%s: %s: the owner: %v", table, step.what, err)
			}
		}
	}
}
