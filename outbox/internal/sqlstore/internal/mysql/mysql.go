// Package mysql implements dialect.Database on MySQL and MariaDB.
package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
	"github.com/tickslot/tickslot/outbox/internal/sqlstore/internal/dialect"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

//go:embed *.sql
var files embed.FS

// New returns the database of an outbox. It does not call it.
func New(db *sql.DB, schema, table string) dialect.Database {
	m := &database{of: sqlmigrate.Schema{Dialect: sqlmigrate.DialectMySQL, Schema: schema, Name: table, Table: table}}
	m.Server = dialect.Server{DB: db, Bound: m.bound}
	names := map[string]string{}
	for suffix := range tables {
		names[cmp.Or(suffix, "_messages")[1:]] = m.of.Dialect.Qualified(schema, table+suffix)
	}
	m.texts = dialect.NewTexts(files, names)
	return m
}

type database struct {
	dialect.Without
	dialect.Server
	of    sqlmigrate.Schema // without statements
	texts dialect.Texts
}

func (m *database) String() string       { return "mysql" }
func (m *database) Texts() dialect.Texts { return m.texts }

func (m *database) Schema() sqlmigrate.Schema {
	s := m.of
	s.Migrations = [][]string{sqlmigrate.Statements(m.texts["schema"])}
	s.Repeat = sqlmigrate.Statements(m.texts["indexes"])
	return s
}

// Bind writes numbers, names and ids into the text, so that the server chooses indexes by them, and
// text as bytes, because the server converts text from the connection's character set.
func (m *database) Bind(text string, values dialect.Params) dialect.Statement {
	return dialect.Bind(text, values, false, func(_ int, value any) (string, any, bool) {
		switch v := value.(type) {
		case int64:
			return strconv.FormatInt(v, 10), nil, false
		case store.ID:
			return m.ID(v), nil, false
		case dialect.Name:
			return inHex(string(v)), nil, false
		case dialect.Names:
			all := []string{inHex("\x00")} // which no name has: a list must not be empty
			for _, name := range v {
				all = append(all, inHex(name))
			}
			return strings.Join(all, ", "), nil, false
		case dialect.Numbers:
			all := []string{"0"} // which no row has
			for _, n := range v {
				all = append(all, strconv.FormatInt(n, 10))
			}
			return strings.Join(all, ", "), nil, false
		case string:
			return "?", []byte(v), true
		}
		return "?", value, true
	})
}

func inHex(text string) string { return fmt.Sprintf("x'%x'", text) }

// bound returns a statement that ends a little before ctx does. MariaDB executes the text of the
// first comment, which MySQL ignores. MySQL obeys the hints of the second, which MariaDB ignores.
// MariaDB checks a row whenever it changes: of one that somebody has inserted without checks, the
// result could never be written. MySQL has no such rows.
func (m *database) bound(ctx context.Context, text string) string {
	limit := sqlkit.LastResort
	if deadline, ok := ctx.Deadline(); ok {
		limit = max(time.Millisecond, min(time.Until(deadline)*9/10, time.Minute))
	}
	ms, s := limit.Milliseconds(), max(1, int64(limit/time.Second))
	return strings.NewReplacer(
		"{bounded}", fmt.Sprintf(
			"/*M! SET STATEMENT max_statement_time = %d / 1000, check_constraint_checks = 0 FOR */", ms),
		"{hint}", fmt.Sprintf("/*+ SET_VAR(lock_wait_timeout = %d) MAX_EXECUTION_TIME(%d) */", s, ms),
	).Replace(text)
}

func (m *database) Split(text string) []string { return sqlmigrate.Statements(text) }

func (m *database) ID(id store.ID) string { return fmt.Sprintf("x'%x'", id[:]) }

func (m *database) Instant(param string) string {
	return "TIMESTAMP'1970-01-01 00:00:00' + INTERVAL " + param + " MICROSECOND"
}

// IsThere goes by the number and by the name of the index: what else is in the text depends on the
// language of the server.
func (m *database) IsThere(err error, index string) bool {
	if sqlkit.MySQLNumber(err) != "1062" {
		return false
	}
	if index == dialect.IndexOfRecords {
		index = "PRIMARY"
	}
	return strings.Contains(err.Error(), "'"+index+"'") || strings.Contains(err.Error(), "."+index+"'")
}

func (m *database) IsLater(err error) bool  { return dialect.Repeats(err) }
func (m *database) Explain(err error) error { return sqlkit.Explain(err) }

func (m *database) Prepare(context.Context) error { return nil }

const longText = "longtext utf8mb4_bin"

var tables = map[string]struct {
	columns []sqlkit.Column
	indexes []sqlkit.Index
}{
	"": {
		[]sqlkit.Column{{Name: "seq", Type: "bigint"}, {Name: "message_id", Type: "binary(16)"},
			{Name: "topic", Type: "varbinary(200)"}, {Name: "key", Type: "varbinary(200)"},
			{Name: "key_hash", Type: "int unsigned"}, {Name: "payload", Type: "longblob"},
			{Name: "headers", Type: longText}, {Name: "state", Type: "varbinary(10)"}, {Name: "attempts", Type: "int"},
			{Name: "tried", Type: "int"}, {Name: "crashes", Type: "int"},
			{Name: "next_attempt_at", Type: "datetime(6)"},
			{Name: "created_at", Type: "datetime(6)"},
			{Name: "requeued_at", Type: "datetime(6)"}, {Name: "failing_since", Type: "datetime(6)"},
			{Name: "finished_at", Type: "datetime(6)"},
			{Name: "last_error", Type: longText}, {Name: "note", Type: longText},
			{Name: "pending_topic", Type: "varbinary(200)"}, {Name: "fresh_key", Type: "varbinary(200)"},
			{Name: "retried_key", Type: "varbinary(200)"}, {Name: "dead_key", Type: "varbinary(200)"},
			{Name: "is_requeued", Type: "int"}, {Name: "retry_at", Type: "datetime(6)"},
			{Name: "failing_at", Type: "datetime(6)"}},
		[]sqlkit.Index{{Name: "PRIMARY", Columns: "seq"}, {Name: "message_id", Columns: "message_id"},
			{Name: "pending", Columns: "state,seq"}, {Name: "fresh", Columns: "fresh_key,seq"},
			{Name: "topics", Columns: "pending_topic,key,seq"},
			{Name: "retried", Columns: "retried_key,seq"}, {Name: "dead_keys", Columns: "dead_key,seq"},
			{Name: "backoff", Columns: "retry_at"}, {Name: "failing", Columns: "failing_at"},
			{Name: "requeued", Columns: "is_requeued,seq"},
			{Name: "finished", Columns: "state,finished_at"}},
	},
	"_attempts": {
		[]sqlkit.Column{{Name: "message", Type: "bigint"}, {Name: "attempt", Type: "int"},
			{Name: "at", Type: "datetime(6)"}, {Name: "took", Type: "bigint"}, {Name: "node", Type: "text utf8mb4_bin"},
			{Name: "outcome", Type: "varbinary(10)"}, {Name: "error", Type: longText}},
		[]sqlkit.Index{{Name: "PRIMARY", Columns: "message,attempt"}},
	},
	"_inbox": {
		[]sqlkit.Column{{Name: "consumer", Type: "varbinary(200)"}, {Name: "message_id", Type: "binary(16)"},
			{Name: "received_at", Type: "datetime(6)"}},
		[]sqlkit.Index{{Name: "PRIMARY", Columns: "consumer,message_id"}, {Name: "received", Columns: "received_at"}},
	},
	"_layout": {
		[]sqlkit.Column{{Name: "id", Type: "int"}, {Name: "shards", Type: "int"}, {Name: "epoch", Type: "bigint"}},
		[]sqlkit.Index{{Name: "PRIMARY", Columns: "id"}},
	},
}

func (m *database) Verify(ctx context.Context) (faults []error, err error) {
	read := func(ctx context.Context, query string, args []any, row func(*sql.Rows) error) error {
		// which it is, because MySQL has no transact
		return m.Read(ctx, dialect.Statement{Text: query, Args: args}, func() {},
			func(r store.Row) error { return row(r.(*sql.Rows)) })
	}
	suffixes := make([]string, 0, len(tables))
	for suffix := range tables {
		suffixes = append(suffixes, suffix)
	}
	slices.Sort(suffixes)
	for _, suffix := range suffixes {
		name := m.of.Dialect.Qualified(m.of.Schema, m.of.Name+suffix)
		table, err := sqlkit.ReadMySQLTable(ctx, m.of.Schema, m.of.Name+suffix, sqlkit.TextWithCollation, read)
		switch {
		case err != nil:
			return nil, err
		case table == nil:
			faults = append(faults, fmt.Errorf("there is no table %s, or this user has no right to it", name))
		default:
			faults = append(faults, table.Faults(name, tables[suffix].columns, tables[suffix].indexes)...)
		}
	}
	err = read(ctx, sqlkit.MySQLSession, nil, func(rows *sql.Rows) error {
		var commits, safe bool
		var completion, mode string
		err := rows.Scan(&commits, &completion, &safe, &mode)
		if err == nil {
			faults = append(faults, sqlkit.MySQLSessionFaults(commits, completion, safe, mode)...)
		}
		return err
	})
	return faults, err
}
