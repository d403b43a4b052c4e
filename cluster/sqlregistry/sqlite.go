package sqlregistry

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

// SQLite returns a store in a SQLite file, for the processes of one machine. It needs SQLite 3.38
// or newer, and works with any driver for database/sql. It does not open the file.
//
// The file may be that of the locks, or of the application. SQLite has one write lock per file: a
// call that finds it taken tries again about every millisecond, until its context ends. So a long
// transaction of the application keeps the registry waiting, and a batch of the registry keeps
// others waiting for a few milliseconds.
//
// Each connection to a database in memory has a database of its own, which ends with it: call
// db.SetMaxOpenConns(1). What package sqllock says of network file systems holds here, too.
func SQLite(db *sql.DB, opts Options) *Store {
	check := func(what, name string) error {
		switch {
		case what == "Schema" && name != "":
			return fmt.Errorf("Schema %q: SQLite has none", name)
		case strings.HasPrefix(strings.ToLower(name), "sqlite_"):
			return fmt.Errorf("%s %q: SQLite keeps names that begin with sqlite_ to itself", what, name)
		}
		return nil
	}
	return newStore(db, opts, check, func(_, table string) database {
		// not a temporary table of that name
		d := sqlmigrate.DialectSQLite
		in := func(suffix string) string { return d.Qualified("main", table+suffix) }
		return &sqlite{db: db, table: table, turn: make(chan struct{}, 1), texts: newTexts("sqlite", map[string]string{
			"table": in(""), "name": d.Quote(table), "recent_in": in("_recent"), "named_in": in("_named"),
			"now": sqliteNow,
		}, "columns")}
	})
}

// sqliteNow is the current time in µs, exact to the millisecond. It is constant within a statement.
// julianday is the oldest function with milliseconds; round removes the error of its float64.
const sqliteNow = "(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)"

type sqlite struct {
	db    *sql.DB
	table string

	// turn is held by the one call of this store that writes. The others queue here instead of
	// trying again and again: SQLite admits one writer at a time, in no order.
	turn chan struct{}
	texts
}

func (s *sqlite) String() string { return "sqlite" }

// local is the context of all statements. Only locks take long in SQLite, and those are waited for
// in Go, so no statement needs to be interrupted.
var local = context.Background()

// do makes a call that returns when ctx ends, and tries again while the file is locked. Each
// statement is a transaction of its own, which has the write lock from its begin if it writes.
func (s *sqlite) do(ctx context.Context, call func(*sql.Conn) error) error {
	_, err := sqlkit.InTime(ctx, func(ctx context.Context) (none struct{}, _ error) {
		return none, sqlkit.Patiently(ctx, func() error {
			return sqlkit.WithoutBusyTimeout(ctx, s.db, call)
		})
	})
	return err
}

// alone is do for what writes.
func (s *sqlite) alone(ctx context.Context, call func(*sql.Conn) error) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, sqlkit.LastResort)
		defer cancel()
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.turn }()
	return s.do(ctx, call)
}

func (s *sqlite) write(ctx context.Context, rows func() []row, host string) (a answer, err error) {
	text := s.file("write", nil)
	err = s.alone(ctx, func(conn *sql.Conn) error {
		if _, err := conn.ExecContext(local, text, inASCII(rows())); err != nil {
			return err
		}
		return conn.QueryRowContext(local, s.file("known", nil), host).Scan(&a.known, &a.clock)
	})
	return a, err
}

func (s *sqlite) query(ctx context.Context, statement string, values map[string]int64, args ...any) (list []row,
	err error) {
	text := s.file(statement, values)
	err = s.do(ctx, func(conn *sql.Conn) error {
		list = nil
		return sqlkit.EachRow(local, conn, text, args, func(rows *sql.Rows) error {
			list = append(list, row{})
			return rows.Scan(list[len(list)-1].columns()...)
		})
	})
	return list, err
}

func (s *sqlite) sweep(ctx context.Context, values map[string]int64) (deleted int64, err error) {
	text := s.file("sweep", values)
	err = s.alone(ctx, func(conn *sql.Conn) error {
		result, err := conn.ExecContext(local, text)
		if err != nil {
			return err
		}
		deleted, err = result.RowsAffected()
		return err
	})
	return deleted, err
}

func (s *sqlite) schema() sqlmigrate.Schema {
	return sqlmigrate.Schema{Dialect: sqlmigrate.DialectSQLite, Schema: "main", Name: s.table, Table: s.table,
		Migrations: [][]string{sqlmigrate.Statements(s.file("schema", nil))},
		Repeat:     sqlmigrate.Statements(s.file("indexes", nil))}
}

// prepare switches the file to a write-ahead log, with which readers and writers do not wait for
// each other. It is no part of the schema, because it cannot be done within a transaction.
func (s *sqlite) prepare(ctx context.Context) error {
	return s.do(ctx, func(conn *sql.Conn) error {
		_, err := conn.ExecContext(local, "PRAGMA main.journal_mode = wal")
		return err
	})
}

var sqliteColumns = columnsAs(map[kind]string{kindSort: "TEXT", kindID: "TEXT", kindName: "TEXT", kindNode: "TEXT",
	kindWords: "TEXT", kindInt: "INTEGER", kindBig: "INTEGER", kindTime: "INTEGER", kindData: "TEXT",
	kindDetail: "TEXT"})

func (s *sqlite) verify(ctx context.Context) (faults []error, err error) {
	var typ, list, key string
	var indexes int
	err = s.do(ctx, func(conn *sql.Conn) error {
		return conn.QueryRowContext(local, s.file("verify", nil), s.table, s.table+"_recent", s.table+"_named").
			Scan(&typ, &list, &key, &indexes)
	})
	if err != nil {
		return nil, err
	}
	table := s.names["table"]
	if typ != "table" {
		return []error{fmt.Errorf("there is no table %s", table)}, nil
	}
	has := map[string]string{}
	if err := json.Unmarshal([]byte(list), &has); err != nil {
		return nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	faults = sqlkit.CheckColumns(table, has, sqliteColumns)
	if key != "sort BINARY, id BINARY" {
		faults = append(faults, fmt.Errorf("the primary key of %s is (%s), and has to be (sort, id)", table, key))
	}
	if indexes != 2 {
		faults = append(faults, errors.New("an index is missing"))
	}
	return faults, nil
}
