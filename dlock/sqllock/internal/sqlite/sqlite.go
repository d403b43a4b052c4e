// Package sqlite implements store.Database for SQLite. It rejects files on which SQLite's locks do
// not work.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/store"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

//go:embed sql
var files embed.FS

// now is the current time in µs, exact to the millisecond. SQLite uses the machine's clock. The
// time is constant within a statement and is read when the statement has its lock. julianday is the
// oldest function with milliseconds, and round removes the error of its float64.
const now = "(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)"

// ahead is driver.MaxTickAhead in µs.
const ahead = int64(driver.MaxTickAhead / time.Microsecond)

// DB implements store.Database.
type DB struct {
	file                *sqlkit.File
	name, ends, holders string
	table               string                   // the name as statements quote it
	RemoteKind          func(path string) string // see sqlkit.RemoteKind; tests replace it
	schema              sqlmigrate.Schema

	texts sqlkit.Texts
}

// New returns the database of a table. It does not open the file.
func New(db store.Pool, t store.Table) *DB {
	// The schema excludes a temporary table of that name.
	in := func(name string) string { return sqlkit.SQLite.Qualified("main", name) }
	s := &DB{file: sqlkit.NewFile(db.DB), name: t.Name, ends: t.Name + "_ends", holders: t.Name + "_holders",
		RemoteKind: sqlkit.RemoteKind}
	s.table = in(s.name)
	names := map[string]string{"table": s.table, "name": sqlkit.SQLite.Quote(s.name), "ends_in": in(s.ends),
		"holders_in": in(s.holders), "now": now, "ahead": strconv.FormatInt(ahead, 10),
		"n": "(CASE WHEN head.slot_limit > 0 THEN head.slot_limit ELSE ?2 END)"}
	s.texts = sqlkit.ReadTexts(files, sqlkit.SQLite, names)
	s.schema = sqlmigrate.Schema{Dialect: sqlkit.SQLite, Schema: "main", Name: s.name, Table: s.name,
		Migrations: [][]string{sqlmigrate.Statements(s.texts["schema"])},
		Repeat:     sqlmigrate.Statements(s.texts["indexes"])}
	return s
}

func (d *DB) String() string { return "sqlite" }

// Close does nothing, because the caller owns the *sql.DB.
func (d *DB) Close() error { return nil }

// roundTTL rounds up to whole milliseconds, like SQLite's clock. A lease ends when the clock shows
// more than its start plus the result, so it never ends before its holder stops trusting it.
func roundTTL(micros int64) int64 { return (micros + 999) / 1000 * 1000 }

// Extend implements store.Database.
func (d *DB) Extend(ctx context.Context, ttl int64, grants string) (answers string, err error) {
	return d.each(ctx, d.texts["extend"], grants, roundTTL(ttl), grants)
}

// Release implements store.Database.
func (d *DB) Release(ctx context.Context, grants string) (answers string, err error) {
	return d.each(ctx, d.texts["release"], grants, grants)
}

// each executes a statement that returns the held grants, and answers for all grants.
func (d *DB) each(ctx context.Context, query, grants string, args ...any) (answers string, err error) {
	type key struct{ resource, token string }
	type row struct {
		key
		declared int
		version  int64
		revoked  *string
	}
	var wanted []store.Grant
	if err := json.Unmarshal([]byte(grants), &wanted); err != nil {
		return "", err
	}
	held, err := sqlkit.InTime(ctx, func(ctx context.Context) (held map[key]row, err error) {
		err = d.write(ctx, query, func(conn *sql.Conn, statement *sql.Stmt) error {
			rows, err := scan(func(r *row) []any {
				return []any{&r.resource, &r.token, &r.declared, &r.version, &r.revoked}
			})(statement.QueryContext(local, args...))
			if err != nil {
				return err
			}
			held = make(map[key]row, len(rows))
			for _, r := range rows {
				held[r.key] = r
			}
			noted := map[string]bool{}
			for _, w := range wanted {
				if _, ok := held[key{w.Resource, w.Token}]; !ok || w.Succeeded != 1 || noted[w.Resource] {
					continue
				}
				noted[w.Resource] = true
				if _, err := conn.ExecContext(local, d.texts["mark_succeeded"], w.Resource); err != nil {
					return err
				}
			}
			return nil
		})
		return held, err
	})
	if err != nil {
		return "", err
	}
	list := make([]store.Answer, len(wanted))
	for i, w := range wanted {
		list[i] = store.Answer{Index: w.Index}
		if r, ok := held[key{w.Resource, w.Token}]; ok {
			list[i] = store.Answer{Index: w.Index, Declared: r.declared, Version: r.version, Revoked: r.revoked}
			if r.revoked == nil {
				list[i].Held = 1
			}
		}
	}
	text, err := json.Marshal(list)
	return string(text), err
}

// List implements store.Database.
func (d *DB) List(ctx context.Context, resource string) (held string, err error) {
	return sqlkit.InTime(ctx, func(ctx context.Context) (string, error) {
		return read(ctx, d.file, d.texts["list"], []any{resource}, func(held *string) []any { return []any{held} })
	})
}

// Enumerate implements store.Database.
func (d *DB) Enumerate(ctx context.Context, c store.EnumerateParams) (store.LeasePage, error) {
	return sqlkit.InTime(ctx, func(ctx context.Context) (store.LeasePage, error) {
		var leases string
		args := []any{c.Prefix, c.After.Resource, c.After.Slot, c.Limit, c.Released}
		p, err := read(ctx, d.file, d.texts["enumerate"], args, func(p *store.LeasePage) []any {
			return []any{&leases, &p.Seen, &p.Last.Resource, &p.Last.Slot}
		})
		if err == nil {
			p.Leases, err = store.Leases(leases)
		}
		return p, err
	})
}

// Update implements store.Database.
func (d *DB) Update(ctx context.Context, c store.Update) (bool, error) {
	if c.Pause != nil {
		left := roundTTL(*c.Pause)
		c.Pause = &left
	}
	rows, err := d.change(ctx, d.texts["update"], c.Resource, c.Pause, store.OrNull(c.PauseOrigin), c.Limit,
		store.OrNull(c.LimitOrigin), store.OrNull(c.TriggerOrigin), c.Value, c.IfVersion)
	return rows > 0, err
}

// Inspect implements store.Database.
func (d *DB) Inspect(ctx context.Context, resources string, values bool) (answers string, err error) {
	return sqlkit.InTime(ctx, func(ctx context.Context) (string, error) {
		return read(ctx, d.file, d.texts["inspect"], []any{resources, values}, func(answers *string) []any {
			return []any{answers}
		})
	})
}

// Revoke implements store.Database.
func (d *DB) Revoke(ctx context.Context, resource string, slot int, fence int64, by string) (bool, error) {
	rows, err := d.change(ctx, d.texts["revoke"], resource, slot, fence, by)
	return rows > 0, err
}

// change executes a statement that writes, and returns the number of changed rows.
func (d *DB) change(ctx context.Context, query string, args ...any) (int64, error) {
	return sqlkit.InTime(ctx, func(ctx context.Context) (rows int64, err error) {
		err = d.write(ctx, query, func(_ *sql.Conn, statement *sql.Stmt) error {
			result, err := statement.ExecContext(local, args...)
			if err != nil {
				return err
			}
			rows, err = result.RowsAffected()
			return err
		})
		return rows, err
	})
}

// Cleanup implements store.Database.
func (d *DB) Cleanup(ctx context.Context, retention int64, after store.Row, limit int) (store.Page, error) {
	return sqlkit.InTime(ctx, func(ctx context.Context) (store.Page, error) {
		p, err := read(ctx, d.file, d.texts["cleanup_page"], []any{after.Resource, after.Slot, limit},
			func(p *store.Page) []any {
				return []any{&p.Seen, &p.Last.Resource, &p.Last.Slot}
			})
		if err != nil || p.Seen == 0 {
			return p, err
		}
		err = d.write(ctx, d.texts["cleanup"], func(_ *sql.Conn, statement *sql.Stmt) error {
			result, err := statement.ExecContext(local, after.Resource, after.Slot, p.Last.Resource, retention)
			if err != nil {
				return err
			}
			n, err := result.RowsAffected()
			p.Deleted = int(n)
			return err
		})
		return p, err
	})
}

// Tables implements store.Database. Its Schema leaves out journal_mode, because migration tools
// would execute it within a transaction, where the mode cannot be changed.
func (d *DB) Tables() sqlmigrate.Tables {
	return sqlmigrate.Tables{Schema: d.schema, Read: sqlmigrate.ReadFile(d.file), File: d.file,
		Up: func(ctx context.Context) error { return d.schema.UpFile(ctx, d.file) }}
}

// Audit does not compare clocks: SQLite uses the host's.
func (d *DB) Audit(ctx context.Context, _ func() time.Time) ([]string, error) {
	return sqlkit.InTime(ctx, func(ctx context.Context) (warnings []string, _ error) {
		var journal, path string
		var synchronous, tables int
		err := d.file.With(ctx, func(conn *sql.Conn) (err error) {
			if path, err = sqlkit.PathOf(conn); err != nil {
				return err
			}
			ask := func(query string, value any) error { return conn.QueryRowContext(local, query).Scan(value) }
			return cmp.Or(
				// The journal mode is known only after a read.
				ask("SELECT count(*) FROM main.sqlite_master", &tables),
				ask("PRAGMA main.journal_mode", &journal),
				ask("PRAGMA main.synchronous", &synchronous))
		})
		if err != nil {
			return nil, err
		}
		if journal != "wal" && journal != "memory" { // an in-memory database supports no other mode
			warnings = append(warnings, fmt.Sprintf(
				"journal_mode is %s: those who read and those who write wait for each other; execute PRAGMA "+
					"journal_mode = wal", journal))
		}
		if synchronous == 0 && journal != "memory" {
			warnings = append(warnings, "synchronous is off: a crash of the machine may destroy the file; set it to "+
				"normal")
		}
		if kind := d.RemoteKind(path); kind != "" {
			warnings = append(warnings, fmt.Sprintf(
				"the file is on %s, a file system over a network or shared with another kernel: locks do not work "+
					"there, and two may hold one slot; "+
					"put it on a disk of this machine", kind))
		}
		return warnings, nil
	})
}
