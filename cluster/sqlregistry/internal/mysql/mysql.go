// Package mysql implements dialect.Database on MySQL and MariaDB.
package mysql

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tickslot/tickslot/cluster/sqlregistry/internal/dialect"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

//go:embed *.sql
var files embed.FS

// New returns the database of a registry. It does not call it.
func New(db *sql.DB, schema, table string) dialect.Database {
	d := sqlkit.MySQL
	of := sqlmigrate.Schema{Dialect: d, Schema: schema, Name: table, Table: table}
	return &database{db: db, of: of, Statements: dialect.NewStatements(files, map[string]string{
		"table": d.Qualified(schema, table), "now": "UTC_TIMESTAMP(6)",
		"micros": "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6))",
		// MariaDB executes the text of a comment with M!, and ignores hints. MySQL ignores such
		// comments, and obeys hints.
		"bounded": "/*M! SET STATEMENT max_statement_time = {wait_ms} / 1000 FOR */",
		"hint":    "/*+ SET_VAR(lock_wait_timeout = {wait_s}) MAX_EXECUTION_TIME({wait_ms}) */",
	}, "columns", "host_is_old", "lease_is_old")}
}

type database struct {
	db *sql.DB
	of sqlmigrate.Schema // without statements
	dialect.Statements
}

func (m *database) String() string { return "mysql" }

// bounded returns a statement that ends a little before ctx does.
func (m *database) bounded(ctx context.Context, name string, values map[string]int64) string {
	w := dialect.MaxWait(ctx)
	return strings.NewReplacer("{wait_ms}", fmt.Sprint(w.Milliseconds()),
		"{wait_s}", fmt.Sprint(max(1, int64(w/time.Second)))).Replace(m.File(name, values))
}

func (m *database) Write(ctx context.Context, rows func() []dialect.Row, _ string) (a dialect.Answer, err error) {
	result, err := dialect.Exec(ctx, m.db, func() (string, []any) {
		return m.bounded(ctx, "write", nil), []any{sqlkit.InJSON(rows())}
	})
	if err != nil {
		return a, err
	}
	id, err := result.LastInsertId() // has the answer: see write.sql
	return dialect.Answer{HostKnown: id%2 == 1, Clock: id / 2}, err
}

func (m *database) Query(ctx context.Context, statement string, values map[string]int64,
	args ...any) ([]dialect.Row, error) {
	for i, arg := range args { // as bytes, because the server converts text from the connection's character set
		args[i] = []byte(arg.(string))
	}
	return dialect.QueryRows(ctx, m.db, m.bounded(ctx, statement, values), args)
}

func (m *database) Sweep(ctx context.Context, values map[string]int64) (int64, error) {
	result, err := dialect.Exec(ctx, m.db, func() (string, []any) { return m.bounded(ctx, "sweep", values), nil })
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (m *database) Tables() sqlmigrate.Tables {
	s := m.of
	s.Migrations = [][]string{sqlmigrate.Statements(m.File("schema", nil))}
	t := dialect.Tables(s, m.db)
	t.Besides = m.besides
	return t
}

// besides returns what is wrong with settings that only these statements do not cope with.
func (m *database) besides(ctx context.Context) ([]error, error) {
	var simultaneous bool
	err := dialect.QueryRow(ctx, m.db, func() (string, []any) {
		return "SELECT @@SESSION.sql_mode LIKE '%SIMULTANEOUS_ASSIGNMENT%'", nil
	}, &simultaneous)
	if err != nil || !simultaneous {
		return nil, err
	}
	return []error{errors.New("the sql_mode has SIMULTANEOUS_ASSIGNMENT, with which rows are not written: take it " +
		"out")}, nil
}
