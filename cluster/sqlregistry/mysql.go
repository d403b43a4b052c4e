package sqlregistry

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

// MySQL returns a store on MySQL 8.0 or MariaDB 10.6, or newer, with any driver for database/sql.
// It does not call the server.
//
// Each call is one statement: one round trip with interpolateParams=true (go-sql-driver/mysql),
// without it two, because the driver prepares each statement. Sessions have to commit by themselves
// (autocommit=1, the default).
//
// A driver that gives up a call closes the connection, but a server that waits for a lock does not
// notice that. So each statement tells MariaDB how long it may take. MySQL has no such limit for
// statements that write: one that waits for a locked row goes on for as long as
// innodb_lock_wait_timeout of the server says, 50 s by default.
func MySQL(db *sql.DB, opts Options) *Store {
	return newStore(db, opts, sqlkit.CheckMySQLName, func(schema, table string) database {
		d := sqlmigrate.DialectMySQL
		of := sqlmigrate.Schema{Dialect: d, Schema: schema, Name: table, Table: table}
		return &mysql{db: db, of: of, texts: newTexts("mysql", map[string]string{
			"table": d.Qualified(schema, table), "now": "UTC_TIMESTAMP(6)",
			"micros": "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6))",
			// MariaDB executes the text of a comment with M!, and ignores hints. MySQL ignores such
			// comments, and obeys hints.
			"bounded": "/*M! SET STATEMENT max_statement_time = {wait_ms} / 1000 FOR */",
			"hint":    "/*+ SET_VAR(lock_wait_timeout = {wait_s}) MAX_EXECUTION_TIME({wait_ms}) */",
		}, "columns", "host_is_old", "lease_is_old")}
	})
}

type mysql struct {
	db *sql.DB
	of sqlmigrate.Schema // without statements
	texts
}

func (m *mysql) String() string { return "mysql" }

// bounded returns a statement that ends a little before ctx does.
func (m *mysql) bounded(ctx context.Context, name string, values map[string]int64) string {
	w := maxWait(ctx)
	return strings.NewReplacer("{wait_ms}", fmt.Sprint(w.Milliseconds()),
		"{wait_s}", fmt.Sprint(max(1, int64(w/time.Second)))).Replace(m.file(name, values))
}

func (m *mysql) write(ctx context.Context, rows func() []row, _ string) (a answer, err error) {
	result, err := exec(ctx, m.db, func() (string, []any) {
		return m.bounded(ctx, "write", nil), []any{inASCII(rows())}
	})
	if err != nil {
		return a, err
	}
	id, err := result.LastInsertId() // has the answer: see write.sql
	return answer{known: id%2 == 1, clock: id / 2}, err
}

func (m *mysql) query(ctx context.Context, statement string, values map[string]int64, args ...any) ([]row, error) {
	for i, arg := range args { // as bytes, because the server converts text from the connection's character set
		args[i] = []byte(arg.(string))
	}
	return queryRows(ctx, m.db, m.bounded(ctx, statement, values), args)
}

func (m *mysql) sweep(ctx context.Context, values map[string]int64) (int64, error) {
	result, err := exec(ctx, m.db, func() (string, []any) { return m.bounded(ctx, "sweep", values), nil })
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (m *mysql) schema() sqlmigrate.Schema {
	s := m.of
	s.Migrations = [][]string{sqlmigrate.Statements(m.file("schema", nil))}
	return s
}

func (m *mysql) prepare(context.Context) error { return nil }

var mysqlColumns = append(columnsAs(map[kind]string{kindSort: "varbinary(8)", kindID: "varbinary(255)",
	kindName: "varbinary(512)", kindNode: "varchar(300) utf8mb4_bin", kindWords: "varchar(255) utf8mb4_bin",
	kindInt: "int", kindBig: "bigint", kindTime: "datetime(6)", kindData: "text utf8mb4_bin",
	kindDetail: "longtext utf8mb4_bin"}), sqlkit.Column{Name: "taken", Type: "tinyint"}) // see write.sql

var mysqlIndexes = []sqlkit.Index{{Name: "PRIMARY", Columns: "sort,id"},
	{Name: "recent", Columns: "sort,happened_at,id"}, {Name: "named", Columns: "sort,lock_name,happened_at,id"}}

func (m *mysql) verify(ctx context.Context) (faults []error, err error) {
	read := func(ctx context.Context, query string, args []any, row func(*sql.Rows) error) error {
		return sqlkit.With(ctx, m.db, func(conn *sql.Conn) error { return sqlkit.EachRow(ctx, conn, query, args, row) })
	}
	table, err := sqlkit.ReadMySQLTable(ctx, m.of.Schema, m.of.Name, sqlkit.TextWithCollation, read)
	if err != nil {
		return nil, err
	}
	if table == nil {
		faults = append(faults, fmt.Errorf("there is no table %s, or this user has no right to it", m.names["table"]))
	} else {
		faults = table.Faults(m.names["table"], mysqlColumns, mysqlIndexes)
	}
	var commits bool
	var mode string
	if err := queryRow(ctx, m.db, func() (string, []any) {
		return "SELECT @@SESSION.autocommit, @@SESSION.sql_mode", nil
	}, &commits, &mode); err != nil {
		return nil, err
	}
	if !commits {
		faults = append(faults, errors.New("sessions do not commit by themselves: take autocommit=0 out of the "+
			"settings of the connection or the server"))
	}
	if strings.Contains(mode, "SIMULTANEOUS_ASSIGNMENT") {
		faults = append(faults, errors.New("the sql_mode has SIMULTANEOUS_ASSIGNMENT, with which rows are not "+
			"written: take it out"))
	}
	return faults, nil
}
