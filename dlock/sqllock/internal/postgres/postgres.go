// Package postgres implements dialect.Database for Postgres.
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

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/dialect"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

//go:embed *.sql
var files embed.FS

// functions each have a file. Their names end with a hash of their text, so that during a rolling
// update hosts of two versions can share a table, each with its own functions.
var functions = []string{"acquire", "extend", "release", "list", "enumerate", "update", "inspect", "revoke",
	"cleanup"}

// parts are files that several functions include.
var parts = []string{"settings", "session", "retry_locked", "lock_names"}

// defaultSchema is used if Options name no schema. It is not the first of the search_path, which
// behind a pooler another client may have set.
const defaultSchema = "public"

// oldTransaction is the age of a transaction above which Audit warns.
const oldTransaction = 5 * time.Minute

// Audit warns if there are more than manyDead dead rows and more than manyTimes as many as live
// ones. A VACUUM that works leaves fewer.
const (
	manyDead  = 50_000
	manyTimes = 20
)

// DB implements dialect.Database.
type DB struct {
	dialect.Driver
	names             map[string]string
	OldTransactionAge time.Duration // see oldTransaction
	queries           queries
	schema            sqlmigrate.Schema
	alone             atomic.Bool // calls have a transaction of their own: see QueryRow
}

// queries are the statements that a DB executes: the first nine call a function.
type queries struct {
	acquire, extend, release, update, inspect, revoke, list, enumerate, cleanup string
	verify, audit, privileges, vacuum                                           string
}

// New returns the database of a table. It does not call the server.
func New(d dialect.Driver, t dialect.Table) *DB {
	quoted := sqlkit.Postgres.Quote
	schema := cmp.Or(t.Schema, defaultSchema)
	in := func(suffix string) string { return sqlkit.Postgres.Qualified(schema, t.Name+suffix) }
	p := &DB{Driver: d, OldTransactionAge: oldTransaction, names: map[string]string{
		"table": in(""), "ends": quoted(t.Name + "_ends"), "holders": quoted(t.Name + "_holders"),
		"ends_in": in("_ends"), "holders_in": in("_holders"),
	}}
	included := map[string]string{}
	for _, part := range parts {
		included[part] = strings.TrimSpace(read(part))
		p.names[part] = included[part]
	}
	for _, function := range functions {
		hash := sha256.Sum256([]byte(sqlmigrate.Fill(read(function), included)))
		p.names[function] = in(fmt.Sprintf("_%s_%x", function, hash[:4]))
	}
	p.queries.acquire = sqlmigrate.Fill(
		"SELECT * FROM {acquire}($1::text, $2::integer, $3::text, $4::bigint, $5::bigint, $6::integer, $7::bigint,"+
			" $8::bigint, $9::bigint, $10::text, $11::bigint, $12::text, $13::bigint, $14::text,"+
			" $15::bigint)", p.names)
	p.queries.extend = sqlmigrate.Fill("SELECT {extend}($1::bigint, $2::text, $3::bigint)", p.names)
	p.queries.release = sqlmigrate.Fill("SELECT {release}($1::text, $2::bigint)", p.names)
	p.queries.list = sqlmigrate.Fill("SELECT {list}($1::text, $2::bigint)", p.names)
	p.queries.enumerate = sqlmigrate.Fill(
		"SELECT * FROM {enumerate}($1::text, $2::text, $3::integer, $4::integer, $5::bigint, $6::bigint)", p.names)
	p.queries.update = sqlmigrate.Fill(
		"SELECT {update}($1::text, $2::bigint, $3::text, $4::integer, $5::text, $6::text, $7::text, $8::bigint,"+
			" $9::bigint)", p.names)
	p.queries.inspect = sqlmigrate.Fill("SELECT {inspect}($1::text, $2::boolean, $3::bigint)", p.names)
	p.queries.revoke = sqlmigrate.Fill(
		"SELECT {revoke}($1::text, $2::integer, $3::bigint, $4::text, $5::bigint)", p.names)
	p.queries.cleanup = sqlmigrate.Fill("SELECT * FROM {cleanup}($1::bigint, $2::text, $3::integer)", p.names)
	p.queries.verify, p.queries.audit, p.queries.privileges, p.queries.vacuum = p.file("verify"), p.file("audit"),
		p.file("privileges"), p.file("vacuum")
	p.schema = p.schemaOf(schema, t.Name)
	return p
}

func (p *DB) file(name string) string { return sqlmigrate.Fill(read(name), p.names) }

func read(name string) string {
	text, err := files.ReadFile(name + ".sql")
	if err != nil {
		panic(err) // it is embedded
	}
	return string(text)
}

func (p *DB) String() string { return "postgres" }

// strangeSession is the SQLSTATE of a function that does not trust the settings of its session: see
// session.sql. It has done nothing.
const strangeSession = "TS001"

// queryCanceled is the SQLSTATE of a statement that took longer than statement_timeout.
const queryCanceled = "57014"

// QueryRow implements dialect.Driver. A call is a statement, and costs one round trip, unless the
// settings of the sessions are not fit for it. Then this and all later ones have a transaction of
// their own, with the right settings, which takes four with database/sql.
func (p *DB) QueryRow(ctx context.Context, query string, args []any, dest ...any) error {
	if !p.alone.Load() {
		err := p.Driver.QueryRow(ctx, query, args, dest...)
		switch state := sqlkit.State(err); {
		case state == strangeSession:
			p.alone.Store(true)
		case state != queryCanceled || ctx.Err() != nil: // else statement_timeout was over at once
			return err
		}
	}
	// A server that is busy may need longer than a short statement_timeout to change it.
	for tries := 3; ; tries-- {
		err := p.QueryRowAlone(ctx, query, args, dest...)
		if sqlkit.State(err) != queryCanceled || ctx.Err() != nil || tries == 0 {
			return err
		}
	}
}

// Acquire implements dialect.Database.
func (p *DB) Acquire(ctx context.Context, c dialect.AcquireParams) (v dialect.AcquireResult, err error) {
	err = p.QueryRow(ctx, p.queries.acquire, []any{
		c.Resource, c.Slots, c.Token, c.TTL, c.Tick, c.Max, c.MissedAt, c.Schedule, dlock.MaxTickAhead.Microseconds(),
		c.Holder.Host, c.Holder.PID, c.Holder.ID,
		c.Wait, alsoJSON(c.Also), dialect.DelayOrNull(c),
	}, v.ColumnsOfAll()...)
	return v, err
}

// alsoJSON returns the further semaphores as [[resource, slots], …], or nil if there are none.
func alsoJSON(also []dialect.SemaphoreSpec) *string {
	if len(also) == 0 {
		return nil
	}
	list := make([][2]any, len(also))
	for i, l := range also {
		list[i] = [2]any{l.Resource, l.Slots}
	}
	text := dialect.AsJSON(list)
	return &text
}

// TakesAlso implements dialect.Database.
func (p *DB) TakesAlso() bool { return true }

// KeepsDelay implements dialect.Database.
func (p *DB) KeepsDelay() bool { return true }

// Extend implements dialect.Database.
func (p *DB) Extend(ctx context.Context, ttl int64, grants string) (answers string, err error) {
	err = p.QueryRow(ctx, p.queries.extend, []any{ttl, grants, dialect.LockWait(ctx)}, &answers)
	return answers, err
}

// Release implements dialect.Database.
func (p *DB) Release(ctx context.Context, grants string) (answers string, err error) {
	err = p.QueryRow(ctx, p.queries.release, []any{grants, dialect.LockWait(ctx)}, &answers)
	return answers, err
}

// List implements dialect.Database.
func (p *DB) List(ctx context.Context, resource string) (held string, err error) {
	err = p.QueryRow(ctx, p.queries.list, []any{resource, dialect.LockWait(ctx)}, &held)
	return held, err
}

// Enumerate implements dialect.Database.
func (p *DB) Enumerate(ctx context.Context, c dialect.EnumerateParams) (pg dialect.LeasePage, err error) {
	var leases string
	args := []any{c.Prefix, c.After.Resource, c.After.Slot, c.Limit, c.Released, dialect.LockWait(ctx)}
	if err := p.QueryRow(ctx, p.queries.enumerate, args, &leases, &pg.Seen, &pg.Last.Resource,
		&pg.Last.Slot); err != nil {
		return pg, err
	}
	pg.Leases, err = dialect.Leases(leases)
	return pg, err
}

// Update implements dialect.Database.
func (p *DB) Update(ctx context.Context, c dialect.Update) (bool, error) {
	var version int64
	err := p.QueryRow(ctx, p.queries.update, []any{
		c.Resource, c.Pause, dialect.OrNull(c.PauseOrigin), c.Limit, dialect.OrNull(c.LimitOrigin),
		dialect.OrNull(c.TriggerOrigin), c.Value, c.IfVersion, dialect.LockWait(ctx),
	}, &version)
	return version != 0, err
}

// Inspect implements dialect.Database.
func (p *DB) Inspect(ctx context.Context, resources string, values bool) (answers string, err error) {
	err = p.QueryRow(ctx, p.queries.inspect, []any{resources, values, dialect.LockWait(ctx)}, &answers)
	return answers, err
}

// Revoke implements dialect.Database.
func (p *DB) Revoke(ctx context.Context, resource string, slot int, fence int64, by string) (held bool, err error) {
	err = p.QueryRow(ctx, p.queries.revoke, []any{resource, slot, fence, by, dialect.LockWait(ctx)}, &held)
	return held, err
}

// Cleanup implements dialect.Database.
func (p *DB) Cleanup(ctx context.Context, retention int64, after dialect.Row, limit int) (pg dialect.Page, err error) {
	pg.Last.Slot = dlock.MaxSlots // it looks at all slots of a name
	err = p.QueryRow(ctx, p.queries.cleanup, []any{retention, after.Resource, limit}, &pg.Seen, &pg.Deleted,
		&pg.Last.Resource)
	return pg, err
}

// schemaOf returns the table, and what is created besides: indexes and functions.
func (p *DB) schemaOf(schema, name string) sqlmigrate.Schema {
	s := sqlmigrate.Schema{Dialect: sqlkit.Postgres, AnySettings: true, Schema: schema, Name: name, Table: name,
		Migrations: [][]string{sqlmigrate.Statements(p.file("schema"))},
		Repeat:     sqlmigrate.Statements(p.file("indexes"))}
	for _, function := range functions {
		s.Repeat = append(s.Repeat, strings.TrimSpace(p.file(function)))
	}
	return s
}

// Tables implements dialect.Database.
func (p *DB) Tables() sqlmigrate.Tables {
	return sqlmigrate.Tables{Schema: p.schema, Read: dialect.ReadRow(p.QueryRow), Besides: p.besides,
		Up: func(ctx context.Context) error {
			return p.WithDB(func(db *sql.DB) error { return p.schema.Up(ctx, db) })
		}}
}

// besides returns which functions are missing.
func (p *DB) besides(ctx context.Context) ([]error, error) {
	var version string
	var missing int
	if err := p.QueryRow(ctx, p.queries.verify, []any{p.functions()}, &version, &missing); err != nil {
		return nil, err
	}
	if !isPostgres(version) {
		return nil, fmt.Errorf("%w: this server is not Postgres, but %q: what it does with locks differs, so that "+
			"limits would not be kept", dlock.ErrSetup, version)
	}
	if missing > 0 {
		return []error{fmt.Errorf("%d functions of this version are missing", missing)}, nil
	}
	return nil, nil
}

// isPostgres refuses databases that accept Postgres clients but have advisory locks that exclude
// nobody, or another isolation level than they report.
func isPostgres(version string) bool {
	for _, other := range []string{"-YB-", "Redshift", "Greenplum", "Materialize", "QuestDB", "Cockroach"} {
		if strings.Contains(version, other) {
			return false
		}
	}
	return strings.HasPrefix(version, "PostgreSQL ") || strings.HasPrefix(version, "EnterpriseDB ")
}

// Audit implements dialect.Database.
func (p *DB) Audit(ctx context.Context, now func() time.Time) (warnings []string, err error) {
	var clock int64
	var fsync, isolation, role string
	var replica, readOnly, super bool
	sent := now()
	if err := p.QueryRow(ctx, p.queries.audit, nil, &clock, &fsync, &replica, &readOnly, &isolation, &role,
		&super); err != nil {
		return nil, err
	}
	warnings = dialect.ClockWarnings(sent, now(), clock)
	if fsync != "on" { // synchronous_commit = off does no harm: the functions commit with it on
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
	old, err := p.vacuum(ctx)
	warnings = append(warnings, old...)
	if super || err != nil {
		if super {
			warnings = append(warnings, fmt.Sprintf(
				"%s is a superuser, which leases do not need: use a role with the rights that docs/sql.md lists", role))
		}
		return warnings, err
	}
	missing, err := p.rights(ctx, role)
	return append(warnings, missing...), err
}

// vacuum warns of old transactions and of dead rows that VACUUM has not removed, which slow down
// every operation.
func (p *DB) vacuum(ctx context.Context) (warnings []string, err error) {
	var old string
	var dead, live int64
	err = p.QueryRow(ctx, p.queries.vacuum, []any{p.names["table"], p.OldTransactionAge.Seconds()}, &old, &dead, &live)
	if sqlkit.State(err) == insufficientPrivilege { // rights tells
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
				" (pg_stat_activity, pg_prepared_xacts, pg_replication_slots): %s", p.names["table"], dead, live, why))
	}
	return warnings, err
}

// functions returns the names of the functions, as JSON.
func (p *DB) functions() string {
	var list []string
	for _, function := range functions {
		list = append(list, p.names[function])
	}
	return dialect.AsJSON(list)
}

// rights warns of privileges that the role lacks.
func (p *DB) rights(ctx context.Context, role string) (warnings []string, err error) {
	n := p.names
	var table, functions string
	err = p.QueryRow(ctx, p.queries.privileges, []any{n["table"], p.functions()}, &table, &functions)
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
func (p *DB) FunctionName(function string) string {
	name := p.names[function]
	return name[strings.LastIndex(name, ".")+1:]
}
