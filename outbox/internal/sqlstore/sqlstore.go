// Package sqlstore implements store.Store on SQL databases: Postgres, MySQL or MariaDB, SQLite,
// and, experimentally, SQL Server.
//
// Each call of a relay is one statement, or a few in one transaction, through database/sql. Append
// and Once execute their statements in the caller's transaction.
//
// Statements find messages by their state, never by the highest row number seen so far, because the
// order in which transactions commit may differ from the order of their row numbers.
package sqlstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// DefaultTableName is the default of Options.TableName.
const DefaultTableName = "tickslot_outbox"

// maxTableName leaves room for the suffixes of tables and indexes within the 63 bytes to which
// Postgres truncates names.
const maxTableName = 40

// Options of a store. The zero value works.
type Options struct {
	// TableName is the name of the table of messages and the prefix of the names of the other
	// tables. It is quoted, so any text without braces is valid. At most 40 bytes. Default
	// "tickslot_outbox".
	TableName string

	// Schema is the schema (Postgres, SQL Server) or database (MySQL) of the tables. SQLite has
	// none. At most 63 bytes. Default "public" on Postgres; elsewhere, the schema or database of
	// the connection.
	Schema string
}

// A Pool is a pool of database/sql and, on Postgres, functions of pgx. The functions are values so
// that programs on other databases do not link pgx.
type Pool struct {
	DB *sql.DB
	// Transact is pgxkit.TransactSQL. It sends statements as one transaction in one round trip, and
	// calls row for each row of the last statement's answer.
	Transact func(ctx context.Context, conn *sql.Conn, list []sqlkit.Statement, row func(store.Row) error) error
	// Listen is pgxkit.Listen with its own connection, or nil if there are no notifications.
	Listen func(ctx context.Context, channel string, woken func()) error
}

// Store implements store.Store.
type Store struct {
	dialect sqlkit.Dialect
	db      database
	texts   sqlkit.Texts
	tables  sqlmigrate.Tables

	listen  func(ctx context.Context, channel string, woken func()) error // nil without notifications
	channel string                                                        // channel of NOTIFY

	edge atomic.Int64 // for MySQL: the end of the first rows as found by the latest call; 0 if unknown
}

var _ store.Store = (*Store)(nil)

// A database executes statements and calls row for each row of the last statement's answer. It
// calls begin before each attempt.
type database interface {
	do(ctx context.Context, w way, list []sqlkit.Statement, begin func(), row func(store.Row) error) error
}

// A way says how statements are executed.
type way int

const (
	reading way = iota // one statement
	writing            // in one transaction

	// counting is for a statement that writes, followed by a statement that asks the same
	// connection how many rows were written. On MySQL, the two are not one transaction. If this
	// host's network failed within a transaction, the server would keep the transaction until it
	// notices, by default after hours, and its locks would delay other calls of Mark.
	counting
)

// errSchema is matched by errors of Migrate and Verify when tables are missing, old, or different
// from those of Schema.
var errSchema = fmt.Errorf("outbox: %w: the schema is not right", dlock.ErrSetup)

//go:embed sql
var files embed.FS

func newStore(d sqlkit.Dialect, pool Pool, opts Options) (*Store, error) {
	table, schema := cmp.Or(opts.TableName, DefaultTableName), opts.Schema
	err := d.CheckNames(sqlkit.TableNames{Product: "outbox", Table: table, Schema: schema, MaxTable: maxTableName,
		NoPool: pool.DB == nil && d != sqlkit.Postgres})
	if pool.DB == nil && d == sqlkit.Postgres {
		err = errors.Join(err, fmt.Errorf("outbox: %w: no pool: pass a *pgxpool.Pool", dlock.ErrSetup))
	}
	if err != nil {
		return nil, err
	}
	switch d {
	case sqlkit.Postgres:
		schema = cmp.Or(schema, "public")
	case sqlkit.SQLite:
		schema = "main" // excludes temporary tables of that name
	}
	names := namesOf(d, schema, table)
	s := &Store{dialect: d, listen: pool.Listen, texts: sqlkit.ReadTexts(files, d, names),
		channel: fmt.Sprintf("tickslot_outbox_%x", sha256.Sum256([]byte(names["messages"])))[:32]}
	of := sqlmigrate.Schema{Dialect: d, Schema: schema, Name: table, Table: table,
		Migrations: [][]string{s.split(s.texts["schema"])}, Repeat: s.split(s.texts["indexes"])}
	if d == sqlkit.SQLite {
		f := sqlkit.NewFile(pool.DB)
		s.db, s.tables = file{f}, sqlmigrate.Tables{Read: sqlmigrate.ReadFile(f), File: f,
			Up: func(ctx context.Context) error { return of.UpFile(ctx, f) }}
	} else {
		s.db, s.tables = server{d, pool}, sqlmigrate.Tables{Read: sqlmigrate.ReadDB(d, pool.DB),
			Up: func(ctx context.Context) error { return of.Up(ctx, pool.DB) }}
	}
	s.tables.Schema, s.tables.Wrong, s.tables.Explain = of, errSchema, s.explain
	return s, nil
}

// namesOf returns the names that replace {messages} and similar placeholders in statements.
// {messages_name} is the name of a table without its schema, and {pending} is the name of an index.
func namesOf(d sqlkit.Dialect, schema, table string) map[string]string {
	names := map[string]string{"message_id": d.Quote(table + "_message_id"),
		"first_attempts": fmt.Sprint(store.FirstAttempts), "last_attempts": fmt.Sprint(store.LastAttempts)}
	for name, suffix := range map[string]string{"messages": "", "attempts": "_attempts", "inbox": "_inbox",
		"layout": "_layout"} {
		names[name], names[name+"_name"] = d.Qualified(schema, table+suffix), d.Quote(table+suffix)
	}
	names["messages_text"] = "N" + sqlkit.Text(names["messages"])
	if d != sqlkit.SQLite {
		schema = "" // an index is in the schema of its table
	}
	for _, name := range []string{"pending", "fresh", "topics", "retried", "dead_keys", "backoff", "failing",
		"requeued", "finished", "ended", "received"} {
		names[name] = d.Qualified(schema, table+"_"+name)
	}
	return names
}

// String implements store.Store.
func (s *Store) String() string { return s.dialect.String() }

// Schema implements store.Store.
func (s *Store) Schema() ([]string, error) { return s.tables.Schema.Statements(), nil }

// Migrate implements store.Store.
func (s *Store) Migrate(ctx context.Context) error { return s.tables.Migrate(ctx) }

// Verify implements store.Store.
func (s *Store) Verify(ctx context.Context) error { return s.tables.Verify(ctx) }

// statements returns the statements of a text, each with its arguments. In statements that have a
// {where}, where is added to the conditions.
func (s *Store) statements(name, where string, p sqlkit.Params) (list []sqlkit.Statement) {
	for _, text := range s.split(strings.ReplaceAll(s.texts[name], "{where}", where)) {
		list = append(list, s.dialect.Bind(text, p))
	}
	return list
}

// answer returns the rows of the answer to the last statement of a text. After an error, it does
// not touch the rows, because the call may still be running.
func answer[R any](ctx context.Context, s *Store, w way, name, where string, p sqlkit.Params,
	scan func(store.Row, *R) error) ([]R, error) {
	var list []R
	err := s.db.do(ctx, w, s.statements(name, where, p), func() { list = nil }, func(rows store.Row) error {
		var r R
		err := scan(rows, &r)
		list = append(list, r)
		return err
	})
	if err != nil {
		return nil, s.explain(err)
	}
	return list, nil
}

// count returns the number in an answer that has one row.
func count(rows []int64) int {
	if len(rows) != 1 {
		return 0
	}
	return int(rows[0])
}

func scanNumber(rows store.Row, n *int64) error { return rows.Scan(n) }

// conditions returns the conditions that a filter adds to a WHERE clause, and the arguments with
// those of the filter.
func (s *Store) conditions(f store.Filter, p sqlkit.Params) (string, sqlkit.Params) {
	var b strings.Builder
	add := func(condition, param string, value any) {
		b.WriteString(" AND " + condition)
		p[param] = value
	}
	if len(f.IDs) > 0 {
		ids := make([]string, len(f.IDs))
		for i, id := range f.IDs {
			ids[i] = s.literal(id)
		}
		b.WriteString(" AND m.message_id IN (" + strings.Join(ids, ", ") + ")")
	}
	if f.Topic != "" {
		add("m.topic = {topic}", "topic", sqlkit.Name(f.Topic))
	}
	if f.Key != "" {
		add("m."+s.dialect.Quote("key")+" = {key}", "key", sqlkit.Name(f.Key))
	}
	if f.State != "" {
		add("m.state = {state}", "state", sqlkit.Name(f.State))
	}
	if !f.CreatedFrom.IsZero() {
		add("m.created_at >= "+s.instantOf("{since}"), "since", f.CreatedFrom.UnixMicro())
	}
	if !f.CreatedBefore.IsZero() {
		add("m.created_at < "+s.instantOf("{until}"), "until", f.CreatedBefore.UnixMicro())
	}
	if f.BeforeSeq > 0 {
		add("m.seq < {after}", "after", f.BeforeSeq)
	}
	return b.String(), p
}
