// Package sqlite implements dialect.Database on SQLite.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"strings"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
	"github.com/tickslot/tickslot/outbox/internal/sqlstore/internal/dialect"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

//go:embed *.sql
var files embed.FS

// New returns the database of an outbox. It does not call it.
func New(db *sql.DB, table string) dialect.Database {
	d := sqlmigrate.DialectSQLite
	s := &database{db: db, turn: make(chan struct{}, 1), tables: map[string]map[string]string{},
		of: sqlmigrate.Schema{Dialect: d, Schema: "main", Name: table, Table: table}}
	names := map[string]string{"now": now}
	for suffix, columns := range columns {
		part := cmp.Or(suffix, "_messages")[1:]
		names[part] = d.Qualified("main", table+suffix) // not a temporary table of that name
		names[part+"_name"] = d.Quote(table + suffix)
		s.tables[table+suffix] = columns
	}
	for _, suffix := range dialect.Indexes {
		names[suffix+"_in"] = d.Qualified("main", table+"_"+suffix)
		s.indexes = append(s.indexes, table+"_"+suffix)
	}
	s.texts = dialect.NewTexts(files, names)
	return s
}

// now is the current time in µs, exact to the millisecond. It is constant within a statement.
// julianday is the oldest function with milliseconds; round removes the error of its float64.
const now = "(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)"

var columns = map[string]map[string]string{
	"": {"seq": "INTEGER", "message_id": "BLOB", "topic": "TEXT", "key": "TEXT", "key_hash": "INTEGER",
		"payload": "BLOB", "headers": "TEXT", "state": "TEXT", "attempts": "INTEGER", "tried": "INTEGER",
		"crashes": "INTEGER", "next_attempt_at": "INTEGER", "created_at": "INTEGER", "requeued_at": "INTEGER",
		"failing_since": "INTEGER", "finished_at": "INTEGER", "last_error": "TEXT", "note": "TEXT"},
	"_attempts": {"message": "INTEGER", "attempt": "INTEGER", "at": "INTEGER", "took": "INTEGER", "node": "TEXT",
		"outcome": "TEXT", "error": "TEXT"},
	"_inbox":  {"consumer": "TEXT", "message_id": "BLOB", "received_at": "INTEGER"},
	"_layout": {"id": "INTEGER", "shards": "INTEGER", "epoch": "INTEGER"},
}

type database struct {
	dialect.Without
	db *sql.DB

	// turn is held by the one call of this store that writes. The others queue here instead of
	// trying again and again: SQLite admits one writer at a time, in no order.
	turn chan struct{}

	of      sqlmigrate.Schema // without statements
	texts   dialect.Texts
	tables  map[string]map[string]string // their columns
	indexes []string
}

func (s *database) String() string       { return "sqlite" }
func (s *database) Texts() dialect.Texts { return s.texts }

func (s *database) Schema() sqlmigrate.Schema {
	of := s.of
	of.Migrations = [][]string{sqlmigrate.Statements(s.texts["schema"])}
	of.Repeat = sqlmigrate.Statements(s.texts["indexes"])
	return of
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

// do makes a call that returns when ctx ends, and tries again while the file is locked.
func (s *database) do(ctx context.Context, call func(*sql.Conn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := sqlkit.InTime(ctx, func(ctx context.Context) (none struct{}, _ error) {
		return none, sqlkit.Patiently(ctx, func() error {
			return sqlkit.WithoutBusyTimeout(ctx, s.db, call)
		})
	})
	return err
}

func (s *database) Read(ctx context.Context, st dialect.Statement, begin func(), row func(store.Row) error) error {
	return s.do(ctx, func(conn *sql.Conn) error {
		begin()
		return dialect.EachRow(local, conn, st, row)
	})
}

func (s *database) Write(ctx context.Context, list func() []dialect.Statement, begin func(),
	row func(store.Row) error) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, sqlkit.LastResort)
		defer cancel()
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("another call of this process has the database: %w", ctx.Err())
	}
	// If the disk hangs, the call returns with its context, and the next one has its turn: it finds
	// the file locked.
	defer func() { <-s.turn }()
	return s.do(ctx, func(conn *sql.Conn) error {
		begin()
		return inTransaction(conn, func() error {
			statements := list()
			last := len(statements) - 1
			for _, st := range statements[:last] {
				if _, err := conn.ExecContext(local, st.Text, st.Args...); err != nil {
					return err
				}
			}
			return dialect.EachRow(local, conn, statements[last], row)
		})
	})
}

func (s *database) WriteAndCount(ctx context.Context, list func() []dialect.Statement, begin func(),
	row func(store.Row) error) error {
	return s.Write(ctx, list, begin, row)
}

// inTransaction calls do in a transaction that has the write lock from its begin.
func inTransaction(conn *sql.Conn, do func() error) error {
	exec := func(statement string) error {
		_, err := conn.ExecContext(local, statement)
		return err
	}
	// It fails in a transaction that somebody else has left open, with which our rows would be
	// undone.
	if err := exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := do()
	if err == nil {
		err = exec("COMMIT")
	}
	if err == nil {
		return nil
	}
	if back := exec("ROLLBACK"); back != nil && !strings.Contains(back.Error(), "no transaction is active") {
		sqlkit.Discard(conn)
		return errors.Join(err, back)
	}
	return err
}

// Prepare switches the file to a journal in which those who read and those who write do not wait
// for each other. It is no part of the schema, because it cannot be done within a transaction.
func (s *database) Prepare(ctx context.Context) error {
	return s.do(ctx, func(conn *sql.Conn) error {
		_, err := conn.ExecContext(local, "PRAGMA main.journal_mode = wal")
		return err
	})
}

func (s *database) Verify(ctx context.Context) (faults []error, err error) {
	return dialect.Verify(ctx, s, s.texts["verify"], s.tables, s.indexes)
}
