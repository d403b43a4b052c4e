// Package sqlite implements dialect.Database on SQLite.
package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tickslot/tickslot/cluster/sqlregistry/internal/dialect"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

//go:embed *.sql
var files embed.FS

// New returns the database of a registry. It does not call it.
func New(db *sql.DB, table string) dialect.Database {
	d := sqlmigrate.DialectSQLite
	// With the schema main it is not a temporary table of that name.
	in := func(suffix string) string { return d.Qualified("main", table+suffix) }
	statements := dialect.NewStatements(files, map[string]string{"table": in(""), "name": d.Quote(table),
		"recent_in": in("_recent"), "named_in": in("_named"), "now": now}, "columns")
	return &database{db: db, table: table, turn: make(chan struct{}, 1), Statements: statements}
}

// now is the current time in µs, exact to the millisecond. It is constant within a statement.
// julianday is the oldest function with milliseconds; round removes the error of its float64.
const now = "(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)"

type database struct {
	db    *sql.DB
	table string

	// turn is held by the one call of this store that writes. The others queue here instead of
	// trying again and again: SQLite admits one writer at a time, in no order.
	turn chan struct{}
	dialect.Statements
}

func (s *database) String() string { return "sqlite" }

// local is the context of all statements. Only locks take long in SQLite, and those are waited for
// in Go, so no statement needs to be interrupted.
var local = context.Background()

// do makes a call that returns when ctx ends, and tries again while the file is locked. Each
// statement is a transaction of its own, which has the write lock from its begin if it writes. If
// ctx ends first, the call keeps running after do has returned: it must not write to variables of
// the caller.
func do[A any](ctx context.Context, s *database, call func(*sql.Conn) (A, error)) (A, error) {
	return sqlkit.InTime(ctx, func(ctx context.Context) (a A, err error) {
		err = sqlkit.Patiently(ctx, func() error {
			return sqlkit.WithoutBusyTimeout(ctx, s.db, func(conn *sql.Conn) (err error) {
				a, err = call(conn)
				return err
			})
		})
		return a, err
	})
}

// alone is do for what writes.
func alone[A any](ctx context.Context, s *database, call func(*sql.Conn) (A, error)) (none A, _ error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, sqlkit.LastResort)
		defer cancel()
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return none, ctx.Err()
	}
	defer func() { <-s.turn }()
	return do(ctx, s, call)
}

func (s *database) Write(ctx context.Context, rows func() []dialect.Row, host string) (dialect.Answer, error) {
	text := s.File("write", nil)
	return alone(ctx, s, func(conn *sql.Conn) (a dialect.Answer, err error) {
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
	return do(ctx, s, func(conn *sql.Conn) (list []dialect.Row, err error) {
		err = sqlkit.EachRow(local, conn, text, args, func(rows *sql.Rows) error {
			list = append(list, dialect.Row{})
			return rows.Scan(list[len(list)-1].Columns()...)
		})
		return list, err
	})
}

func (s *database) Sweep(ctx context.Context, values map[string]int64) (int64, error) {
	text := s.File("sweep", values)
	return alone(ctx, s, func(conn *sql.Conn) (int64, error) {
		result, err := conn.ExecContext(local, text)
		if err != nil {
			return 0, err
		}
		return result.RowsAffected()
	})
}

func (s *database) Schema() sqlmigrate.Schema {
	return sqlmigrate.Schema{Dialect: sqlmigrate.DialectSQLite, Schema: "main", Name: s.table, Table: s.table,
		Migrations: [][]string{sqlmigrate.Statements(s.File("schema", nil))},
		Repeat:     sqlmigrate.Statements(s.File("indexes", nil))}
}

// prepare switches the file to a write-ahead log, with which readers and writers do not wait for
// each other. It is no part of the schema, because it cannot be done within a transaction.
func (s *database) Prepare(ctx context.Context) error {
	_, err := do(ctx, s, func(conn *sql.Conn) (sql.Result, error) {
		return conn.ExecContext(local, "PRAGMA main.journal_mode = wal")
	})
	return err
}

var columns = dialect.ColumnsAs(map[dialect.Kind]string{
	dialect.KindSort: "TEXT", dialect.KindID: "TEXT", dialect.KindName: "TEXT", dialect.KindNode: "TEXT",
	dialect.KindWords: "TEXT", dialect.KindInt: "INTEGER", dialect.KindBig: "INTEGER",
	dialect.KindTime: "INTEGER", dialect.KindData: "TEXT", dialect.KindDetail: "TEXT",
})

func (s *database) Verify(ctx context.Context) (faults []error, err error) {
	type found struct {
		typ, columns, key string
		indexes           int
	}
	t, err := do(ctx, s, func(conn *sql.Conn) (t found, err error) {
		err = conn.QueryRowContext(local, s.File("verify", nil), s.table, s.table+"_recent", s.table+"_named").
			Scan(&t.typ, &t.columns, &t.key, &t.indexes)
		return t, err
	})
	if err != nil {
		return nil, err
	}
	table := s.Names["table"]
	if t.typ != "table" {
		return []error{fmt.Errorf("there is no table %s", table)}, nil
	}
	has := map[string]string{}
	if err := json.Unmarshal([]byte(t.columns), &has); err != nil {
		return nil, fmt.Errorf("%w: %w", dialect.ErrAnswer, err)
	}
	faults = sqlkit.CheckColumns(table, has, columns)
	if t.key != "sort BINARY, id BINARY" {
		faults = append(faults, fmt.Errorf("the primary key of %s is (%s), and has to be (sort, id)", table, t.key))
	}
	if t.indexes != 2 {
		faults = append(faults, errors.New("an index is missing"))
	}
	return faults, nil
}
