// Package sqlite implements dialect.Database on SQLite.
package sqlite

import (
	"context"
	"database/sql"
	"embed"

	"github.com/tickslot/tickslot/cluster/sqlregistry/internal/dialect"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

//go:embed *.sql
var files embed.FS

// New returns the database of a registry. It does not call it.
func New(db *sql.DB, table string) dialect.Database {
	d := sqlkit.SQLite
	// With the schema main it is not a temporary table of that name.
	in := func(suffix string) string { return d.Qualified("main", table+suffix) }
	statements := dialect.NewStatements(files, map[string]string{"table": in(""), "name": d.Quote(table),
		"recent_in": in("_recent"), "named_in": in("_named"), "now": now}, "columns")
	return &database{file: sqlkit.NewFile(db), table: table, Statements: statements}
}

// now is the current time in µs, exact to the millisecond. It is constant within a statement.
// julianday is the oldest function with milliseconds; round removes the error of its float64.
const now = "(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)"

type database struct {
	file  *sqlkit.File
	table string
	dialect.Statements
}

func (s *database) String() string { return "sqlite" }

// local is the context of all statements. Only locks take long in SQLite, and those are waited for
// in Go, so no statement needs to be interrupted.
var local = context.Background()

func (s *database) Write(ctx context.Context, rows func() []dialect.Row, host string) (dialect.Answer, error) {
	text := s.File("write", nil)
	return sqlkit.Write(ctx, s.file, func(conn *sql.Conn) (a dialect.Answer, err error) {
		if _, err := conn.ExecContext(local, text, sqlkit.InJSON(rows())); err != nil {
			return a, err
		}
		err = conn.QueryRowContext(local, s.File("known", nil), host).Scan(&a.HostKnown, &a.Clock)
		return a, err
	})
}

func (s *database) Query(ctx context.Context, statement string, values map[string]int64,
	args ...any) ([]dialect.Row, error) {
	text := s.File(statement, values)
	return sqlkit.Do(ctx, s.file, func(conn *sql.Conn) (list []dialect.Row, err error) {
		err = sqlkit.EachRow(local, conn, text, args, func(rows *sql.Rows) error {
			list = append(list, dialect.Row{})
			return rows.Scan(list[len(list)-1].Columns()...)
		})
		return list, err
	})
}

func (s *database) Sweep(ctx context.Context, values map[string]int64) (int64, error) {
	text := s.File("sweep", values)
	return sqlkit.Write(ctx, s.file, func(conn *sql.Conn) (int64, error) {
		result, err := conn.ExecContext(local, text)
		if err != nil {
			return 0, err
		}
		return result.RowsAffected()
	})
}

func (s *database) Tables() sqlmigrate.Tables {
	of := sqlmigrate.Schema{Dialect: sqlkit.SQLite, Schema: "main", Name: s.table, Table: s.table,
		Migrations: [][]string{sqlmigrate.Statements(s.File("schema", nil))},
		Repeat:     sqlmigrate.Statements(s.File("indexes", nil))}
	return sqlmigrate.Tables{Schema: of, Read: sqlmigrate.ReadFile(s.file), File: s.file,
		Up: func(ctx context.Context) error { return of.UpFile(ctx, s.file) }}
}
