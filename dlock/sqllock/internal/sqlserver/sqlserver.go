// Package sqlserver is the dialect of SQL Server. It is experimental: it has not been run against a
// server.
package sqlserver

import (
	"context"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/dialect"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

//go:embed *.sql
var files embed.FS

// DB is a dialect.Database.
type DB struct {
	dialect.Pool
	table dialect.Table
	names map[string]string
}

// New returns the database of a table. It does not call the server.
func New(d dialect.Pool, t dialect.Table) *DB {
	table := sqlkit.SQLServer.Qualified(t.Schema, t.Name)
	return &DB{Pool: d, table: t, names: map[string]string{"table": table, "table_text": "N" + sqlkit.Text(table)}}
}

// file returns the text of a statement. LOCK_TIMEOUT takes no parameter: it is part of the text.
func (m *DB) file(name string, wait int64) string {
	text, err := files.ReadFile(name + ".sql")
	if err != nil {
		panic(err) // it is embedded
	}
	return strings.TrimSpace(sqlmigrate.Fill(string(text), map[string]string{
		"table": m.names["table"], "table_text": m.names["table_text"], "wait": strconv.FormatInt(wait, 10)}))
}

func (m *DB) String() string { return "sqlserver" }

// Acquire implements dialect.Database.
func (m *DB) Acquire(ctx context.Context, c dialect.AcquireParams) (v dialect.AcquireResult, err error) {
	err = m.QueryRow(ctx, m.file("acquire", c.Wait), []any{
		[]byte(c.Resource), c.Slots, []byte(c.Token), c.TTL, c.Tick, c.Max, c.MissedAt,
		dlock.MaxTickAhead.Microseconds(), c.Holder.Host, c.Holder.PID, c.Holder.ID, c.Wait, c.Schedule,
	}, v.Columns()...)
	return v, err
}

// Extend implements dialect.Database.
func (m *DB) Extend(ctx context.Context, ttl int64, grants string) (answers string, err error) {
	list, err := grantsOf(grants)
	if err == nil {
		err = m.QueryRow(ctx, m.file("extend", dialect.LockWait(ctx)), []any{ttl, list}, &answers)
	}
	return answers, err
}

// TakesAlso implements dialect.Database. No code for it is added here while this store cannot be
// run against a server.
func (m *DB) TakesAlso() bool { return false }

// KeepsDelay implements dialect.Database: see TakesAlso.
func (m *DB) KeepsDelay() bool { return false }

// Release implements dialect.Database.
func (m *DB) Release(ctx context.Context, grants string) (answers string, err error) {
	list, err := grantsOf(grants)
	if err == nil {
		err = m.QueryRow(ctx, m.file("release", dialect.LockWait(ctx)), []any{list}, &answers)
	}
	return answers, err
}

// grantsOf writes grants as the statements take them: [index, name in hex, slot, token in hex, 1 if
// the work ended well], which no collation can change.
func grantsOf(text string) (string, error) {
	var list []dialect.Grant
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return "", err
	}
	rows := make([][5]any, len(list))
	for i, g := range list {
		rows[i] = [5]any{g.Index, hex.EncodeToString([]byte(g.Resource)), g.Slot, hex.EncodeToString([]byte(g.Token)),
			g.Succeeded}
	}
	out, err := json.Marshal(rows)
	return string(out), err
}

// List implements dialect.Database.
func (m *DB) List(ctx context.Context, resource string) (held string, err error) {
	err = m.QueryRow(ctx, m.file("list", 0), []any{[]byte(resource)}, &held)
	return held, err
}

// Enumerate implements dialect.Database.
func (m *DB) Enumerate(ctx context.Context, c dialect.EnumerateParams) (p dialect.LeasePage, err error) {
	var leases string
	var last []byte
	args := []any{[]byte(c.Prefix), []byte(c.After.Resource), c.After.Slot, c.Limit, c.Released}
	if err := m.QueryRow(ctx, m.file("enumerate", dialect.LockWait(ctx)), args, &leases, &p.Seen, &last,
		&p.Last.Slot); err != nil {
		return p, err
	}
	p.Last.Resource = string(last)
	p.Leases, err = dialect.Leases(leases)
	for i := range p.Leases {
		if err == nil {
			p.Leases[i].Resource, err = nameOf(p.Leases[i].Resource)
		}
	}
	return p, err
}

// nameOf decodes a name that a statement returned in hex.
func nameOf(text string) (string, error) {
	name, err := hex.DecodeString(text)
	if err != nil {
		return "", fmt.Errorf("%w: %w", dialect.ErrAnswer, err)
	}
	return string(name), nil
}

// Update implements dialect.Database.
func (m *DB) Update(ctx context.Context, c dialect.Update) (bool, error) {
	wait, rows := dialect.LockWait(ctx), 0
	err := m.QueryRow(ctx, m.file("update", wait), []any{
		[]byte(c.Resource), c.Pause, dialect.OrNull(c.PauseOrigin), c.Limit, dialect.OrNull(c.LimitOrigin),
		dialect.OrNull(c.TriggerOrigin), wait, c.Value, c.IfVersion,
	}, &rows)
	return rows > 0, err
}

// Inspect implements dialect.Database.
func (m *DB) Inspect(ctx context.Context, resources string, values bool) (answers string, err error) {
	names, err := dialect.HexNames(resources)
	if err != nil {
		return "", err
	}
	if err := m.QueryRow(ctx, m.file("inspect", 0), []any{names, values}, &answers); err != nil {
		return "", err
	}
	var known []dialect.Control
	if err := json.Unmarshal([]byte(answers), &known); err != nil {
		return "", fmt.Errorf("%w: %w", dialect.ErrAnswer, err)
	}
	for i := range known {
		if known[i].Resource, err = nameOf(known[i].Resource); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(known)
	return string(text), err
}

// Revoke implements dialect.Database.
func (m *DB) Revoke(ctx context.Context, resource string, slot int, fence int64, by string) (bool, error) {
	rows := 0
	err := m.QueryRow(ctx, m.file("revoke", dialect.LockWait(ctx)), []any{[]byte(resource), slot, fence, by}, &rows)
	return rows > 0, err
}

// Cleanup implements dialect.Database.
func (m *DB) Cleanup(ctx context.Context, retention int64, after dialect.Row, limit int) (p dialect.Page, err error) {
	var last []byte
	err = m.QueryRow(ctx, m.file("cleanup", min(dialect.LockWait(ctx), dialect.LongestWait)),
		[]any{[]byte(after.Resource), after.Slot, limit, retention}, &p.Seen, &p.Deleted, &last, &p.Last.Slot)
	p.Last.Resource = string(last)
	return p, err
}

// schema returns the table, with its indexes.
func (m *DB) schema() sqlmigrate.Schema {
	return sqlmigrate.Schema{Dialect: sqlkit.SQLServer, Schema: m.table.Schema, Name: m.table.Name,
		Table: m.table.Name, Migrations: [][]string{{m.file("schema", 0)}}}
}

// Tables implements dialect.Database.
func (m *DB) Tables() sqlmigrate.Tables {
	return sqlmigrate.Tables{Schema: m.schema(), Read: dialect.ReadRow(m.QueryRow),
		Up: func(ctx context.Context) error { return m.schema().Up(ctx, m.DB) }}
}

// Audit implements dialect.Database.
func (m *DB) Audit(ctx context.Context, now func() time.Time) (warnings []string, err error) {
	var clock int64
	var delayed int
	sent := now()
	if err := m.QueryRow(ctx, "SELECT DATEDIFF_BIG(MICROSECOND, '1970-01-01', SYSUTCDATETIME()), delayed_durability "+
		"FROM sys.databases WHERE database_id = DB_ID()", nil, &clock, &delayed); err != nil {
		return nil, err
	}
	warnings = dialect.ClockWarnings(sent, now(), clock)
	if delayed == 2 {
		warnings = append(warnings, "DELAYED_DURABILITY is FORCED: leases may be lost when the server crashes, and "+
			"then be granted twice; set it to ALLOWED or DISABLED")
	}
	return warnings, nil
}
