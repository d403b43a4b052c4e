// Package sqlstore implements store.Store on SQL databases: Postgres, MySQL or MariaDB, SQLite,
// and, experimental, SQL Server.
//
// What a relay does is one statement, or a few in one transaction, of database/sql. Append and Once
// execute theirs in the caller's transaction.
//
// Messages are found by their state, never by a number that was seen before: transactions commit in
// another order than that in which their rows are numbered.
package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
	"github.com/tickslot/tickslot/outbox/internal/sqlstore/internal/dialect"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// DefaultTableName is what the names of the tables begin with if Options name nothing else.
const DefaultTableName = "tickslot_outbox"

// maxTableName leaves room for the suffixes of tables and indexes within the 63 bytes that Postgres
// keeps of a name.
const maxTableName = 40

// Options of a store. The zero value works.
type Options struct {
	// TableName is the name of the table of messages, and what those of the others begin with. It
	// is quoted, so any text without braces is valid. At most 40 bytes. Default "tickslot_outbox".
	TableName string

	// Schema is the schema (Postgres, SQL Server) or database (MySQL) of the tables. SQLite has
	// none. At most 63 bytes. Default "public" on Postgres; elsewhere that of the connection.
	Schema string
}

// Store implements store.Store.
type Store struct {
	db     dialect.Database
	texts  dialect.Texts
	tables sqlmigrate.Tables

	edge atomic.Int64 // of the first rows, as the latest call has found it, for MySQL; 0: there is none
}

var _ store.Store = (*Store)(nil)

// errSchema is matched by errors of Migrate and Verify when tables are missing, old, or different
// from those of Schema.
var errSchema = fmt.Errorf("outbox: %w: the schema is not right", dlock.ErrSetup)

// newStore checks what all databases have in common.
func newStore(db *sql.DB, opts Options, checkName func(what, name string) error,
	open func(schema, table string) dialect.Database) (*Store, error) {
	if opts.TableName == "" {
		opts.TableName = DefaultTableName
	}
	var faults []error
	check := func(what, name string, most int) {
		// Braces are the placeholders of the statements.
		if !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) || len(name) > most ||
			strings.ContainsAny(name, "{}") {
			faults = append(faults, fmt.Errorf(
				"outbox: %w: %s %q: use text without braces and control characters, at most %d bytes",
				dlock.ErrSetup, what, name, most))
		}
		if err := checkName(what, name); err != nil {
			faults = append(faults, fmt.Errorf("outbox: %w: %w", dlock.ErrSetup, err))
		}
	}
	check("TableName", opts.TableName, maxTableName)
	check("Schema", opts.Schema, 63)
	if db == nil {
		faults = append(faults, fmt.Errorf("outbox: %w: no *sql.DB: pass one", dlock.ErrSetup))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	d := open(opts.Schema, opts.TableName)
	s := &Store{db: d, texts: d.Texts(), tables: d.Tables()}
	s.tables.Wrong, s.tables.Explain = errSchema, s.explain
	return s, nil
}

// String implements store.Store.
func (s *Store) String() string { return s.db.String() }

// Schema implements store.Store.
func (s *Store) Schema() ([]string, error) { return s.tables.Schema.Statements(), nil }

// Migrate implements store.Store.
func (s *Store) Migrate(ctx context.Context) error { return s.tables.Migrate(ctx) }

// explain adds to a driver's error what to do about it.
func (s *Store) explain(err error) error { return fmt.Errorf("outbox: %w", s.db.Explain(err)) }

// Verify implements store.Store.
func (s *Store) Verify(ctx context.Context) error { return s.tables.Verify(ctx) }

// statements returns those of a file, each with its arguments. where is added to the conditions of
// those that have it.
func (s *Store) statements(file, where string, p dialect.Params) func() []dialect.Statement {
	return func() (list []dialect.Statement) {
		for _, text := range s.db.Split(strings.ReplaceAll(s.texts[file], "{where}", where)) {
			list = append(list, s.db.Bind(text, p))
		}
		return list
	}
}

// query returns the rows that a statement reads.
func query[R any](ctx context.Context, s *Store, file, where string, p dialect.Params,
	scan func(store.Row, *R) error) ([]R, error) {
	text := s.statements(file, where, p)()[0]
	return answer(s, scan, func(begin func(), row func(store.Row) error) error {
		return s.db.Read(ctx, text, begin, row)
	})
}

// change returns the rows of the last of the statements of a file, which are one transaction.
func change[R any](ctx context.Context, s *Store, file, where string, p dialect.Params,
	scan func(store.Row, *R) error) ([]R, error) {
	statements := s.statements(file, where, p)
	return answer(s, scan, func(begin func(), row func(store.Row) error) error {
		return s.db.Write(ctx, statements, begin, row)
	})
}

// changeAndCount is change for a file whose last statement asks what the one before has done.
func changeAndCount[R any](ctx context.Context, s *Store, file, where string, p dialect.Params,
	scan func(store.Row, *R) error) ([]R, error) {
	statements := s.statements(file, where, p)
	return answer(s, scan, func(begin func(), row func(store.Row) error) error {
		return s.db.WriteAndCount(ctx, statements, begin, row)
	})
}

// answer collects rows. After an error it does not look at them: the call may still go on.
func answer[R any](s *Store, scan func(store.Row, *R) error, call func(begin func(), row func(store.Row) error) error) (
	[]R, error) {
	var list []R
	err := call(func() { list = nil }, func(rows store.Row) error {
		var r R
		err := scan(rows, &r)
		list = append(list, r)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", s.db.Explain(err))
	}
	return list, nil
}

// count is the answer of one row with one number.
func count(rows []int64) int {
	if len(rows) != 1 {
		return 0
	}
	return int(rows[0])
}

func scanNumber(rows store.Row, n *int64) error { return rows.Scan(n) }

// Notify implements store.Producer.
func (s *Store) Notify(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	if err := s.db.Notify(ctx); err != nil {
		return fmt.Errorf("outbox: %w", s.db.Explain(err))
	}
	return nil
}

// Listen implements store.Relay.
func (s *Store) Listen(ctx context.Context, woken func()) error {
	err := s.db.Listen(ctx, woken)
	if err == nil || errors.Is(err, store.ErrNoListen) {
		return err
	}
	return fmt.Errorf("outbox: %w", s.db.Explain(err))
}

// conditions returns what a filter adds to a WHERE, and its arguments.
func (s *Store) conditions(f store.Filter, p dialect.Params) (string, dialect.Params) {
	var b strings.Builder
	add := func(condition, param string, value any) {
		b.WriteString(" AND " + condition)
		p[param] = value
	}
	if len(f.IDs) > 0 {
		ids := make([]string, len(f.IDs))
		for i, id := range f.IDs {
			ids[i] = s.db.ID(id)
		}
		b.WriteString(" AND m.message_id IN (" + strings.Join(ids, ", ") + ")")
	}
	if f.Topic != "" {
		add("m.topic = {topic}", "topic", dialect.Name(f.Topic))
	}
	if f.Key != "" {
		add("m."+s.tables.Schema.Dialect.Quote("key")+" = {key}", "key", dialect.Name(f.Key))
	}
	if f.State != "" {
		add("m.state = {state}", "state", dialect.Name(f.State))
	}
	if !f.CreatedFrom.IsZero() {
		add("m.created_at >= "+s.db.Instant("{since}"), "since", f.CreatedFrom.UnixMicro())
	}
	if !f.CreatedBefore.IsZero() {
		add("m.created_at < "+s.db.Instant("{until}"), "until", f.CreatedBefore.UnixMicro())
	}
	if f.BeforeSeq > 0 {
		add("m.seq < {after}", "after", f.BeforeSeq)
	}
	return b.String(), p
}
