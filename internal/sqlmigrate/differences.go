package sqlmigrate

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tickslot/tickslot/internal/sqlkit"
)

// A Row is one row of a result. Its Scan is that of database/sql or pgx.
type Row interface{ Scan(dest ...any) error }

// A Reader executes a query and calls row for each row of the result. It may execute the query
// several times, and calls begin before each execution.
type Reader func(ctx context.Context, query string, args []any, begin func(), row func(Row) error) error

var (
	//go:embed tables.postgres.sql
	postgresTables string
	//go:embed tables.sqlite.sql
	sqliteTables string
	//go:embed tables.sqlserver.sql
	sqlserverTables string
)

// found is a table as described by the catalog.
type found struct {
	Name    string
	Kind    string // "" if there is no such table
	Columns map[string]string
	Key     []string
	Indexes []string
}

// ReadDB returns the Reader for Postgres, MySQL and SQL Server. It returns when ctx ends, even if
// the driver does not.
func ReadDB(d sqlkit.Dialect, db *sql.DB) Reader {
	return func(ctx context.Context, query string, args []any, begin func(), row func(Row) error) error {
		return bounded(ctx, func() error {
			return sqlkit.With(ctx, db, func(conn *sql.Conn) error {
				if d == sqlkit.MySQL {
					if _, err := conn.ExecContext(ctx, mysqlAnew); err != nil {
						return err
					}
				}
				begin()
				return sqlkit.EachRow(ctx, conn, query, args, func(r *sql.Rows) error { return row(r) })
			})
		})
	}
}

// ReadFile returns the Reader for SQLite.
func ReadFile(f *sqlkit.File) Reader {
	return func(ctx context.Context, query string, args []any, begin func(), row func(Row) error) error {
		_, err := sqlkit.Do(ctx, f, func(conn *sql.Conn) (none struct{}, _ error) {
			begin()
			return none, sqlkit.EachRow(context.Background(), conn, query, args,
				func(r *sql.Rows) error { return row(r) })
		})
		return err
	}
}

// differences returns how the tables in the database differ from those that s declares: missing or
// different tables, columns and indexes, tables that a crash of the server would empty, and
// settings that the statements cannot handle. It ignores anything additional. The error matches
// dlock.ErrSetup if row level security may hide rows.
func (s Schema) differences(ctx context.Context, read Reader) (faults []error, err error) {
	tables := s.Tables()
	if s.Dialect == sqlkit.MySQL {
		return s.mysqlDifferences(ctx, read, tables)
	}
	var names []string
	for _, t := range tables {
		name := t.Name
		if p := (parser{dialect: s.Dialect}); s.Dialect == sqlkit.SQLite {
			name = p.unquote(p.last(name))
		}
		names = append(names, name)
	}
	has, encoding, err := s.read(ctx, read, append(slices.Clone(names), s.Versions()))
	if err != nil {
		return nil, err
	}
	for i, t := range tables {
		if f := has[names[i]]; f.Kind == "" {
			faults = append(faults, s.noTable(t.Name))
		} else {
			faults = append(faults, t.differences(s.Dialect, f)...)
		}
	}
	if encoding != "" && !strings.EqualFold(encoding, "UTF8") && !s.AnySettings {
		faults = append(faults, fmt.Errorf("the encoding of the database is %s, which lacks characters: use "+
			"a database with UTF8", encoding))
	}
	return faults, nil
}

func (s Schema) noTable(name string) error {
	if s.Dialect == sqlkit.SQLite {
		return fmt.Errorf("there is no table %s (each connection has its own in-memory database: call "+
			"db.SetMaxOpenConns(1))", name)
	}
	return fmt.Errorf("there is no table %s, or this user has no right to it", name)
}

// read queries the catalog for tables and returns the results by table name.
func (s Schema) read(ctx context.Context, read Reader, names []string) (map[string]found, string, error) {
	query := map[sqlkit.Dialect]string{sqlkit.Postgres: postgresTables, sqlkit.SQLite: sqliteTables,
		sqlkit.SQLServer: sqlserverTables}[s.Dialect]
	var text, encoding, hidden string
	err := read(ctx, strings.TrimSpace(query), []any{sqlkit.InJSON(names)}, func() {}, func(r Row) error {
		return r.Scan(&text, &encoding, &hidden)
	})
	if err != nil {
		return nil, "", err
	}
	if err := sqlkit.CheckHidden(hidden); err != nil {
		return nil, "", err
	}
	var list []found
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, "", fmt.Errorf("the catalogue of the database gave an answer that makes no sense: %w", err)
	}
	has := map[string]found{}
	for _, f := range list {
		has[f.Name] = f
	}
	return has, encoding, nil
}

func (t *Table) differences(d sqlkit.Dialect, has found) []error {
	faults := sqlkit.CheckColumns(t.Name, has.Columns, t.Columns)
	if has.Kind == "unlogged" {
		faults = append(faults, fmt.Errorf("%s is unlogged or temporary: a crash of the server would empty it", t.Name))
	}
	if !slices.Equal(has.Key, t.Key) {
		faults = append(faults, fmt.Errorf("the primary key of %s is (%s), and has to be (%s)", t.Name,
			strings.Join(has.Key, ", "), strings.Join(t.Key, ", ")))
	}
	for _, index := range t.Indexes {
		same := func(name string) bool { return name == index.Name }
		if d == sqlkit.SQLite {
			same = func(name string) bool { return strings.EqualFold(name, index.Name) }
		}
		if !slices.ContainsFunc(has.Indexes, same) {
			faults = append(faults, fmt.Errorf("the index %s of %s is missing, or something else has that name",
				index.Name, t.Name))
		}
	}
	return faults
}

// mysqlDifferences is like differences, for MySQL and MariaDB.
func (s Schema) mysqlDifferences(ctx context.Context, read Reader, tables []*Table) (faults []error, err error) {
	p := parser{dialect: s.Dialect}
	var names []string
	for _, t := range tables {
		names = append(names, p.unquote(p.last(t.Name)))
	}
	all, session, err := sqlkit.ReadMySQLTables(ctx, s.Schema, names,
		func(ctx context.Context, query string, args []any, row func(sqlkit.Scanner) error) error {
			return read(ctx, query, args, func() {}, func(r Row) error { return row(r) })
		})
	if err != nil {
		return nil, err
	}
	for i, t := range tables {
		if all[i] == nil {
			faults = append(faults, s.noTable(t.Name))
			continue
		}
		key := sqlkit.Index{Name: "PRIMARY", Columns: strings.Join(t.Key, ",")}
		faults = append(faults, all[i].Faults(t.Name, t.Columns, append([]sqlkit.Index{key}, t.Indexes...))...)
	}
	if s.AnySettings {
		return faults, nil
	}
	return append(faults, sqlkit.MySQLSessionFaults(session["autocommit"] == "1", session["completion_type"],
		session["sql_safe_updates"] == "1", session["sql_mode"])...), nil
}
