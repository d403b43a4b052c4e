// Package sqlserver implements dialect.Database on SQL Server.
package sqlserver

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
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
	d := sqlkit.SQLServer
	m := &database{of: sqlmigrate.Schema{Dialect: d, Schema: schema, Name: table, Table: table},
		tables: map[string]map[string]string{}}
	m.Server = dialect.Server{DB: db, Bound: m.bound}
	names := map[string]string{}
	for suffix, columns := range columns {
		in := d.Qualified(schema, table+suffix)
		names[cmp.Or(suffix, "_messages")[1:]] = in
		m.tables[in] = columns
	}
	names["messages_text"] = "N" + sqlkit.Text(names["messages"])
	m.texts = dialect.NewTexts(files, names)
	return m
}

// columns have the names of sys.types.
var columns = map[string]map[string]string{
	"": {"seq": "bigint", "message_id": "binary", "topic": "varbinary", "key": "varbinary", "key_hash": "bigint",
		"payload": "varbinary", "headers": "nvarchar", "state": "varchar", "attempts": "int", "tried": "int",
		"crashes": "int", "next_attempt_at": "datetime2", "created_at": "datetime2", "requeued_at": "datetime2",
		"failing_since": "datetime2", "finished_at": "datetime2", "last_error": "nvarchar", "note": "nvarchar"},
	"_attempts": {"message": "bigint", "attempt": "int", "at": "datetime2", "took": "bigint", "node": "nvarchar",
		"outcome": "varchar", "error": "nvarchar"},
	"_inbox":  {"consumer": "varbinary", "message_id": "binary", "received_at": "datetime2"},
	"_layout": {"id": "int", "shards": "int", "epoch": "bigint"},
}

type database struct {
	dialect.Without
	dialect.Server
	of     sqlmigrate.Schema // without statements
	texts  dialect.Texts
	tables map[string]map[string]string // their columns
}

func (m *database) String() string       { return "sqlserver" }
func (m *database) Texts() dialect.Texts { return m.texts }

func (m *database) Tables() sqlmigrate.Tables {
	s := m.of
	s.Migrations, s.Repeat = [][]string{{m.texts["schema"]}}, []string{m.texts["indexes"]}
	return m.Server.Tables(s)
}

// Bind sends names as bytes, and lists of them in hex, which no collation can change.
func (m *database) Bind(text string, values dialect.Params) dialect.Statement {
	return dialect.Bind(text, values, true, func(n int, value any) (string, any, bool) {
		switch v := value.(type) {
		case store.ID:
			value = v[:]
		case dialect.Name:
			value = []byte(v)
		case dialect.Names:
			inHex := make([]string, len(v))
			for i, name := range v {
				inHex[i] = hex.EncodeToString([]byte(name))
			}
			value = dialect.List(inHex)
		case dialect.Numbers:
			value = dialect.List[int64](v)
		}
		return fmt.Sprintf("@p%d", n), value, true
	})
}

// bound returns a statement that waits for locks for as long as ctx allows. LOCK_TIMEOUT takes no
// parameter.
func (m *database) bound(ctx context.Context, text string) string {
	limit := sqlkit.LastResort
	if deadline, ok := ctx.Deadline(); ok {
		limit = max(time.Millisecond, min(time.Until(deadline)*9/10, time.Minute))
	}
	return strings.ReplaceAll(text, "{wait}", fmt.Sprint(limit.Milliseconds()))
}

// Split returns a text as one batch, in which statements share variables.
func (m *database) Split(text string) []string { return []string{text} }

func (m *database) ID(id store.ID) string { return fmt.Sprintf("0x%x", id[:]) }

func (m *database) Instant(param string) string { // DATEADD takes an int
	return "DATEADD(microsecond, " + param + " % 1000000, DATEADD(second, " + param + " / 1000000, " +
		"CONVERT(datetime2(6), '1970-01-01')))"
}

// IsThere goes by the numbers of a unique index and of a primary key, each of which only one of the
// two tables has besides what the server numbers itself.
func (m *database) IsThere(err error, index string) bool {
	var refusal interface{ SQLErrorNumber() int32 }
	if !errors.As(err, &refusal) {
		return false
	}
	if index == dialect.IndexOfRecords {
		return refusal.SQLErrorNumber() == 2627
	}
	return refusal.SQLErrorNumber() == 2601
}

// IsLater is about a transaction that was the victim of a deadlock, or reads a snapshot.
func (m *database) IsLater(err error) bool {
	var refusal interface{ SQLErrorNumber() int32 }
	return errors.As(err, &refusal) && (refusal.SQLErrorNumber() == 1205 || refusal.SQLErrorNumber() == 3960)
}

func (m *database) Explain(err error) error { return sqlkit.Explain(err) }
