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
	d := sqlmigrate.DialectMySQL
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

func (m *database) Schema() sqlmigrate.Schema {
	s := m.of
	s.Migrations = [][]string{sqlmigrate.Statements(m.File("schema", nil))}
	return s
}

func (m *database) Prepare(context.Context) error { return nil }

var columns = append(dialect.ColumnsAs(map[dialect.Kind]string{
	dialect.KindSort: "varbinary(8)", dialect.KindID: "varbinary(255)", dialect.KindName: "varbinary(512)",
	dialect.KindNode: "varchar(300) utf8mb4_bin", dialect.KindWords: "varchar(255) utf8mb4_bin",
	dialect.KindInt: "int", dialect.KindBig: "bigint", dialect.KindTime: "datetime(6)",
	dialect.KindData: "text utf8mb4_bin", dialect.KindDetail: "longtext utf8mb4_bin",
}), sqlkit.Column{Name: "taken", Type: "tinyint"}) // see write.sql

var indexes = []sqlkit.Index{{Name: "PRIMARY", Columns: "sort,id"},
	{Name: "recent", Columns: "sort,happened_at,id"}, {Name: "named", Columns: "sort,lock_name,happened_at,id"}}

func (m *database) Verify(ctx context.Context) (faults []error, err error) {
	read := func(ctx context.Context, query string, args []any, row func(*sql.Rows) error) error {
		return sqlkit.With(ctx, m.db, func(conn *sql.Conn) error { return sqlkit.EachRow(ctx, conn, query, args, row) })
	}
	table, err := sqlkit.ReadMySQLTable(ctx, m.of.Schema, m.of.Name, sqlkit.TextWithCollation, read)
	if err != nil {
		return nil, err
	}
	if table == nil {
		faults = append(faults, fmt.Errorf("there is no table %s, or this user has no right to it", m.Names["table"]))
	} else {
		faults = table.Faults(m.Names["table"], columns, indexes)
	}
	var commits, safe bool
	var completion, mode string
	if err := dialect.QueryRow(ctx, m.db, func() (string, []any) {
		return sqlkit.MySQLSession, nil
	}, &commits, &completion, &safe, &mode); err != nil {
		return nil, err
	}
	faults = append(faults, sqlkit.MySQLSessionFaults(commits, completion, safe, mode)...)
	if strings.Contains(mode, "SIMULTANEOUS_ASSIGNMENT") {
		faults = append(faults, errors.New("the sql_mode has SIMULTANEOUS_ASSIGNMENT, with which rows are not "+
			"written: take it out"))
	}
	return faults, nil
}
