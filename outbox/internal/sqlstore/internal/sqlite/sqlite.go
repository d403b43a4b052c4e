// Package sqlite implements dialect.Database on SQLite.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"fmt"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
	"github.com/tickslot/tickslot/outbox/internal/sqlstore/internal/dialect"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

//go:embed *.sql
var files embed.FS

// New returns the database of an outbox. It does not call it.
func New(db *sql.DB, table string) dialect.Database {
	d := sqlkit.SQLite
	s := &database{file: sqlkit.NewFile(db),
		of: sqlmigrate.Schema{Dialect: d, Schema: "main", Name: table, Table: table}}
	names := map[string]string{"now": now}
	for _, suffix := range dialect.Tables {
		part := cmp.Or(suffix, "_messages")[1:]
		names[part] = d.Qualified("main", table+suffix) // not a temporary table of that name
		names[part+"_name"] = d.Quote(table + suffix)
	}
	for _, suffix := range dialect.Indexes {
		names[suffix+"_in"] = d.Qualified("main", table+"_"+suffix)
	}
	s.texts = dialect.NewTexts(files, names)
	return s
}

// now is the current time in µs, exact to the millisecond. It is constant within a statement.
// julianday is the oldest function with milliseconds; round removes the error of its float64.
const now = "(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)"

type database struct {
	dialect.Without
	file  *sqlkit.File
	of    sqlmigrate.Schema // without statements
	texts dialect.Texts
}

func (s *database) String() string       { return "sqlite" }
func (s *database) Texts() dialect.Texts { return s.texts }

func (s *database) Tables() sqlmigrate.Tables {
	of := s.of
	of.Migrations = [][]string{sqlmigrate.Statements(s.texts["schema"])}
	of.Repeat = sqlmigrate.Statements(s.texts["indexes"])
	return sqlmigrate.Tables{Schema: of, Read: sqlmigrate.ReadFile(s.file), File: s.file,
		Up: func(ctx context.Context) error { return of.UpFile(ctx, s.file) }}
}

func (s *database) Bind(text string, values dialect.Params) dialect.Statement {
	return dialect.Bind(text, values, true, func(n int, value any) (string, any, bool) {
		switch v := value.(type) {
		case store.ID:
			value = v[:]
		case dialect.Name:
			value = string(v)
		case dialect.Names:
			value = dialect.List[string](v)
		case dialect.Numbers:
			value = dialect.List[int64](v)
		}
		return fmt.Sprintf("?%d", n), value, true
	})
}

func (s *database) Split(text string) []string { return sqlmigrate.Statements(text) }

func (s *database) ID(id store.ID) string       { return fmt.Sprintf("x'%x'", id[:]) }
func (s *database) Instant(param string) string { return param }
func (s *database) IsThere(error, string) bool  { return false } // ON CONFLICT inserts no row

// IsLater is about a transaction of the application, which has not waited long enough for the write
// lock of the file, or has begun by reading, and finds that somebody has written since.
func (s *database) IsLater(err error) bool { return sqlkit.SQLiteLocked(err) }

func (s *database) Explain(err error) error { return sqlkit.ExplainSQLite(err) }

// local is the context of all statements. Only locks take long in SQLite, and those are waited for
// in Go, so no statement needs to be interrupted.
var local = context.Background()

// none is the answer of a call that has none.
type none = struct{}

func (s *database) Read(ctx context.Context, st dialect.Statement, begin func(), row func(store.Row) error) error {
	_, err := sqlkit.Do(ctx, s.file, func(conn *sql.Conn) (none, error) {
		begin()
		return none{}, dialect.EachRow(local, conn, st, row)
	})
	return err
}

func (s *database) Write(ctx context.Context, list func() []dialect.Statement, begin func(),
	row func(store.Row) error) error {
	_, err := sqlkit.Write(ctx, s.file, func(conn *sql.Conn) (none, error) {
		begin()
		statements := list()
		last := len(statements) - 1
		for _, st := range statements[:last] {
			if _, err := conn.ExecContext(local, st.Text, st.Args...); err != nil {
				return none{}, err
			}
		}
		return none{}, dialect.EachRow(local, conn, statements[last], row)
	})
	return err
}

func (s *database) WriteAndCount(ctx context.Context, list func() []dialect.Statement, begin func(),
	row func(store.Row) error) error {
	return s.Write(ctx, list, begin, row)
}
