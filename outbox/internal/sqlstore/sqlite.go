package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// SQLite returns a store in a SQLite file, for the processes of one machine. It needs SQLite 3.38
// or newer, and works with any driver for database/sql. It does not open the file.
//
// The file is that of the application, whose transactions append messages. SQLite has one write
// lock per file: a call that finds it taken tries again about every millisecond, until its context
// ends.
func SQLite(db *sql.DB, opts Options) (*Store, error) {
	opts, err := checked(db, opts, func(what, name string) error {
		switch {
		case what == "Schema" && name != "":
			return fmt.Errorf("Schema %q: SQLite has none", name)
		case strings.HasPrefix(strings.ToLower(name), "sqlite_"):
			return fmt.Errorf("%s %q: SQLite keeps names that begin with sqlite_ to itself", what, name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	d := sqlmigrate.DialectSQLite
	s := &sqlite{db: db, turn: make(chan struct{}, 1), tables: map[string]map[string]string{}}
	names := map[string]string{"now": sqliteNow}
	for suffix, columns := range sqliteColumns {
		table := opts.TableName + suffix
		part := cmp.Or(suffix, "_messages")[1:]
		names[part] = d.Qualified("main", table) // not a temporary table of that name
		names[part+"_name"] = d.Quote(table)
		s.tables[table] = columns
	}
	for _, suffix := range indexes {
		names[suffix+"_in"] = d.Qualified("main", opts.TableName+"_"+suffix)
		s.indexes = append(s.indexes, opts.TableName+"_"+suffix)
	}
	s.texts = newTexts("sqlite", names)
	return &Store{database: s, texts: s.texts, pool: db, schema: sqlmigrate.Schema{Dialect: d, Schema: "main",
		Name: opts.TableName, Table: opts.TableName, Migrations: [][]string{sqlmigrate.Statements(s.texts["schema"])},
		Repeat: sqlmigrate.Statements(s.texts["indexes"])}}, nil
}

// sqliteNow is the current time in µs, exact to the millisecond. It is constant within a statement.
// julianday is the oldest function with milliseconds; round removes the error of its float64.
const sqliteNow = "(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)"

var sqliteColumns = map[string]map[string]string{
	"": {"seq": "INTEGER", "message_id": "BLOB", "topic": "TEXT", "key": "TEXT", "key_hash": "INTEGER",
		"payload": "BLOB", "headers": "TEXT", "state": "TEXT", "attempts": "INTEGER", "tried": "INTEGER",
		"next_attempt_at": "INTEGER", "created_at": "INTEGER", "finished_at": "INTEGER", "last_error": "TEXT",
		"note": "TEXT"},
	"_attempts": {"message": "INTEGER", "attempt": "INTEGER", "at": "INTEGER", "took": "INTEGER", "node": "TEXT",
		"outcome": "TEXT", "error": "TEXT"},
	"_inbox":  {"consumer": "TEXT", "message_id": "BLOB", "received_at": "INTEGER"},
	"_layout": {"id": "INTEGER", "shards": "INTEGER", "epoch": "INTEGER"},
}

type sqlite struct {
	without
	db *sql.DB

	// turn is held by the one call of this store that writes. The others queue here instead of
	// trying again and again: SQLite admits one writer at a time, in no order.
	turn chan struct{}

	texts   texts
	tables  map[string]map[string]string // their columns
	indexes []string
}

func (s *sqlite) String() string { return "sqlite" }

func (s *sqlite) bind(text string, values params) statement {
	return bind(text, values, true, func(n int, value any) (string, any, bool) {
		switch v := value.(type) {
		case store.ID:
			value = v[:]
		case name:
			value = string(v)
		case names:
			value = list[string](v)
		case numbers:
			value = list[int64](v)
		}
		return fmt.Sprintf("?%d", n), value, true
	})
}

func (s *sqlite) split(text string) []string { return sqlmigrate.Statements(text) }

func (s *sqlite) id(id store.ID) string       { return fmt.Sprintf("x'%x'", id[:]) }
func (s *sqlite) instant(param string) string { return param }
func (s *sqlite) isThere(error, string) bool  { return false } // ON CONFLICT inserts no row

// isLater is about a transaction of the application, which has not waited long enough for the write
// lock of the file, or has begun by reading, and finds that somebody has written since.
func (s *sqlite) isLater(err error) bool { return sqlkit.SQLiteLocked(err) }

func (s *sqlite) explain(err error) error { return sqlkit.ExplainSQLite(err) }

// local is the context of all statements. Only locks take long in SQLite, and those are waited for
// in Go, so no statement needs to be interrupted.
var local = context.Background()

// do makes a call that returns when ctx ends, and tries again while the file is locked.
func (s *sqlite) do(ctx context.Context, call func(*sql.Conn) error) error {
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

func (s *sqlite) read(ctx context.Context, st statement, begin func(), row func(store.Row) error) error {
	return s.do(ctx, func(conn *sql.Conn) error {
		begin()
		return eachRow(local, conn, st, row)
	})
}

func (s *sqlite) write(ctx context.Context, list func() []statement, begin func(), row func(store.Row) error) error {
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
				if _, err := conn.ExecContext(local, st.text, st.args...); err != nil {
					return err
				}
			}
			return eachRow(local, conn, statements[last], row)
		})
	})
}

func (s *sqlite) writeAndCount(ctx context.Context, list func() []statement, begin func(),
	row func(store.Row) error) error {
	return s.write(ctx, list, begin, row)
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

// prepare switches the file to a journal in which those who read and those who write do not wait
// for each other. It is no part of the schema, because it cannot be done within a transaction.
func (s *sqlite) prepare(ctx context.Context) error {
	return s.do(ctx, func(conn *sql.Conn) error {
		_, err := conn.ExecContext(local, "PRAGMA main.journal_mode = wal")
		return err
	})
}

func (s *sqlite) verify(ctx context.Context) (faults []error, err error) {
	return verify(ctx, s, s.texts["verify"], s.tables, s.indexes)
}
