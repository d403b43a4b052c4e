package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// MySQL returns a store on MySQL 8.0 or MariaDB 10.6, or newer, with any driver for database/sql.
// It does not call the server.
//
// A read is one statement: one round trip with interpolateParams=true (go-sql-driver/mysql), two
// without it. Due takes a few more while a long queue is in its way. Mark takes five round trips,
// for its transaction. Sessions have to commit by themselves (autocommit=1, the default).
//
// A driver that gives up a call closes the connection, but a server that waits for a lock does not
// notice that. MariaDB therefore gets the limit of the call with each statement. MySQL has no such
// limit for statements that write: one that waits for a locked row goes on for as long as
// innodb_lock_wait_timeout of the server says, 50 s by default.
func MySQL(db *sql.DB, opts Options) (*Store, error) {
	opts, err := checked(db, opts, sqlkit.CheckMySQLName)
	if err != nil {
		return nil, err
	}
	d := sqlmigrate.DialectMySQL
	m := &mysql{opts: opts}
	m.server = server{db: db, bound: m.bound}
	names := map[string]string{}
	for suffix := range mysqlTables {
		names[cmp.Or(suffix, "_messages")[1:]] = d.Qualified(opts.Schema, opts.TableName+suffix)
	}
	t := newTexts("mysql", names)
	return &Store{database: m, texts: t, pool: db, schema: sqlmigrate.Schema{Dialect: d, Schema: opts.Schema,
		Name: opts.TableName, Table: opts.TableName, Migrations: [][]string{sqlmigrate.Statements(t["schema"])},
		Repeat: sqlmigrate.Statements(t["indexes"])}}, nil
}

type mysql struct {
	without
	server
	opts Options
}

func (m *mysql) String() string { return "mysql" }

// bind writes numbers, names and ids into the text, so that the server chooses indexes by them, and
// text as bytes, because the server converts text from the connection's character set.
func (m *mysql) bind(text string, values params) statement {
	return bind(text, values, false, func(_ int, value any) (string, any, bool) {
		switch v := value.(type) {
		case int64:
			return strconv.FormatInt(v, 10), nil, false
		case store.ID:
			return m.id(v), nil, false
		case name:
			return inHex(string(v)), nil, false
		case names:
			all := []string{inHex("\x00")} // which no name has: a list must not be empty
			for _, name := range v {
				all = append(all, inHex(name))
			}
			return strings.Join(all, ", "), nil, false
		case numbers:
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
func (m *mysql) bound(ctx context.Context, text string) string {
	limit := sqlkit.LastResort
	if deadline, ok := ctx.Deadline(); ok {
		limit = max(time.Millisecond, min(time.Until(deadline)*9/10, time.Minute))
	}
	ms, s := limit.Milliseconds(), max(1, int64(limit/time.Second))
	return strings.NewReplacer(
		"{bounded}", fmt.Sprintf("/*M! SET STATEMENT max_statement_time = %d / 1000 FOR */", ms),
		"{hint}", fmt.Sprintf("/*+ SET_VAR(lock_wait_timeout = %d) MAX_EXECUTION_TIME(%d) */", s, ms),
	).Replace(text)
}

func (m *mysql) split(text string) []string { return sqlmigrate.Statements(text) }

func (m *mysql) id(id store.ID) string { return fmt.Sprintf("x'%x'", id[:]) }

func (m *mysql) instant(param string) string {
	return "TIMESTAMP'1970-01-01 00:00:00' + INTERVAL " + param + " MICROSECOND"
}

// isThere goes by the number and by the name of the index: what else is in the text depends on the
// language of the server.
func (m *mysql) isThere(err error, index string) bool {
	if sqlkit.MySQLNumber(err) != "1062" {
		return false
	}
	if index == indexOfRecords {
		index = "PRIMARY"
	}
	return strings.Contains(err.Error(), "'"+index+"'") || strings.Contains(err.Error(), "."+index+"'")
}

func (m *mysql) isLater(err error) bool  { return repeats(err) }
func (m *mysql) explain(err error) error { return sqlkit.Explain(err) }

func (m *mysql) prepare(context.Context) error { return nil }

const mysqlText = "longtext utf8mb4_bin"

var mysqlTables = map[string]struct {
	columns []sqlkit.Column
	indexes []sqlkit.Index
}{
	"": {
		[]sqlkit.Column{{Name: "seq", Type: "bigint"}, {Name: "message_id", Type: "binary(16)"},
			{Name: "topic", Type: "varbinary(200)"}, {Name: "key", Type: "varbinary(200)"},
			{Name: "key_hash", Type: "int unsigned"}, {Name: "payload", Type: "longblob"},
			{Name: "headers", Type: mysqlText}, {Name: "state", Type: "varbinary(10)"}, {Name: "attempts", Type: "int"},
			{Name: "tried", Type: "int"}, {Name: "next_attempt_at", Type: "datetime(6)"},
			{Name: "created_at", Type: "datetime(6)"}, {Name: "finished_at", Type: "datetime(6)"},
			{Name: "last_error", Type: mysqlText}, {Name: "note", Type: mysqlText},
			{Name: "pending_topic", Type: "varbinary(200)"}, {Name: "fresh_key", Type: "varbinary(200)"},
			{Name: "retried_key", Type: "varbinary(200)"}, {Name: "dead_key", Type: "varbinary(200)"},
			{Name: "retry_at", Type: "datetime(6)"}},
		[]sqlkit.Index{{Name: "PRIMARY", Columns: "seq"}, {Name: "message_id", Columns: "message_id"},
			{Name: "pending", Columns: "state,seq"}, {Name: "fresh", Columns: "fresh_key,seq"},
			{Name: "topics", Columns: "pending_topic,key,seq"},
			{Name: "retried", Columns: "retried_key,seq"}, {Name: "dead_keys", Columns: "dead_key,seq"},
			{Name: "backoff", Columns: "retry_at"},
			{Name: "finished", Columns: "state,finished_at"}},
	},
	"_attempts": {
		[]sqlkit.Column{{Name: "message", Type: "bigint"}, {Name: "attempt", Type: "int"},
			{Name: "at", Type: "datetime(6)"}, {Name: "took", Type: "bigint"}, {Name: "node", Type: "text utf8mb4_bin"},
			{Name: "outcome", Type: "varbinary(10)"}, {Name: "error", Type: mysqlText}},
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

func (m *mysql) verify(ctx context.Context) (faults []error, err error) {
	read := func(ctx context.Context, query string, args []any, row func(*sql.Rows) error) error {
		// which it is, because MySQL has no transact
		return m.read(ctx, statement{query, args}, func() {}, func(r store.Row) error { return row(r.(*sql.Rows)) })
	}
	suffixes := make([]string, 0, len(mysqlTables))
	for suffix := range mysqlTables {
		suffixes = append(suffixes, suffix)
	}
	slices.Sort(suffixes)
	for _, suffix := range suffixes {
		name := sqlmigrate.DialectMySQL.Qualified(m.opts.Schema, m.opts.TableName+suffix)
		table, err := sqlkit.ReadMySQLTable(ctx, m.opts.Schema, m.opts.TableName+suffix, sqlkit.TextWithCollation, read)
		switch {
		case err != nil:
			return nil, err
		case table == nil:
			faults = append(faults, fmt.Errorf("there is no table %s, or this user has no right to it", name))
		default:
			faults = append(faults, table.Faults(name, mysqlTables[suffix].columns, mysqlTables[suffix].indexes)...)
		}
	}
	commits := true
	err = read(ctx, "SELECT @@SESSION.autocommit", nil, func(rows *sql.Rows) error { return rows.Scan(&commits) })
	if !commits {
		faults = append(faults, errors.New("sessions do not commit by themselves: take autocommit=0 out of the "+
			"settings of the connection or the server"))
	}
	return faults, err
}
