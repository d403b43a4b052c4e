// Package mysql implements store.Database for MySQL and MariaDB.
package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/store"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

//go:embed sql
var files embed.FS

// version is part of the names of the procedures. So hosts with two versions can share a table
// during a rolling update, each with its own procedures.
const version = "_v1"

// DB implements store.Database.
type DB struct {
	store.Pool
	table store.Table
	texts sqlkit.Texts
}

// routines are the procedures. The statements named create_acquire and so on create them.
var routines = []string{"acquire", "extend", "release", "cleanup", "update", "revoke"}

// New returns the database of a table. It does not call the server.
func New(d store.Pool, t store.Table) *DB {
	in := func(suffix string) string {
		return sqlkit.MySQL.Qualified(t.Schema, t.Name+suffix)
	}
	names := map[string]string{"table": in("")}
	for _, routine := range routines {
		names[routine] = in("_" + routine + version)
	}
	return &DB{Pool: d, table: t, texts: sqlkit.ReadTexts(files, sqlkit.MySQL, names)}
}

func (d *DB) String() string { return "mysql" }

// call calls a procedure. After an error, it discards the connection, because the connection's
// settings may not have been restored. After a KILL QUERY, which runs no handlers, its session may
// also be within a transaction.
func (d *DB) call(ctx context.Context, query string, args []any, dest ...any) error {
	return d.With(ctx, func(conn *sql.Conn) error {
		err := sqlkit.QueryRow(ctx, conn, query, args, dest...)
		if err != nil {
			_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
		}
		return err
	})
}

// Acquire passes text as bytes, because the server would convert text from the connection's
// character set.
func (d *DB) Acquire(ctx context.Context, c store.AcquireParams) (v store.AcquireResult, err error) {
	err = d.call(ctx, d.texts["acquire"], []any{
		[]byte(c.Resource), c.Slots, []byte(c.Token), c.TTL, c.Tick, c.Max, c.MissedAt, c.Schedule,
		driver.MaxTickAhead.Microseconds(),
		cut(c.Holder.Host), c.Holder.PID, cut(c.Holder.ID), min(c.Wait, store.LongestWait), sharedJSON(c.Shared),
		store.DelayOrNull(c),
	}, v.ColumnsOfAll()...)
	return v, err
}

// sharedJSON returns the further semaphores as [[name in hex, slots, rate, per], …], or nil if
// there are none.
func sharedJSON(shared []store.SemaphoreSpec) *string {
	if len(shared) == 0 {
		return nil
	}
	list := make([][4]any, len(shared))
	for i, l := range shared {
		list[i] = [4]any{hex.EncodeToString([]byte(l.Resource)), l.Slots, l.Rate, l.Per}
	}
	text := store.AsJSON(list)
	return &text
}

// TakesShared implements store.Database.
func (d *DB) TakesShared() bool { return true }

// KeepsDelay implements store.Database.
func (d *DB) KeepsDelay() bool { return true }

// cut truncates text to the 255 characters of a column.
func cut(text string) []byte {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	n := 0
	for end := range text {
		if n == maxText {
			return []byte(text[:end])
		}
		n++
	}
	return []byte(text)
}

const maxText = 255

// Extend implements store.Database.
func (d *DB) Extend(ctx context.Context, ttl int64, grants string) (answers string, err error) {
	list, err := grantsOf(grants)
	if err == nil {
		err = d.call(ctx, d.texts["extend"], []any{ttl, list, min(store.LockWait(ctx), store.LongestWait)}, &answers)
	}
	return answers, err
}

// Release implements store.Database.
func (d *DB) Release(ctx context.Context, grants string) (answers string, err error) {
	list, err := grantsOf(grants)
	if err == nil {
		err = d.call(ctx, d.texts["release"], []any{list, min(store.LockWait(ctx), store.LongestWait)}, &answers)
	}
	return answers, err
}

// grantsOf converts grants to the format of the procedures. It writes names in hex, which no
// character set changes.
func grantsOf(text string) (string, error) {
	var list []store.Grant
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return "", err
	}
	var b strings.Builder
	for i, g := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `[%d,"%x",%d,"%s",%d]`, g.Index, g.Resource, g.Slot, g.Token, g.Succeeded)
	}
	return "[" + b.String() + "]", nil
}

// List reads row by row, because MariaDB truncates aggregated text after group_concat_max_len
// bytes.
func (d *DB) List(ctx context.Context, resource string) (string, error) {
	held := []store.Lease{}
	err := d.read(ctx, d.texts["list"], []any{[]byte(resource)}, func(rows *sql.Rows) error {
		var h store.Lease
		err := rows.Scan(&h.Slot, &h.Host, &h.PID, &h.ID, &h.Fence, &h.HeldFor, &h.RenewedAgo, &h.ExpiresIn)
		held = append(held, h)
		return err
	})
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(held)
	return string(text), err
}

// Enumerate implements store.Database.
func (d *DB) Enumerate(ctx context.Context, c store.EnumerateParams) (p store.LeasePage, err error) {
	after := []byte(c.After.Resource)
	args := []any{len(c.Prefix), []byte(c.Prefix), c.Released, after, after, c.After.Slot, c.Limit}
	err = d.read(ctx, d.texts["enumerate"], args, func(rows *sql.Rows) error {
		var h store.Lease
		var live bool
		err := rows.Scan(&live, &h.Resource, &h.Slot, &h.Host, &h.PID, &h.ID, &h.Fence, &h.HeldFor, &h.RenewedAgo,
			&h.ExpiresIn, &h.ReleasedAgo)
		p.Seen, p.Last = p.Seen+1, store.Row{Resource: h.Resource, Slot: h.Slot}
		if live {
			p.Leases = append(p.Leases, h)
		}
		return err
	})
	return p, err
}

// read calls row for each row of a query. It runs in a new transaction. With autocommit = 0, or
// completion_type = CHAIN, an older transaction with an old snapshot could still be open.
func (d *DB) read(ctx context.Context, query string, args []any, row func(*sql.Rows) error) error {
	const end = "ROLLBACK AND NO CHAIN NO RELEASE"
	return d.With(ctx, func(conn *sql.Conn) error {
		for _, statement := range []string{end, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"} {
			if _, err := conn.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		defer func() {
			if _, failed := conn.ExecContext(ctx, end); failed != nil {
				sqlkit.Discard(conn)
			}
		}()
		return sqlkit.EachRow(ctx, conn, query, args, row)
	})
}

// Update implements store.Database.
func (d *DB) Update(ctx context.Context, c store.Update) (done bool, err error) {
	err = d.call(ctx, d.texts["update"], []any{
		[]byte(c.Resource), c.Pause, store.OrNull(c.PauseOrigin), c.Limit, store.OrNull(c.LimitOrigin),
		store.OrNull(c.TriggerOrigin), []byte(c.Value), c.IfVersion, min(store.LockWait(ctx), store.LongestWait),
	}, &done)
	return done, err
}

// Inspect implements store.Database.
func (d *DB) Inspect(ctx context.Context, resources string, values bool) (string, error) {
	names, err := store.HexNames(resources)
	if err != nil {
		return "", err
	}
	known := []store.Control{}
	err = d.read(ctx, d.texts["inspect"], []any{values, names}, func(rows *sql.Rows) error {
		var o store.Control
		err := rows.Scan(&o.Resource, &o.Version, &o.PauseLeft, &o.PauseOrigin, &o.Limit, &o.LimitOrigin,
			&o.TriggeredAt, &o.TriggerAge, &o.TriggerOrigin, &o.Tick, &o.Host, &o.PID, &o.ID, &o.Clock, &o.Value)
		known = append(known, o)
		return err
	})
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(known)
	return string(text), err
}

// Revoke implements store.Database.
func (d *DB) Revoke(ctx context.Context, resource string, slot int, fence int64, by string) (held bool, err error) {
	err = d.call(ctx, d.texts["revoke"], []any{[]byte(resource), slot, fence, by,
		min(store.LockWait(ctx), store.LongestWait)}, &held)
	return held, err
}

// Cleanup implements store.Database.
func (d *DB) Cleanup(ctx context.Context, retention int64, after store.Row, limit int) (p store.Page, err error) {
	err = d.call(ctx, d.texts["cleanup"], []any{[]byte(after.Resource), after.Slot, limit, retention,
		min(store.LockWait(ctx), store.LongestWait)},
		&p.Seen, &p.Deleted, &p.Last.Resource, &p.Last.Slot)
	return p, err
}

// schema returns the table, with the procedures as the additional objects. (Not every MySQL 8.0
// supports IF NOT EXISTS for procedures.)
func (d *DB) schema() sqlmigrate.Schema {
	s := sqlmigrate.Schema{Dialect: sqlkit.MySQL, AnySettings: true, Schema: d.table.Schema, Name: d.table.Name,
		Table: d.table.Name, Migrations: [][]string{{d.texts["schema"]}}}
	for _, routine := range routines {
		s.Repeat = append(s.Repeat, d.texts["create_"+routine])
	}
	return s
}

// Tables implements store.Database.
func (d *DB) Tables() sqlmigrate.Tables {
	return sqlmigrate.Tables{Schema: d.schema(), Besides: d.besides,
		Read: func(ctx context.Context, query string, args []any, begin func(), row func(sqlmigrate.Row) error) error {
			begin()
			return d.read(ctx, query, args, func(rows *sql.Rows) error { return row(rows) })
		},
		Up: func(ctx context.Context) error { return d.schema().Up(ctx, d.DB) }}
}

// besides returns an error for each missing procedure.
func (d *DB) besides(ctx context.Context) ([]error, error) {
	var found int
	args, exact := []any{store.OrNull(d.table.Schema)}, []any{}
	for _, routine := range routines {
		name := d.table.Name + "_" + routine + version
		args, exact = append(args, name), append(exact, []byte(name))
	}
	err := d.read(ctx, d.texts["routines"], append(args, exact...), func(rows *sql.Rows) error {
		return rows.Scan(&found)
	})
	if err != nil || found == len(routines) {
		return nil, err
	}
	return []error{fmt.Errorf(
		"of the %d procedures of this version this user sees %d: it may lack EXECUTE on them, or another table,"+
			" whose name differs by case or accents only, has them", len(routines), found)}, nil
}

// Audit implements store.Database.
func (d *DB) Audit(ctx context.Context, now func() time.Time) (warnings []string, err error) {
	var clock int64
	var flush, binlog, sync int
	var readOnly string
	sent := now()
	err = d.QueryRow(ctx, "SELECT TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6)), "+
		"@@GLOBAL.innodb_flush_log_at_trx_commit, @@GLOBAL.log_bin, @@GLOBAL.sync_binlog, CONCAT(@@GLOBAL.read_only)",
		nil,
		&clock, &flush, &binlog, &sync, &readOnly)
	if err != nil {
		return nil, err
	}
	warnings = store.ClockWarnings(sent, now(), clock)
	const lost = ": leases may be lost when the server's machine crashes, and then be granted twice; set it to 1"
	if flush == 0 || flush == 2 {
		warnings = append(warnings, fmt.Sprintf("innodb_flush_log_at_trx_commit is %d%s", flush, lost))
	}
	if binlog != 0 && sync != 1 { // after a crash, InnoDB undoes transactions that did not reach the binary log
		warnings = append(warnings, fmt.Sprintf("there is a binary log, and sync_binlog is %d%s", sync, lost))
	}
	if readOnly != "0" && !strings.EqualFold(readOnly, "OFF") {
		warnings = append(warnings, "this server is read-only, a replica perhaps, and grants nothing: connect to "+
			"the primary")
	}
	return warnings, nil
}
