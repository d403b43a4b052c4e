package sqlregistry

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
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
// A driver that gives up a call closes the connection, of which a server that waits for a lock
// takes no notice. MariaDB therefore gets the limit of the call with each statement. MySQL has no
// such limit for statements that write: what waits there for a locked row goes on for as long as
// innodb_lock_wait_timeout of the server says, 50 s by default.
func MySQL(db *sql.DB, opts Options) *Store {
	check := func(what, name string) error {
		switch {
		case strings.HasSuffix(name, " "):
			return fmt.Errorf("%s %q: MySQL has no names that end with a space", what, name)
		case strings.ContainsFunc(name, func(r rune) bool { return r > 0xFFFF }):
			return fmt.Errorf("%s %q: MySQL has no names with characters beyond U+FFFF", what, name)
		}
		return nil
	}
	return newStore(db, opts, check, func(schema, table string) database {
		d := sqlmigrate.DialectMySQL
		of := sqlmigrate.Schema{Dialect: d, Schema: schema, Name: table, Table: table}
		return &mysql{db: db, of: of, texts: newTexts("mysql", map[string]string{
			"table": d.Qualified(schema, table), "now": "UTC_TIMESTAMP(6)",
			"micros": "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6))",
			// MariaDB executes what is in such a comment, and MySQL does not. What is in the hints
			// is the other way round.
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
	w := wait(ctx)
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
	told, err := result.LastInsertId() // see write.sql
	return answer{known: told%2 == 1, clock: told / 2}, err
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

var mysqlTypes = map[kind]string{kindSort: "varbinary(8)", kindID: "varbinary(255)", kindName: "varbinary(512)",
	kindNode: "varchar(300) utf8mb4_bin", kindWords: "varchar(255) utf8mb4_bin", kindInt: "int", kindBig: "bigint",
	kindTime: "datetime(6)", kindData: "text utf8mb4_bin", kindDetail: "longtext utf8mb4_bin"}

// mysqlIndexes are the indexes and their columns.
var mysqlIndexes = []struct{ name, columns string }{
	{"PRIMARY", "sort,id"}, {"recent", "sort,happened_at,id"}, {"named", "sort,lock_name,happened_at,id"},
}

// displayWidth matches the width that MariaDB, and old MySQL, add to integer types. It means
// nothing.
var displayWidth = regexp.MustCompile(`^(\w*int)\(\d+\)`)

func (m *mysql) verify(ctx context.Context) (faults []error, err error) {
	var schema any
	if m.of.Schema != "" {
		schema = m.of.Schema
	}
	var args []any
	for range 3 {
		args = append(args, schema, m.of.Name, []byte(m.of.Name))
	}
	has := map[string]map[string]string{"engine": {}, "column": {}, "index": {}, "session": {}}
	err = sqlkit.With(ctx, m.db, func(conn *sql.Conn) error {
		return sqlkit.EachRow(ctx, conn, m.file("verify", nil), args, func(rows *sql.Rows) error {
			var of, name, value string
			err := rows.Scan(&of, &name, &value)
			if has[of] != nil {
				has[of][name] = displayWidth.ReplaceAllString(value, "$1")
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	if has["session"]["autocommit"] != "on" {
		faults = append(faults, errors.New("sessions do not commit by themselves: take autocommit=0 out of the "+
			"settings of the connection or the server"))
	}
	if strings.Contains(has["session"]["sql_mode"], "SIMULTANEOUS_ASSIGNMENT") {
		faults = append(faults, errors.New("the sql_mode has SIMULTANEOUS_ASSIGNMENT, with which stamps are not "+
			"written: take it out"))
	}
	table := m.names["table"]
	if len(has["engine"]) == 0 {
		return append(faults, fmt.Errorf("there is no table %s, or this user has no right to it", table)), nil
	}
	faults = append(faults, checkColumns(table, has["column"], mysqlTypes)...)
	if has["column"]["taken"] != "tinyint" {
		faults = append(faults, fmt.Errorf("%s has no column taken that is a tinyint", table))
	}
	for _, engine := range has["engine"] {
		if !strings.EqualFold(engine, "InnoDB") {
			faults = append(faults, fmt.Errorf("%s has engine %s, and has to have InnoDB", table, engine))
		}
	}
	for _, index := range mysqlIndexes {
		var list []string
		for seq := 1; has["index"][fmt.Sprint(index.name, " ", seq)] != ""; seq++ {
			list = append(list, has["index"][fmt.Sprint(index.name, " ", seq)])
		}
		if on := strings.Join(list, ","); on != index.columns {
			faults = append(faults, fmt.Errorf("index %s of %s is on (%s), and has to be on (%s)", index.name, table,
				on, index.columns))
		}
	}
	return faults, nil
}
