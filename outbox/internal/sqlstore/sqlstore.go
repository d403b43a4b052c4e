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
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
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
	database
	texts  texts
	pool   *sql.DB
	schema sqlmigrate.Schema

	edge atomic.Int64 // of the first rows, as the latest call has found it, for MySQL; 0: there is none
}

var _ store.Store = (*Store)(nil)

// A database executes statements.
type database interface {
	// String is "postgres", "mysql" …
	String() string
	// bind returns the statement of a text.
	bind(text string, p params) statement
	// read executes a statement that only reads, and calls row for each row of its answer. begin is
	// called before each attempt.
	read(ctx context.Context, s statement, begin func(), row func(store.Row) error) error
	// write executes statements in one transaction. The rows are those of the last.
	write(ctx context.Context, list func() []statement, begin func(), row func(store.Row) error) error
	// writeAndCount executes a statement that writes, and one that asks the same connection what it
	// has done. On MySQL that is no transaction: if the network of this host fails within one, the
	// server keeps it for as long as it does not notice, hours by default, and its locks are in the
	// way of all that is marked meanwhile.
	writeAndCount(ctx context.Context, list func() []statement, begin func(), row func(store.Row) error) error

	// split returns the statements of a text.
	split(text string) []string
	// id is a literal.
	id(store.ID) string
	// instant is an expression for a parameter that is in microseconds since 1970.
	instant(param string) string
	// isThere reports whether a row was not inserted because this index has it, and isLater whether
	// a transaction has to be repeated because of another one.
	isThere(err error, index string) bool
	isLater(err error) bool
	// explain adds to an error what to do about it.
	explain(err error) error

	// prepare does what cannot be done within a migration.
	prepare(ctx context.Context) error
	// verify returns how the tables differ from those of the schema.
	verify(ctx context.Context) (faults []error, err error)

	notify(ctx context.Context) error
	listen(ctx context.Context, woken func()) error
}

// The indexes that have a row once.
const (
	indexOfMessages = "message_id"
	indexOfRecords  = "PRIMARY KEY" // of the inbox
)

// errSchema is matched by errors of Migrate and Verify when tables are missing, old, or different
// from those of Schema.
var errSchema = fmt.Errorf("outbox: %w: the schema is not right", dlock.ErrSetup)

// checked returns the options with their defaults.
func checked(db *sql.DB, opts Options, checkName func(what, name string) error) (Options, error) {
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
	return opts, errors.Join(faults...)
}

// Schema implements store.Store.
func (s *Store) Schema() ([]string, error) { return s.schema.Statements(), nil }

// Migrate implements store.Store.
func (s *Store) Migrate(ctx context.Context) error {
	missing := s.Verify(ctx)
	if !errors.Is(missing, errSchema) {
		return missing
	}
	err := s.prepare(ctx)
	if err == nil {
		err = s.schema.Up(ctx, s.pool)
	}
	switch {
	case sqlmigrate.Passes(err):
		return fmt.Errorf("outbox: migrate: %w", s.explain(err))
	case err != nil:
		return fmt.Errorf("%w\nand Migrate failed: %w", missing, s.explain(err))
	}
	return s.Verify(ctx)
}

// Verify implements store.Store.
func (s *Store) Verify(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	faults, err := s.verify(ctx)
	if err != nil {
		return fmt.Errorf("outbox: %w", s.explain(err))
	}
	pending := s.schema.Verify(ctx, s.pool)
	switch {
	case errors.Is(pending, sqlmigrate.ErrPending):
		faults = append(faults, pending)
	case pending != nil && len(faults) == 0:
		return fmt.Errorf("outbox: %w", s.explain(pending))
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("%w: call Migrate, or execute Schema:\n%w", errSchema, err)
	}
	return nil
}

// statements returns those of a file, each with its arguments. where is added to the conditions of
// those that have it.
func (s *Store) statements(file, where string, p params) func() []statement {
	return func() (list []statement) {
		for _, text := range s.split(strings.ReplaceAll(s.texts[file], "{where}", where)) {
			list = append(list, s.bind(text, p))
		}
		return list
	}
}

// query returns the rows that a statement reads.
func query[R any](ctx context.Context, s *Store, file, where string, p params, scan func(store.Row, *R) error) (
	[]R, error) {
	text := s.statements(file, where, p)()[0]
	return answer(s, scan, func(begin func(), row func(store.Row) error) error { return s.read(ctx, text, begin, row) })
}

// change returns the rows of the last of the statements of a file, which are one transaction.
func change[R any](ctx context.Context, s *Store, file, where string, p params, scan func(store.Row, *R) error) (
	[]R, error) {
	statements := s.statements(file, where, p)
	return answer(s, scan, func(begin func(), row func(store.Row) error) error {
		return s.write(ctx, statements, begin, row)
	})
}

// changeAndCount is change for a file whose last statement asks what the one before has done.
func changeAndCount[R any](ctx context.Context, s *Store, file, where string, p params,
	scan func(store.Row, *R) error) ([]R, error) {
	statements := s.statements(file, where, p)
	return answer(s, scan, func(begin func(), row func(store.Row) error) error {
		return s.writeAndCount(ctx, statements, begin, row)
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
		return nil, fmt.Errorf("outbox: %w", s.explain(err))
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
	if err := s.notify(ctx); err != nil {
		return fmt.Errorf("outbox: %w", s.explain(err))
	}
	return nil
}

// Listen implements store.Relay.
func (s *Store) Listen(ctx context.Context, woken func()) error {
	err := s.listen(ctx, woken)
	if err == nil || errors.Is(err, store.ErrNoListen) {
		return err
	}
	return fmt.Errorf("outbox: %w", s.explain(err))
}

// without is the part of a database that cannot wake others.
type without struct{}

func (without) notify(context.Context) error         { return nil }
func (without) listen(context.Context, func()) error { return store.ErrNoListen }

// conditions returns what a filter adds to a WHERE, and its arguments.
func (s *Store) conditions(f store.Filter, p params) (string, params) {
	var b strings.Builder
	add := func(condition, param string, value any) {
		b.WriteString(" AND " + condition)
		p[param] = value
	}
	if len(f.IDs) > 0 {
		ids := make([]string, len(f.IDs))
		for i, id := range f.IDs {
			ids[i] = s.id(id)
		}
		b.WriteString(" AND m.message_id IN (" + strings.Join(ids, ", ") + ")")
	}
	if f.Topic != "" {
		add("m.topic = {topic}", "topic", name(f.Topic))
	}
	if f.Key != "" {
		add("m."+s.schema.Dialect.Quote("key")+" = {key}", "key", name(f.Key))
	}
	if f.State != "" {
		add("m.state = {state}", "state", name(f.State))
	}
	if !f.CreatedFrom.IsZero() {
		add("m.created_at >= "+s.instant("{since}"), "since", f.CreatedFrom.UnixMicro())
	}
	if !f.CreatedBefore.IsZero() {
		add("m.created_at < "+s.instant("{until}"), "until", f.CreatedBefore.UnixMicro())
	}
	if f.BeforeSeq > 0 {
		add("m.seq < {after}", "after", f.BeforeSeq)
	}
	return b.String(), p
}

// repeats reports whether a statement that was not carried out because of another transaction can
// be carried out again.
func repeats(err error) bool {
	state := sqlkit.State(err)
	return state == "40001" || state == "40P01" || sqlkit.MySQLNumber(err) == "1020"
}
