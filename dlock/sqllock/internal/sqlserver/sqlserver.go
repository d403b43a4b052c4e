// Package sqlserver implements store.Database for SQL Server. It is experimental: it has not been
// run against a server.
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

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/store"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

//go:embed sql
var files embed.FS

// DB implements store.Database.
type DB struct {
	store.Pool
	table store.Table
	texts sqlkit.Texts
}

// New returns the database of a table. It does not call the server.
func New(d store.Pool, t store.Table) *DB {
	table := sqlkit.SQLServer.Qualified(t.Schema, t.Name)
	return &DB{Pool: d, table: t, texts: sqlkit.ReadTexts(files, sqlkit.SQLServer,
		map[string]string{"table": table, "table_text": "N" + sqlkit.Text(table)})}
}

// file returns the text of a statement. wait becomes part of the text, because LOCK_TIMEOUT accepts
// no parameter.
func (d *DB) file(name string, wait int64) string {
	return strings.ReplaceAll(d.texts[name], "{wait}", strconv.FormatInt(wait, 10))
}

func (d *DB) String() string { return "sqlserver" }

// Acquire implements store.Database.
func (d *DB) Acquire(ctx context.Context, c store.AcquireParams) (v store.AcquireResult, err error) {
	err = d.QueryRow(ctx, d.file("acquire", c.Wait), []any{
		[]byte(c.Resource), c.Slots, []byte(c.Token), c.TTL, c.Tick, c.Max, c.MissedAt,
		driver.MaxTickAhead.Microseconds(), c.Holder.Host, c.Holder.PID, c.Holder.ID, c.Wait, c.Schedule,
	}, v.Columns()...)
	return v, err
}

// Extend implements store.Database.
func (d *DB) Extend(ctx context.Context, ttl int64, grants string) (answers string, err error) {
	list, err := grantsOf(grants)
	if err == nil {
		err = d.QueryRow(ctx, d.file("extend", store.LockWait(ctx)), []any{ttl, list}, &answers)
	}
	return answers, err
}

// TakesShared implements store.Database. Shared semaphores are not supported while this store
// cannot be run against a server.
func (d *DB) TakesShared() bool { return false }

// KeepsDelay implements store.Database: see TakesShared.
func (d *DB) KeepsDelay() bool { return false }

// Release implements store.Database.
func (d *DB) Release(ctx context.Context, grants string) (answers string, err error) {
	list, err := grantsOf(grants)
	if err == nil {
		err = d.QueryRow(ctx, d.file("release", store.LockWait(ctx)), []any{list}, &answers)
	}
	return answers, err
}

// grantsOf converts grants to the form that the statements take: [index, name in hex, slot, token
// in hex, 1 if the work succeeded]. No collation can change this form.
func grantsOf(text string) (string, error) {
	var list []store.Grant
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

// List implements store.Database.
func (d *DB) List(ctx context.Context, resource string) (held string, err error) {
	err = d.QueryRow(ctx, d.file("list", 0), []any{[]byte(resource)}, &held)
	return held, err
}

// Enumerate implements store.Database.
func (d *DB) Enumerate(ctx context.Context, c store.EnumerateParams) (p store.LeasePage, err error) {
	var leases string
	var last []byte
	args := []any{[]byte(c.Prefix), []byte(c.After.Resource), c.After.Slot, c.Limit, c.Released}
	if err := d.QueryRow(ctx, d.file("enumerate", store.LockWait(ctx)), args, &leases, &p.Seen, &last,
		&p.Last.Slot); err != nil {
		return p, err
	}
	p.Last.Resource = string(last)
	p.Leases, err = store.Leases(leases)
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
		return "", fmt.Errorf("%w: %w", store.ErrAnswer, err)
	}
	return string(name), nil
}

// Update implements store.Database.
func (d *DB) Update(ctx context.Context, c store.Update) (bool, error) {
	wait, rows := store.LockWait(ctx), 0
	err := d.QueryRow(ctx, d.file("update", wait), []any{
		[]byte(c.Resource), c.Pause, store.OrNull(c.PauseOrigin), c.Limit, store.OrNull(c.LimitOrigin),
		store.OrNull(c.TriggerOrigin), wait, c.Value, c.IfVersion,
	}, &rows)
	return rows > 0, err
}

// Inspect implements store.Database.
func (d *DB) Inspect(ctx context.Context, resources string, values bool) (answers string, err error) {
	names, err := store.HexNames(resources)
	if err != nil {
		return "", err
	}
	if err := d.QueryRow(ctx, d.file("inspect", 0), []any{names, values}, &answers); err != nil {
		return "", err
	}
	var known []store.Control
	if err := json.Unmarshal([]byte(answers), &known); err != nil {
		return "", fmt.Errorf("%w: %w", store.ErrAnswer, err)
	}
	for i := range known {
		if known[i].Resource, err = nameOf(known[i].Resource); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(known)
	return string(text), err
}

// Revoke implements store.Database.
func (d *DB) Revoke(ctx context.Context, resource string, slot int, fence int64, by string) (bool, error) {
	rows := 0
	err := d.QueryRow(ctx, d.file("revoke", store.LockWait(ctx)), []any{[]byte(resource), slot, fence, by}, &rows)
	return rows > 0, err
}

// Cleanup implements store.Database.
func (d *DB) Cleanup(ctx context.Context, retention int64, after store.Row, limit int) (p store.Page, err error) {
	var last []byte
	err = d.QueryRow(ctx, d.file("cleanup", min(store.LockWait(ctx), store.LongestWait)),
		[]any{[]byte(after.Resource), after.Slot, limit, retention}, &p.Seen, &p.Deleted, &last, &p.Last.Slot)
	p.Last.Resource = string(last)
	return p, err
}

// schema returns the table with its indexes.
func (d *DB) schema() sqlmigrate.Schema {
	return sqlmigrate.Schema{Dialect: sqlkit.SQLServer, Schema: d.table.Schema, Name: d.table.Name,
		Table: d.table.Name, Migrations: [][]string{{d.file("schema", 0)}}}
}

// Tables implements store.Database.
func (d *DB) Tables() sqlmigrate.Tables {
	return sqlmigrate.Tables{Schema: d.schema(), Read: store.ReadRow(d.QueryRow),
		Up: func(ctx context.Context) error { return d.schema().Up(ctx, d.DB) }}
}

// Audit implements store.Database.
func (d *DB) Audit(ctx context.Context, now func() time.Time) (warnings []string, err error) {
	var clock int64
	var delayed int
	sent := now()
	if err := d.QueryRow(ctx, "SELECT DATEDIFF_BIG(MICROSECOND, '1970-01-01', SYSUTCDATETIME()), delayed_durability "+
		"FROM sys.databases WHERE database_id = DB_ID()", nil, &clock, &delayed); err != nil {
		return nil, err
	}
	warnings = store.ClockWarnings(sent, now(), clock)
	if delayed == 2 {
		warnings = append(warnings, "DELAYED_DURABILITY is FORCED: leases may be lost when the server crashes, and "+
			"then be granted twice; set it to ALLOWED or DISABLED")
	}
	return warnings, nil
}
