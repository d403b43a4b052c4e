// Package postgres implements store.Database for Postgres.
package postgres

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/store"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

//go:embed sql
var files embed.FS

// functions are created by the statements named create_acquire and so on. Their names end with a
// hash of their text. So hosts with two versions can share a table during a rolling update, each
// with its own functions.
var functions = []string{"acquire", "extend", "release", "list", "enumerate", "update", "inspect", "revoke",
	"cleanup"}

// defaultSchema is the schema if Options set none. The first schema of the search_path would be
// unreliable, because behind a pooler another client may have set it.
const defaultSchema = "public"

// oldTransaction is the age above which Audit warns of a transaction.
const oldTransaction = 5 * time.Minute

// Audit warns if there are more than manyDead dead rows and also more than manyTimes as many as
// live rows. A working VACUUM leaves fewer.
const (
	manyDead  = 50_000
	manyTimes = 20
)

// DB implements store.Database.
type DB struct {
	store.Driver
	names             map[string]string
	OldTransactionAge time.Duration // see oldTransaction
	texts             sqlkit.Texts
	schema            sqlmigrate.Schema
	alone             atomic.Bool // each call has its own transaction: see QueryRow
}

// New returns the store.Database of a table. It does not call the server.
func New(d store.Driver, t store.Table) *DB {
	quoted := sqlkit.Postgres.Quote
	schema := cmp.Or(t.Schema, defaultSchema)
	in := func(suffix string) string { return sqlkit.Postgres.Qualified(schema, t.Name+suffix) }
	p := &DB{Driver: d, OldTransactionAge: oldTransaction, names: map[string]string{
		"table": in(""), "ends": quoted(t.Name + "_ends"), "holders": quoted(t.Name + "_holders"),
		"ends_in": in("_ends"), "holders_in": in("_holders"),
	}}
	unnamed := map[string]string{}
	for _, function := range functions {
		unnamed[function] = function
	}
	texts := sqlkit.ReadTexts(files, sqlkit.Postgres, unnamed)
	for _, function := range functions {
		hash := sha256.Sum256([]byte(texts["create_"+function]))
		p.names[function] = in(fmt.Sprintf("_%s_%x", function, hash[:4]))
	}
	p.texts = sqlkit.ReadTexts(files, sqlkit.Postgres, p.names)
	p.schema = p.schemaOf(schema, t.Name)
	return p
}

func (d *DB) String() string { return "postgres" }

// strangeSession is the SQLSTATE of a function that does not trust the settings of its session: see
// session.sql. The function has changed nothing.
const strangeSession = "TS001"

// queryCanceled is the SQLSTATE of a statement that took longer than statement_timeout.
const queryCanceled = "57014"

// QueryRow implements store.Driver. A call is one statement and one round trip, unless the settings
// of the sessions are unsuitable. In that case, this and all later calls run in a separate
// transaction with the right settings. This takes four round trips with database/sql.
func (d *DB) QueryRow(ctx context.Context, query string, args []any, dest ...any) error {
	if !d.alone.Load() {
		err := d.Driver.QueryRow(ctx, query, args, dest...)
		switch state := sqlkit.State(err); {
		case state == strangeSession:
			d.alone.Store(true)
		case state != queryCanceled || ctx.Err() != nil: // otherwise statement_timeout ended it early
			return err
		}
	}
	// On a busy server, changing a short statement_timeout may take longer than this timeout.
	for tries := 3; ; tries-- {
		err := d.QueryRowAlone(ctx, query, args, dest...)
		if sqlkit.State(err) != queryCanceled || ctx.Err() != nil || tries == 0 {
			return err
		}
	}
}

// Acquire implements store.Database.
func (d *DB) Acquire(ctx context.Context, c store.AcquireParams) (v store.AcquireResult, err error) {
	err = d.QueryRow(ctx, d.texts["acquire"], []any{
		c.Resource, c.Slots, c.Token, c.TTL, c.Tick, c.Max, c.MissedAt, c.Schedule, driver.MaxTickAhead.Microseconds(),
		c.Holder.Host, c.Holder.PID, c.Holder.ID,
		c.Wait, sharedJSON(c.Shared), store.DelayOrNull(c),
	}, v.ColumnsOfAll()...)
	return v, err
}

// sharedJSON returns the further semaphores as [[resource, slots, rate, per], …], or nil if there
// are none.
func sharedJSON(shared []store.SemaphoreSpec) *string {
	if len(shared) == 0 {
		return nil
	}
	list := make([][4]any, len(shared))
	for i, l := range shared {
		list[i] = [4]any{l.Resource, l.Slots, l.Rate, l.Per}
	}
	text := store.AsJSON(list)
	return &text
}

// TakesShared implements store.Database.
func (d *DB) TakesShared() bool { return true }

// KeepsDelay implements store.Database.
func (d *DB) KeepsDelay() bool { return true }

// Extend implements store.Database.
func (d *DB) Extend(ctx context.Context, ttl int64, grants string) (answers string, err error) {
	err = d.QueryRow(ctx, d.texts["extend"], []any{ttl, grants, store.LockWait(ctx)}, &answers)
	return answers, err
}

// Release implements store.Database.
func (d *DB) Release(ctx context.Context, grants string) (answers string, err error) {
	err = d.QueryRow(ctx, d.texts["release"], []any{grants, store.LockWait(ctx)}, &answers)
	return answers, err
}

// List implements store.Database.
func (d *DB) List(ctx context.Context, resource string) (held string, err error) {
	err = d.QueryRow(ctx, d.texts["list"], []any{resource, store.LockWait(ctx)}, &held)
	return held, err
}

// Enumerate implements store.Database.
func (d *DB) Enumerate(ctx context.Context, c store.EnumerateParams) (pg store.LeasePage, err error) {
	var leases string
	args := []any{c.Prefix, c.After.Resource, c.After.Slot, c.Limit, c.Released, store.LockWait(ctx)}
	if err := d.QueryRow(ctx, d.texts["enumerate"], args, &leases, &pg.Seen, &pg.Last.Resource,
		&pg.Last.Slot); err != nil {
		return pg, err
	}
	pg.Leases, err = store.Leases(leases)
	return pg, err
}

// Update implements store.Database.
func (d *DB) Update(ctx context.Context, c store.Update) (bool, error) {
	var version int64
	err := d.QueryRow(ctx, d.texts["update"], []any{
		c.Resource, c.Pause, store.OrNull(c.PauseOrigin), c.Limit, store.OrNull(c.LimitOrigin),
		store.OrNull(c.TriggerOrigin), c.Value, c.IfVersion, store.LockWait(ctx),
	}, &version)
	return version != 0, err
}

// Inspect implements store.Database.
func (d *DB) Inspect(ctx context.Context, resources string, values bool) (answers string, err error) {
	err = d.QueryRow(ctx, d.texts["inspect"], []any{resources, values, store.LockWait(ctx)}, &answers)
	return answers, err
}

// Revoke implements store.Database.
func (d *DB) Revoke(ctx context.Context, resource string, slot int, fence int64, by string) (held bool, err error) {
	err = d.QueryRow(ctx, d.texts["revoke"], []any{resource, slot, fence, by, store.LockWait(ctx)}, &held)
	return held, err
}

// Cleanup implements store.Database.
func (d *DB) Cleanup(ctx context.Context, retention int64, after store.Row, limit int) (pg store.Page, err error) {
	pg.Last.Slot = driver.MaxSlots // a batch examines all slots of a name
	err = d.QueryRow(ctx, d.texts["cleanup"], []any{retention, after.Resource, limit}, &pg.Seen, &pg.Deleted,
		&pg.Last.Resource)
	return pg, err
}

// schemaOf returns the table with its indexes and functions.
func (d *DB) schemaOf(schema, name string) sqlmigrate.Schema {
	s := sqlmigrate.Schema{Dialect: sqlkit.Postgres, AnySettings: true, Schema: schema, Name: name, Table: name,
		Migrations: [][]string{sqlmigrate.Statements(d.texts["schema"])},
		Repeat:     sqlmigrate.Statements(d.texts["indexes"])}
	for _, function := range functions {
		s.Repeat = append(s.Repeat, d.texts["create_"+function])
	}
	return s
}

// Tables implements store.Database.
func (d *DB) Tables() sqlmigrate.Tables {
	return sqlmigrate.Tables{Schema: d.schema, Read: store.ReadRow(d.QueryRow), Besides: d.besides,
		Up: func(ctx context.Context) error {
			return d.WithDB(func(db *sql.DB) error { return d.schema.Up(ctx, db) })
		}}
}

// besides returns an error for each missing function.
func (d *DB) besides(ctx context.Context) ([]error, error) {
	var version string
	var missing int
	if err := d.QueryRow(ctx, d.texts["verify"], []any{d.functions()}, &version, &missing); err != nil {
		return nil, err
	}
	if !isPostgres(version) {
		return nil, fmt.Errorf("%w: this server is not Postgres, but %q: what it does with locks differs, so that "+
			"limits would not be kept", driver.ErrSetup, version)
	}
	if missing > 0 {
		return []error{fmt.Errorf("%d functions of this version are missing", missing)}, nil
	}
	return nil, nil
}

// isPostgres rejects databases that accept Postgres clients but whose advisory locks exclude
// nobody, or whose actual isolation level is not the reported one.
func isPostgres(version string) bool {
	for _, other := range []string{"-YB-", "Redshift", "Greenplum", "Materialize", "QuestDB", "Cockroach"} {
		if strings.Contains(version, other) {
			return false
		}
	}
	return strings.HasPrefix(version, "PostgreSQL ") || strings.HasPrefix(version, "EnterpriseDB ")
}

// Audit implements store.Database.
func (d *DB) Audit(ctx context.Context, now func() time.Time) (warnings []string, err error) {
	var clock int64
	var fsync, isolation, role string
	var replica, readOnly, super bool
	sent := now()
	if err := d.QueryRow(ctx, d.texts["audit"], nil, &clock, &fsync, &replica, &readOnly, &isolation, &role,
		&super); err != nil {
		return nil, err
	}
	warnings = store.ClockWarnings(sent, now(), clock)
	if fsync != "on" { // synchronous_commit = off does no harm, because the functions commit with it on
		warnings = append(warnings, "fsync is off: leases may be lost when the server's machine crashes, and then "+
			"be granted twice; set it to on")
	}
	switch {
	case replica:
		warnings = append(warnings, "this server is a replica, which grants nothing: connect to the primary")
	case readOnly:
		warnings = append(warnings, fmt.Sprintf(
			"transactions are read-only here, so nothing is granted: ALTER ROLE %s SET "+
				"default_transaction_read_only = off", role))
	}
	if isolation != "read committed" {
		warnings = append(warnings, fmt.Sprintf(
			"transactions are %s here, so every call begins one of its own that is not, which takes four round trips "+
				"with database/sql: ALTER ROLE %s SET default_transaction_isolation = 'read committed'", isolation,
			role))
	}
	old, err := d.vacuum(ctx)
	warnings = append(warnings, old...)
	if super || err != nil {
		if super {
			warnings = append(warnings, fmt.Sprintf(
				driver.AuditNote+"%s is a superuser, which leases do not need: use a role with the rights that "+
					"docs/sql.md lists", role))
		}
		return warnings, err
	}
	missing, err := d.rights(ctx, role)
	return append(warnings, missing...), err
}

// vacuum warns of old transactions and of dead rows that VACUUM has not removed. Both slow down
// every operation.
func (d *DB) vacuum(ctx context.Context) (warnings []string, err error) {
	var old string
	var dead, live int64
	err = d.QueryRow(ctx, d.texts["vacuum"], []any{d.names["table"], d.OldTransactionAge.Seconds()}, &old, &dead, &live)
	if sqlkit.State(err) == insufficientPrivilege { // rights reports this
		return nil, nil
	}
	const why = "while one is open, VACUUM removes nothing that is newer, and every operation becomes slower: end it," +
		" set idle_in_transaction_session_timeout, or give the locks a database of their own"
	if old != "" {
		warnings = append(warnings, fmt.Sprintf("a transaction in this database is old: %s; %s", old, why))
	}
	if dead > manyDead && dead > manyTimes*live {
		warnings = append(warnings, fmt.Sprintf(
			"%s has %d old versions of %d rows, which VACUUM has not removed: look for autovacuum = off, and for "+
				"old transactions"+
				" (pg_stat_activity, pg_prepared_xacts, pg_replication_slots): %s", d.names["table"], dead, live, why))
	}
	return warnings, err
}

// functions returns the names of the functions, as JSON.
func (d *DB) functions() string {
	var list []string
	for _, function := range functions {
		list = append(list, d.names[function])
	}
	return store.AsJSON(list)
}

// rights warns of privileges that the role lacks.
func (d *DB) rights(ctx context.Context, role string) (warnings []string, err error) {
	n := d.names
	var table, functions string
	err = d.QueryRow(ctx, d.texts["privileges"], []any{n["table"], d.functions()}, &table, &functions)
	if sqlkit.State(err) == insufficientPrivilege {
		return []string{fmt.Sprintf("%s may not use the schema of %s, so nothing is granted: GRANT USAGE ON SCHEMA "+
			"… TO %s", role, n["table"], role)}, nil
	}
	if table != "" {
		fails := "nothing is granted, or not renewed"
		if table == "DELETE" {
			fails = "Cleanup fails"
		}
		warnings = append(warnings, fmt.Sprintf("%s lacks %s on %s, so %s: GRANT %s ON %s TO %s", role, table,
			n["table"], fails, table, n["table"], role))
	}
	if functions != "" {
		warnings = append(warnings, fmt.Sprintf(
			"%s may not execute %s, so nothing is granted, or not renewed: GRANT EXECUTE ON FUNCTION %s TO %s", role,
			functions, functions, role))
	}
	return warnings, err
}

// insufficientPrivilege is the SQLSTATE for a missing privilege.
const insufficientPrivilege = "42501"

// FunctionName returns the name of a function without its schema.
func (d *DB) FunctionName(function string) string {
	name := d.names[function]
	return name[strings.LastIndex(name, ".")+1:]
}
