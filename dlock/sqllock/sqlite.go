package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// SQLite returns a store in a SQLite file, for the processes of one machine: SQLite 3.38 or newer, any driver for database/sql. It does not open the
// file. Faults of the options are reported by Check, which dlock.NewSession and timer.New call.
//
//	db, err := sql.Open("sqlite", "file:/var/lib/shop/locks.db?_pragma=synchronous(normal)") // with modernc.org/sqlite
//	db.SetMaxOpenConns(4)
//	lock := sqllock.SQLite(db, sqllock.Options{})
//	err = lock.Migrate(ctx)
//
// What it promises, it promises to processes that open the same file on the same machine. Never put the file on a network file system, nor on a
// volume that is shared with another kernel, such as that of a virtual machine: locks do not work there, and two may hold one slot.
//
// All have to reach the file by the path of one folder. Mount that folder into a container, never the file itself (docker run -v /srv/locks:/data, not
// -v /srv/locks/locks.db:/data/locks.db; no subPath that names the file), and make no hard link to it: who opens the file by another path has a
// write-ahead log of his own there, and sees nothing of what others commit. Migrate, Verify and every acquire refuse such a file, with an error that
// matches dlock.ErrSetup; a link that is made later is noticed by the next acquire, a mount within 10 s. Leases that are held go on.
//
// An acquire that finds nothing to grant is one statement, which takes no lock. Whatever writes is one short transaction. Whoever finds another one
// going on tries to begin his about every millisecond, until the context ends. SQLite has one lock for all that is written to a file:
//
//   - A process that is stopped (SIGSTOP, a debugger) within a transaction keeps the lock. Until it goes on or is killed the store is down for
//     all the others. When a process dies, its lock is free at once.
//   - In a file that is the application's, too, the store waits for the application's transactions, and is down while one of them takes longer
//     than a StoreTimeout. Give the store a file of its own.
//
// Migrate switches the file to journal_mode=WAL, in which those who read and the one who writes do not block each other; it stays with the file. There
// synchronous=NORMAL is enough: what a crash of the machine undoes are leases whose holders have died with it. Fences go on by the clock; a tick
// that was claimed just before may start again.
//
// Do not delete, replace or rename the file, or its -wal and -shm, while a process uses it. A process that finds another file at the path than the one
// it has open goes over to that, and finds its leases lost; until its next heartbeat they may have been granted again from the new file. Do not open
// the file by other means in these processes (a second driver, os.Open): closing it again would undo the locks of the whole process.
//
// A database in memory is one for each connection, and goes with it: call db.SetMaxOpenConns(1), and nothing that closes idle connections. With
// cache=shared it goes with the last one.
func SQLite(db *sql.DB, opts Options) *Store {
	return newStore(opts, func(o Options) (database, error) {
		d, err := newSQLDB(db)
		switch {
		case err != nil:
			return nil, err
		case o.Schema != "":
			return nil, fmt.Errorf("sqllock: Schema %q: SQLite has none", o.Schema)
		case strings.HasPrefix(strings.ToLower(o.TableName), "sqlite_"):
			return nil, fmt.Errorf("sqllock: TableName %q: SQLite keeps names that begin with sqlite_ to itself", o.TableName)
		}
		return newSQLite(d, o), nil
	})
}

//go:embed sqlite/*.sql
var sqliteFiles embed.FS

// sqliteNow is SQLite's clock, which is that of the machine, in µs, exact to the millisecond. It stands still within a statement, and is read when that
// has its lock. julianday is the oldest function that knows milliseconds; what a float64 cannot hold is rounded away.
const sqliteNow = "(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)"

type sqlite struct {
	*sqliteFile
	name, ends, holders string
	table               string                   // the name as statements use it
	remoteKind          func(path string) string // see remoteKind
	creates             []string

	looks, takes, gaps, repeats, heads, extends, releases, succeeds, decrees, reads, revokes, lists, pages, cleans, verifies string
}

func newSQLite(db sqlDB, o Options) *sqlite {
	quoted := func(name string) string { return quote(`"`, `"`, name) }
	in := func(name string) string { return qualified("main", name, quoted) } // not a temporary table of that name
	s := &sqlite{sqliteFile: newSQLiteFile(db), name: o.TableName, ends: o.TableName + "_ends", holders: o.TableName + "_holders", remoteKind: remoteKind}
	s.table = in(s.name)
	names := map[string]string{"table": s.table, "name": quoted(s.name), "ends_in": in(s.ends), "holders_in": in(s.holders), "now": sqliteNow,
		"n": "(CASE WHEN head.slot_limit > 0 THEN head.slot_limit ELSE ?2 END)"}
	file := func(name string) string {
		text, err := sqliteFiles.ReadFile("sqlite/" + name + ".sql")
		if err != nil {
			panic(err) // it is embedded
		}
		return strings.TrimSpace(fill(string(text), names))
	}
	s.creates = statements(file("schema"))
	s.looks, s.takes, s.gaps, s.repeats, s.heads = file("look"), file("take"), file("gap"), file("again"), file("head")
	s.extends, s.releases, s.succeeds, s.lists = file("extend"), file("release"), file("succeed"), file("list")
	s.decrees, s.reads, s.revokes = file("order"), file("orders"), file("revoke")
	s.pages, s.cleans, s.verifies = file("page"), file("cleanup"), file("verify")
	return s
}

func (s *sqlite) String() string { return "sqlite" }

// close leaves the *sql.DB alone: it is the caller's.
func (s *sqlite) close() error { return nil }

// sqliteTTL rounds up to the milliseconds of SQLite's clock. A lease has ended when the clock shows more than what it showed at the beginning plus this,
// so that none is shorter than its holder trusts it.
func sqliteTTL(micros int64) int64 { return (micros + 999) / 1000 * 1000 }

func (s *sqlite) extend(ctx context.Context, ttl int64, grants string) (answers string, err error) {
	return s.each(ctx, s.extends, grants, sqliteTTL(ttl), grants)
}

func (s *sqlite) release(ctx context.Context, grants string) (answers string, err error) {
	return s.each(ctx, s.releases, grants, grants)
}

// each executes a statement that returns those of the grants that were held, and answers for all.
func (s *sqlite) each(ctx context.Context, query, grants string, args ...any) (answers string, err error) {
	type key struct{ resource, token string }
	type row struct {
		key
		declared int
		version  int64
		revoked  *string
	}
	var wanted []grantJSON
	if err := json.Unmarshal([]byte(grants), &wanted); err != nil {
		return "", err
	}
	held, err := inTime(ctx, func(ctx context.Context) (held map[key]row, err error) {
		err = s.write(ctx, query, func(conn *sql.Conn, statement *sql.Stmt) error {
			rows, err := scan(func(r *row) []any { return []any{&r.resource, &r.token, &r.declared, &r.version, &r.revoked} })(statement.QueryContext(local, args...))
			if err != nil {
				return err
			}
			held = make(map[key]row, len(rows))
			for _, r := range rows {
				held[r.key] = r
			}
			noted := map[string]bool{}
			for _, w := range wanted {
				if _, ok := held[key{w.Resource, w.Token}]; !ok || w.Well != 1 || noted[w.Resource] {
					continue
				}
				noted[w.Resource] = true
				if _, err := conn.ExecContext(local, s.succeeds, w.Resource); err != nil {
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
	list := make([]answerJSON, len(wanted))
	for i, w := range wanted {
		list[i] = answerJSON{index: w.Index}
		if r, ok := held[key{w.Resource, w.Token}]; ok {
			list[i] = answerJSON{index: w.Index, declared: r.declared, version: r.version, revoked: r.revoked}
			if r.revoked == nil {
				list[i].held = 1
			}
		}
	}
	text, err := json.Marshal(list)
	return string(text), err
}

func (s *sqlite) list(ctx context.Context, resource string) (held string, err error) {
	return inTime(ctx, func(ctx context.Context) (string, error) {
		return read(ctx, s.sqliteFile, s.lists, []any{resource}, func(held *string) []any { return []any{held} })
	})
}

func (s *sqlite) update(ctx context.Context, c updateRow) error {
	if c.pause != nil {
		left := sqliteTTL(*c.pause)
		c.pause = &left
	}
	_, err := s.change(ctx, s.decrees, c.resource, c.pause, orNull(c.paused), c.limit, orNull(c.limited), orNull(c.trigger))
	return err
}

func (s *sqlite) inspect(ctx context.Context, resources string) (answers string, err error) {
	return inTime(ctx, func(ctx context.Context) (string, error) {
		return read(ctx, s.sqliteFile, s.reads, []any{resources}, func(answers *string) []any { return []any{answers} })
	})
}

func (s *sqlite) revoke(ctx context.Context, resource string, slot int, fence int64, by string) (bool, error) {
	rows, err := s.change(ctx, s.revokes, resource, slot, fence, by)
	return rows > 0, err
}

// change executes a statement that writes, and returns how many rows it wrote.
func (s *sqlite) change(ctx context.Context, query string, args ...any) (int64, error) {
	return inTime(ctx, func(ctx context.Context) (rows int64, err error) {
		err = s.write(ctx, query, func(_ *sql.Conn, statement *sql.Stmt) error {
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

func (s *sqlite) cleanup(ctx context.Context, retention int64, after row, limit int) (page, error) {
	return inTime(ctx, func(ctx context.Context) (page, error) {
		p, err := read(ctx, s.sqliteFile, s.pages, []any{after.resource, after.slot, limit}, func(p *page) []any {
			return []any{&p.seen, &p.last.resource, &p.last.slot}
		})
		if err != nil || p.seen == 0 {
			return p, err
		}
		err = s.write(ctx, s.cleans, func(_ *sql.Conn, statement *sql.Stmt) error {
			result, err := statement.ExecContext(local, after.resource, after.slot, p.last.resource, retention)
			if err != nil {
				return err
			}
			n, err := result.RowsAffected()
			p.deleted = int(n)
			return err
		})
		return p, err
	})
}

// schema leaves out journal_mode, which cannot be changed within a transaction, where many who apply their own migrations would execute it.
func (s *sqlite) schema() []string { return s.creates }

func (s *sqlite) migrate(ctx context.Context) error {
	_, err := inTime(ctx, func(ctx context.Context) (mode string, err error) {
		mode, err = read(ctx, s.sqliteFile, "PRAGMA main.journal_mode = wal", nil, func(mode *string) []any { return []any{mode} })
		if err != nil {
			return mode, err
		}
		return mode, s.write(ctx, s.creates[0], func(conn *sql.Conn, _ *sql.Stmt) error {
			for _, statement := range s.creates {
				if _, err := conn.ExecContext(local, statement); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return err
}

var sqliteColumns = []wantedColumn{
	{"resource_name", "TEXT"}, {"slot", "INTEGER"}, {"lock_id", "TEXT"}, {"fence", "INTEGER"},
	{"acquired_at", "INTEGER"}, {"expires_at", "INTEGER"}, {"released_at", "INTEGER"},
	{"host_name", "TEXT"}, {"process_id", "INTEGER"}, {"process_tag", "TEXT"}, {"revoked", "TEXT"},
	{"tick", "INTEGER"}, {"tick_starts", "INTEGER"}, {"tick_schedule", "INTEGER"}, {"slots", "INTEGER"}, {"succeeded_at", "INTEGER"},
	{"orders_version", "INTEGER"}, {"paused_until", "INTEGER"}, {"pause_order", "TEXT"}, {"slot_limit", "INTEGER"}, {"limit_order", "TEXT"},
	{"triggered_at", "INTEGER"}, {"trigger_order", "TEXT"},
}

func (s *sqlite) verify(ctx context.Context) error {
	type table struct {
		kind, columns, key string
		indexes            int
	}
	t, err := inTime(ctx, func(ctx context.Context) (table, error) {
		if err := s.shared(ctx, "SELECT EXISTS (SELECT 1 FROM main.sqlite_master WHERE name = ?1 COLLATE NOCASE)", s.name); err != nil {
			return table{}, err
		}
		t, err := read(ctx, s.sqliteFile, s.verifies, []any{s.name, s.ends, s.holders}, func(t *table) []any {
			return []any{&t.kind, &t.columns, &t.key, &t.indexes}
		})
		return t, cmp.Or(s.onePath(), err)
	})
	if err != nil {
		return err
	}
	if t.kind != "table" {
		return wrongSchema(fmt.Errorf("there is no table %s", s.table))
	}
	has := map[string]string{}
	if err := json.Unmarshal([]byte(t.columns), &has); err != nil {
		return fmt.Errorf("%w: %w", errAnswer, err)
	}
	errs := checkColumns(s.table, has, sqliteColumns)
	const key = "resource_name BINARY, slot BINARY"
	if t.key != key {
		errs = append(errs, fmt.Errorf("the primary key of %s is (%s), and has to be (%s)", s.table, t.key, key))
	}
	if t.indexes != 2 {
		errs = append(errs, errors.New("an index is missing"))
	}
	if len(errs) > 0 {
		return wrongSchema(errs...)
	}
	return s.writable(ctx)
}

// writable tells when a program starts what would otherwise be found out by its first acquire, and then be taken for an outage.
func (s *sqlite) writable(ctx context.Context) error {
	_, err := inTime(ctx, func(ctx context.Context) (none struct{}, _ error) {
		return none, s.with(ctx, func(conn *sql.Conn) error {
			_, err := conn.ExecContext(local, "UPDATE "+s.table+" SET slot = slot WHERE resource_name = ''") // of which there is none
			if isLocked(err) {
				return nil // somebody else writes, so it can be done
			}
			return err
		})
	})
	return err
}

// audit does not compare clocks: SQLite's is that of the host.
func (s *sqlite) audit(ctx context.Context, _ func() time.Time) ([]string, error) {
	return inTime(ctx, func(ctx context.Context) (warnings []string, _ error) {
		var journal, path string
		var synchronous, tables int
		err := s.with(ctx, func(conn *sql.Conn) (err error) {
			if path, err = sqlitePath(conn); err != nil {
				return err
			}
			ask := func(query string, value any) error { return conn.QueryRowContext(local, query).Scan(value) }
			return cmp.Or(
				ask("SELECT count(*) FROM main.sqlite_master", &tables), // the journal mode is known when something has been read
				ask("PRAGMA main.journal_mode", &journal),
				ask("PRAGMA main.synchronous", &synchronous))
		})
		if err != nil {
			return nil, err
		}
		if journal != "wal" && journal != "memory" { // in memory there is no other
			warnings = append(warnings, fmt.Sprintf("journal_mode is %s: those who read and those who write wait for each other; execute PRAGMA journal_mode = wal", journal))
		}
		if synchronous == 0 && journal != "memory" {
			warnings = append(warnings, "synchronous is off: a crash of the machine may destroy the file; set it to normal")
		}
		if kind := s.remoteKind(path); kind != "" {
			warnings = append(warnings, fmt.Sprintf("the file is on %s, a file system over a network or shared with another kernel: locks do not work there, and two may hold one slot; "+
				"put it on a disk of this machine", kind))
		}
		return warnings, nil
	})
}
