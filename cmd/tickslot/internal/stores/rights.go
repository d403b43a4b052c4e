package stores

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/outbox"
)

// A need is what a host may need to do to a table, as documented in docs/sql.md.
type need struct {
	table  string
	rights []string
}

// needs returns the needs of the parts, the main table first. On Postgres, the locks' own audit
// checks the rights on their table.
func (o Options) needs(kind string) map[string][]need {
	all := []string{"SELECT", "INSERT", "UPDATE", "DELETE"}
	locks := cmp.Or(o.LocksTable, sqllock.DefaultTableName)
	registry := cmp.Or(o.RegistryTable, sqlregistry.DefaultTableName)
	runs := cmp.Or(o.DurableTable, durable.DefaultTableName)
	messages := cmp.Or(o.OutboxTable, outbox.DefaultTableName)
	inbox := []string{"SELECT", "DELETE"}
	if kind == "postgres" {
		inbox = []string{"SELECT", "UPDATE", "DELETE"}
	}
	ofLocks := []need{{locks + "_migrations", all[:1]}}
	if kind == "mysql" {
		ofLocks = append([]need{{locks, all}}, ofLocks...)
	}
	return map[string][]need{
		"locks":    ofLocks,
		"registry": {{registry, all}, {registry + "_migrations", all[:1]}},
		"durable": {{runs + "_runs", all}, {runs + "_schedules", all}, {runs + "_handlers", all},
			{runs + "_attempts", []string{"SELECT", "INSERT", "DELETE"}}, {runs + "_migrations", all[:1]}},
		"outbox": {{messages, []string{"SELECT", "UPDATE", "DELETE"}},
			{messages + "_attempts", []string{"SELECT", "INSERT", "DELETE"}},
			{messages + "_inbox", inbox}, {messages + "_layout", []string{"SELECT", "UPDATE"}},
			{messages + "_migrations", all[:1]}, {messages + "_locks", all}, {messages + "_locks_migrations", all[:1]}},
	}
}

// MissingRights are rights on a table or schema that the URL's user does not have.
type MissingRights struct {
	Rights []string
	On     string // the table or schema
	to     string
}

func (m MissingRights) String() string { return strings.Join(m.Rights, ", ") + " on " + m.On }

// Grant returns the statement that grants the missing rights.
func (m MissingRights) Grant() string {
	return fmt.Sprintf("GRANT %s ON %s TO %s", strings.Join(m.Rights, ", "), m.On, m.to)
}

// A TableCheck says which tables and rights a part lacks.
type TableCheck struct {
	Missing bool // the main table does not exist, or, on MySQL, the user has no right on it
	Rights  []MissingRights
}

// CheckTables checks whether the tables of a part exist, and which rights on them the user lacks.
// On SQLite it checks only the tables.
func (s *Store) CheckTables(ctx context.Context, part Part) (check TableCheck, err error) {
	for i, n := range part.needs {
		var there bool
		var rights MissingRights
		switch s.Kind {
		case "postgres":
			there, rights, err = s.rightsOnPostgres(ctx, n)
		case "mysql":
			there, rights, err = s.rightsOnMySQL(ctx, n)
		default:
			err = s.DB.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_master WHERE name = ?", n.table).Scan(&there)
		}
		if err != nil {
			return check, err
		}
		if i == 0 && !there {
			return TableCheck{Missing: true}, nil
		}
		known := func(m MissingRights) bool { return m.On == rights.On }
		if len(rights.Rights) > 0 && !slices.ContainsFunc(check.Rights, known) {
			check.Rights = append(check.Rights, rights)
		}
	}
	if s.Kind == "mysql" {
		procedures, err := s.rightsOnProcedures(ctx, part)
		check.Rights = append(check.Rights, procedures...)
		return check, err
	}
	return check, nil
}

// insufficientPrivilege is the SQLSTATE for a missing privilege.
const insufficientPrivilege = "42501"

const missingRightsOnPostgres = `SELECT to_regclass($1) IS NOT NULL, current_user, coalesce(string_agg(r, ','), '')
	FROM unnest(string_to_array($2, ',')) AS r WHERE NOT coalesce(has_table_privilege(to_regclass($1), r), true)`

func (s *Store) rightsOnPostgres(ctx context.Context, n need) (there bool, rights MissingRights, err error) {
	schema := cmp.Or(s.schema, "public")
	name := quoted(schema) + "." + quoted(n.table)
	var missing string
	row := s.DB.QueryRowContext(ctx, missingRightsOnPostgres, name, strings.Join(n.rights, ","))
	err = row.Scan(&there, &rights.to, &missing)
	if refusal, ok := errors.AsType[*pgconn.PgError](err); ok && refusal.Code == insufficientPrivilege {
		err = s.DB.QueryRowContext(ctx, "SELECT current_user").Scan(&rights.to)
		rights.Rights, rights.On, rights.to = []string{"USAGE"}, "SCHEMA "+quoted(schema), quoted(rights.to)
		return true, rights, err // without rights, its existence cannot be determined
	}
	rights.On, rights.to = name, quoted(rights.to)
	if missing != "" {
		rights.Rights = strings.Split(missing, ",")
	}
	return there, rights, err
}

func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

const rightsOnMySQL = `SELECT table_schema, privileges, current_user() FROM information_schema.columns
	WHERE table_schema = coalesce(nullif(?, ''), database()) AND table_name = ?`

// rightsOnMySQL finds missing rights through the rights on columns, which include rights on the
// table, on the database, and from roles. It checks separately whether rows may be deleted, because
// columns have no right for that.
func (s *Store) rightsOnMySQL(ctx context.Context, n need) (there bool, rights MissingRights, err error) {
	rows, err := s.DB.QueryContext(ctx, rightsOnMySQL, s.schema, n.table)
	if err != nil {
		return false, rights, err
	}
	defer rows.Close()
	missing := map[string]bool{}
	for rows.Next() {
		var database, privileges, user string
		if err := rows.Scan(&database, &privileges, &user); err != nil {
			return false, rights, err
		}
		there = true
		name, host, _ := strings.Cut(user, "@")
		rights.On, rights.to = fmt.Sprintf("`%s`.`%s`", database, n.table), fmt.Sprintf("'%s'@'%s'", name, host)
		for _, right := range n.rights {
			if right != "DELETE" && !slices.Contains(strings.Split(privileges, ","), strings.ToLower(right)) {
				missing[right] = true
			}
		}
	}
	if err := rows.Err(); err != nil || !there {
		return there, rights, err
	}
	if slices.Contains(n.rights, "DELETE") {
		deletes, err := s.explains(ctx, "DELETE FROM "+rights.On+" WHERE 1 = 0")
		if err != nil {
			return there, rights, err
		}
		missing["DELETE"] = !deletes
	}
	for _, right := range n.rights {
		if missing[right] {
			rights.Rights = append(rights.Rights, right)
		}
	}
	return there, rights, nil
}

var createProcedure = regexp.MustCompile(`(?m)^CREATE PROCEDURE ((?:` + "`[^`]*`" + `\.)?` + "`[^`]*`" + `)`)

// rightsOnProcedures finds the procedures of a part that the user may not execute. It calls them
// without their parameters. Such a call executes nothing, and the server checks the right first.
// (information_schema hides procedures from a user without rights on them.)
func (s *Store) rightsOnProcedures(ctx context.Context, part Part) (missing []MissingRights, err error) {
	statements, err := part.Schema()
	if err != nil {
		return nil, err
	}
	for _, found := range createProcedure.FindAllStringSubmatch(strings.Join(statements, "\n"), -1) {
		_, err := s.DB.ExecContext(ctx, "CALL "+found[1]+"()")
		refusal, ok := errors.AsType[*mysql.MySQLError](err)
		if !ok {
			return missing, err
		}
		if refusal.Number == executeDenied {
			var user string
			if err := s.DB.QueryRowContext(ctx, "SELECT current_user()").Scan(&user); err != nil {
				return missing, err
			}
			name, host, _ := strings.Cut(user, "@")
			missing = append(missing, MissingRights{[]string{"EXECUTE"}, "PROCEDURE " + found[1],
				fmt.Sprintf("'%s'@'%s'", name, host)})
		}
	}
	return missing, nil
}

// MySQL's error numbers for a missing right on a table and on a procedure.
const (
	accessDenied  = 1142
	executeDenied = 1370
)

// explains reports whether the user may execute a statement, without executing it.
func (s *Store) explains(ctx context.Context, statement string) (allowed bool, err error) {
	var rows *sql.Rows
	rows, err = s.DB.QueryContext(ctx, "EXPLAIN "+statement)
	if err == nil {
		return true, rows.Close()
	}
	if refusal, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return refusal.Number != accessDenied, nil // other checks find other errors (a read-only server)
	}
	return false, err
}
