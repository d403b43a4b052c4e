package sqllock

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// Postgres returns a store on Postgres 13 or newer, with any driver for database/sql. Every operation is one statement; with
// pgx it is one round trip once the connection has prepared it, and package pgxlock makes it always one. It does not call the server.
// Faults of the options are reported by Check, which dlock.NewSession and timer.New call.
//
// Behind a PgBouncer in transaction mode add default_query_exec_mode=exec to pgx's URL, and connect_timeout=2 everywhere: a dial that nobody answers
// would otherwise keep its place in the pool for minutes after the network is back.
//
// Give it a *sql.DB of its own: if it shares one with the application, and all its connections are in use, heartbeats wait, and leases are
// lost.
func Postgres(db *sql.DB, opts Options) *Store {
	d, err := newSQLDB(db)
	if err != nil {
		return &Store{fault: err}
	}
	return PostgresOn(d, opts)
}

// PostgresOn is Postgres on another driver than one for database/sql. If d is a dlock.Checker, the store's Check reports its faults, too.
func PostgresOn(d Driver, opts Options) *Store {
	return newStore(opts, func(o Options) (database, error) {
		if c, ok := d.(dlock.Checker); ok {
			if err := c.Check(); err != nil {
				return nil, err
			}
		}
		return newPostgres(d, o), nil
	})
}

//go:embed postgres/*.sql
var postgresFiles embed.FS

// postgresVersion is part of the names of the functions: hosts of two versions of this package can then share a table while they are
// replaced, each with functions of its own.
const postgresVersion = "_v2"

// postgresFunctions are the functions; each has a file.
var postgresFunctions = []string{"acquire", "extend", "release", "order", "revoke"}

type postgres struct {
	Driver
	names    map[string]string
	acquires string
	extends  string
	releases string
	decrees  string
	revokes  string
	reads    string
	lists    string
	cleans   string
	verifies string
	audits   string
	lacks    string
}

func newPostgres(d Driver, o Options) *postgres {
	quoted := func(name string) string { return quote(`"`, `"`, name) }
	in := func(suffix string) string { return qualified(o.Schema, o.TableName+suffix, quoted) }
	p := &postgres{Driver: d, names: map[string]string{
		"table": in(""), "ends": quoted(o.TableName + "_ends"), "holders": quoted(o.TableName + "_holders"),
		"ends_in": in("_ends"), "holders_in": in("_holders"),
	}}
	for _, function := range postgresFunctions {
		p.names[function] = in("_" + function + postgresVersion)
	}
	p.acquires = fill("SELECT * FROM {acquire}($1::text, $2::integer, $3::text, $4::bigint, $5::bigint, $6::integer, $7::boolean,"+
		" $8::bigint, $9::text, $10::bigint, $11::text, $12::bigint)", p.names)
	p.extends = fill("SELECT {extend}($1::bigint, $2::text, $3::bigint)", p.names)
	p.releases = fill("SELECT {release}($1::text, $2::bigint)", p.names)
	p.decrees = fill("SELECT {order}($1::text, $2::bigint, $3::text, $4::integer, $5::text, $6::text, $7::bigint)", p.names)
	p.revokes = fill("SELECT {revoke}($1::text, $2::integer, $3::bigint, $4::text, $5::bigint)", p.names)
	p.reads = p.file("orders")
	p.lists, p.cleans, p.verifies = p.file("list"), p.file("cleanup"), p.file("verify")
	p.audits, p.lacks = p.file("audit"), p.file("rights")
	return p
}

func (p *postgres) file(name string) string {
	text, err := postgresFiles.ReadFile("postgres/" + name + ".sql")
	if err != nil {
		panic(err) // it is embedded
	}
	return fill(string(text), p.names)
}

func (p *postgres) String() string { return "postgres" }

func (p *postgres) close() error { return p.Close() }

func (p *postgres) acquire(ctx context.Context, c claim) (v verdict, err error) {
	err = p.QueryRow(ctx, p.acquires, []any{
		c.resource, c.slots, c.token, c.ttl, c.tick, c.max, c.missed, dlock.MaxTickAhead.Microseconds(), c.holder.Host, c.holder.PID, c.holder.ID,
		c.wait,
	}, v.scan()...)
	return v, err
}

func (p *postgres) extend(ctx context.Context, ttl int64, grants string) (answers string, err error) {
	err = p.QueryRow(ctx, p.extends, []any{ttl, grants, patience(ctx)}, &answers)
	return answers, err
}

func (p *postgres) release(ctx context.Context, grants string) (answers string, err error) {
	err = p.QueryRow(ctx, p.releases, []any{grants, patience(ctx)}, &answers)
	return answers, err
}

func (p *postgres) list(ctx context.Context, resource string) (held string, err error) {
	err = p.QueryRow(ctx, p.lists, []any{resource}, &held)
	return held, err
}

func (p *postgres) order(ctx context.Context, c change) error {
	var version int64
	return p.QueryRow(ctx, p.decrees, []any{
		c.resource, c.pause, orNull(c.paused), c.limit, orNull(c.limited), orNull(c.trigger), patience(ctx),
	}, &version)
}

// orNull is null for an empty text.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (p *postgres) orders(ctx context.Context, resources string) (answers string, err error) {
	err = p.QueryRow(ctx, p.reads, []any{resources}, &answers)
	return answers, err
}

func (p *postgres) revoke(ctx context.Context, resource string, slot int, fence int64, order string) (held bool, err error) {
	err = p.QueryRow(ctx, p.revokes, []any{resource, slot, fence, order, patience(ctx)}, &held)
	return held, err
}

func (p *postgres) cleanup(ctx context.Context, retention int64, after row, limit int) (pg page, err error) {
	err = p.QueryRow(ctx, p.cleans, []any{after.resource, after.slot, limit, retention}, &pg.seen, &pg.deleted, &pg.last.resource, &pg.last.slot)
	return pg, err
}

func (p *postgres) schema() []string {
	list := statements(p.file("schema"))
	for _, function := range postgresFunctions {
		list = append(list, strings.TrimSpace(p.file(function)))
	}
	return list
}

// migrate executes all in one transaction. Postgres' own IF NOT EXISTS and OR REPLACE are not safe when several do it at once.
func (p *postgres) migrate(ctx context.Context) error {
	var script strings.Builder
	script.WriteString("SELECT pg_advisory_xact_lock(hashtextextended('tickslot schema', 0));\n")
	for _, statement := range p.schema() {
		script.WriteString(strings.TrimSuffix(statement, ";") + ";\n")
	}
	return p.Exec(ctx, script.String())
}

var postgresColumns = []wantedColumn{
	{"resource_name", "text"}, {"slot", "integer"}, {"lock_id", "text"}, {"fence", "bigint"},
	{"acquired_at", "timestamp with time zone"}, {"expires_at", "timestamp with time zone"}, {"released_at", "timestamp with time zone"},
	{"host_name", "text"}, {"process_id", "bigint"}, {"process_tag", "text"}, {"revoked", "text"},
	{"tick", "bigint"}, {"tick_starts", "integer"}, {"slots", "integer"}, {"succeeded_at", "timestamp with time zone"},
	{"orders_version", "bigint"}, {"paused_until", "timestamp with time zone"}, {"pause_order", "text"}, {"slot_limit", "integer"}, {"limit_order", "text"},
	{"triggered_at", "bigint"}, {"trigger_order", "text"},
}

func (p *postgres) verify(ctx context.Context) error {
	var kind, columns, key string
	var indexes, functions bool
	n := p.names
	err := p.QueryRow(ctx, p.verifies, append([]any{n["table"], n["ends_in"], n["holders_in"]}, p.functions()...), &kind, &columns, &key, &indexes, &functions)
	if err != nil {
		return err
	}
	if kind == "" {
		return wrongSchema(fmt.Errorf("there is no table %s", n["table"]))
	}
	has := map[string]string{}
	if err := json.Unmarshal([]byte(columns), &has); err != nil {
		return fmt.Errorf("%w: %w", errAnswer, err)
	}
	errs := checkColumns(n["table"], has, postgresColumns)
	if kind != "p" {
		errs = append(errs, fmt.Errorf("%s is unlogged or temporary: a crash of the server would empty it", n["table"]))
	}
	if key != "resource_name,slot" {
		errs = append(errs, fmt.Errorf("the primary key of %s is (%s), and has to be (resource_name, slot)", n["table"], key))
	}
	if !indexes {
		errs = append(errs, errors.New("an index is missing"))
	}
	if !functions {
		errs = append(errs, errors.New("the functions of this version are missing"))
	}
	return wrongSchema(errs...)
}

func (p *postgres) audit(ctx context.Context, now func() time.Time) (warnings []string, err error) {
	var clock int64
	var fsync, isolation, role string
	var replica, readOnly, super bool
	sent := now()
	if err := p.QueryRow(ctx, p.audits, nil, &clock, &fsync, &replica, &readOnly, &isolation, &role, &super); err != nil {
		return nil, err
	}
	warnings = clockWarnings(sent, now(), clock)
	if fsync != "on" { // synchronous_commit = off does no harm: the functions commit with it on
		warnings = append(warnings, "fsync is off: leases may be lost when the server's machine crashes, and then be granted twice; set it to on")
	}
	switch {
	case replica:
		warnings = append(warnings, "this server is a replica, which grants nothing: connect to the primary")
	case readOnly:
		warnings = append(warnings, fmt.Sprintf("transactions are read-only here, so nothing is granted: ALTER ROLE %s SET default_transaction_read_only = off", role))
	}
	if isolation != "read committed" {
		warnings = append(warnings, fmt.Sprintf("transactions are %s here, with which every acquire is refused: ALTER ROLE %s SET default_transaction_isolation = 'read committed'", isolation, role))
	}
	if super {
		return append(warnings, fmt.Sprintf("%s is a superuser, which leases do not need: use a role with the rights that docs/sql.md lists", role)), nil
	}
	missing, err := p.rights(ctx, role)
	return append(warnings, missing...), err
}

// functions are their names.
func (p *postgres) functions() (list []any) {
	for _, function := range postgresFunctions {
		list = append(list, p.names[function])
	}
	return list
}

// rights tells what the role lacks.
func (p *postgres) rights(ctx context.Context, role string) (warnings []string, err error) {
	n := p.names
	var table, functions string
	err = p.QueryRow(ctx, p.lacks, append([]any{n["table"]}, p.functions()...), &table, &functions)
	if sqlState(err) == insufficientPrivilege {
		return []string{fmt.Sprintf("%s may not use the schema of %s, so nothing is granted: GRANT USAGE ON SCHEMA … TO %s", role, n["table"], role)}, nil
	}
	if table != "" {
		fails := "nothing is granted, or not renewed"
		if table == "DELETE" {
			fails = "Cleanup fails"
		}
		warnings = append(warnings, fmt.Sprintf("%s lacks %s on %s, so %s: GRANT %s ON %s TO %s", role, table, n["table"], fails, table, n["table"], role))
	}
	if functions != "" {
		warnings = append(warnings, fmt.Sprintf("%s may not execute %s, so nothing is granted, or not renewed: GRANT EXECUTE ON FUNCTION %s TO %s", role, functions, functions, role))
	}
	return warnings, err
}

// insufficientPrivilege is the SQLSTATE of a right that is missing.
const insufficientPrivilege = "42501"
