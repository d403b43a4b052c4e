package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// SQLServer returns a store on Microsoft SQL Server 2017 or newer, with any driver for database/sql
// that numbers its parameters @p1, @p2 and so on, as microsoft/go-mssqldb does. It does not call
// the server.
//
// It is EXPERIMENTAL: it has never been run against a server. Its statements follow the
// documentation, and only their texts are tested. Run package storetest on it before you rely on
// it, and tell us. It may change or be removed in any release.
func SQLServer(db *sql.DB, opts Options) (*Store, error) {
	opts, err := checked(db, opts, func(string, string) error { return nil })
	if err != nil {
		return nil, err
	}
	d := sqlmigrate.DialectSQLServer
	m := &sqlserver{tables: map[string]map[string]string{}}
	m.server = server{db: db, bound: m.bound}
	names := map[string]string{}
	for suffix, columns := range sqlserverColumns {
		in := d.Qualified(opts.Schema, opts.TableName+suffix)
		names[cmp.Or(suffix, "_messages")[1:]] = in
		m.tables[in] = columns
	}
	names["messages_text"] = "N" + sqlmigrate.Text(names["messages"])
	m.texts = newTexts("sqlserver", names)
	return &Store{database: m, texts: m.texts, pool: db, schema: sqlmigrate.Schema{Dialect: d, Schema: opts.Schema,
		Name: opts.TableName, Table: opts.TableName, Migrations: [][]string{{m.texts["schema"]}},
		Repeat: []string{m.texts["indexes"]}}}, nil
}

// sqlserverColumns have the names of sys.types.
var sqlserverColumns = map[string]map[string]string{
	"": {"seq": "bigint", "message_id": "binary", "topic": "varbinary", "key": "varbinary", "key_hash": "bigint",
		"payload": "varbinary", "headers": "nvarchar", "state": "varchar", "attempts": "int", "tried": "int",
		"next_attempt_at": "datetime2", "created_at": "datetime2", "finished_at": "datetime2", "last_error": "nvarchar",
		"note": "nvarchar"},
	"_attempts": {"message": "bigint", "attempt": "int", "at": "datetime2", "took": "bigint", "node": "nvarchar",
		"outcome": "varchar", "error": "nvarchar"},
	"_inbox":  {"consumer": "varbinary", "message_id": "binary", "received_at": "datetime2"},
	"_layout": {"id": "int", "shards": "int", "epoch": "bigint"},
}

type sqlserver struct {
	without
	server
	texts  texts
	tables map[string]map[string]string // their columns
}

func (m *sqlserver) String() string { return "sqlserver" }

// bind sends names as bytes, and lists of them in hex, which no collation can change.
func (m *sqlserver) bind(text string, values params) statement {
	return bind(text, values, true, func(n int, value any) (string, any, bool) {
		switch v := value.(type) {
		case store.ID:
			value = v[:]
		case name:
			value = []byte(v)
		case names:
			inHex := make([]string, len(v))
			for i, name := range v {
				inHex[i] = hex.EncodeToString([]byte(name))
			}
			value = list(inHex)
		case numbers:
			value = list[int64](v)
		}
		return fmt.Sprintf("@p%d", n), value, true
	})
}

// bound returns a statement that waits for locks for as long as ctx allows. LOCK_TIMEOUT takes no
// parameter.
func (m *sqlserver) bound(ctx context.Context, text string) string {
	limit := sqlkit.LastResort
	if deadline, ok := ctx.Deadline(); ok {
		limit = max(time.Millisecond, min(time.Until(deadline)*9/10, time.Minute))
	}
	return strings.ReplaceAll(text, "{wait}", fmt.Sprint(limit.Milliseconds()))
}

// split returns a text as one batch, in which statements share variables.
func (m *sqlserver) split(text string) []string { return []string{text} }

func (m *sqlserver) id(id store.ID) string { return fmt.Sprintf("0x%x", id[:]) }

func (m *sqlserver) instant(param string) string { // DATEADD takes an int
	return "DATEADD(microsecond, " + param + " % 1000000, DATEADD(second, " + param + " / 1000000, " +
		"CONVERT(datetime2(6), '1970-01-01')))"
}

// isThere goes by the numbers of a unique index and of a primary key, each of which only one of the
// two tables has besides what the server numbers itself.
func (m *sqlserver) isThere(err error, index string) bool {
	var refusal interface{ SQLErrorNumber() int32 }
	if !errors.As(err, &refusal) {
		return false
	}
	if index == indexOfRecords {
		return refusal.SQLErrorNumber() == 2627
	}
	return refusal.SQLErrorNumber() == 2601
}

// isLater is about a transaction that was the victim of a deadlock, or reads a snapshot.
func (m *sqlserver) isLater(err error) bool {
	var refusal interface{ SQLErrorNumber() int32 }
	return errors.As(err, &refusal) && (refusal.SQLErrorNumber() == 1205 || refusal.SQLErrorNumber() == 3960)
}

func (m *sqlserver) explain(err error) error { return sqlkit.Explain(err) }

func (m *sqlserver) prepare(context.Context) error { return nil }

func (m *sqlserver) verify(ctx context.Context) (faults []error, err error) {
	return verify(ctx, m, m.texts["verify"], m.tables, append([]string{indexOfMessages}, indexes...))
}
