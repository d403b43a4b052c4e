package sqllock

import (
	"context"
	"database/sql"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// SQLServer returns a store on Microsoft SQL Server 2017 or newer, with any driver for database/sql that numbers its parameters @p1, @p2 and so
// on, as microsoft/go-mssqldb does. It does not call the server. Faults of the options are reported by Check, which dlock.NewSession and
// timer.New call.
//
// It is EXPERIMENTAL: it has not been run against a server. Its statements are written from the documentation and tested
// as texts only. Run dlock/dlocktest on it before you rely on it, and tell us. It may change or go in any release.
//
// Every operation is one batch, and one round trip. An acquire takes a lock on the name (sp_getapplock, owned by its transaction) also when it is
// refused; it writes nothing then.
//
// Give it a *sql.DB of its own: if it shares one with the application, and all its connections are in use, heartbeats wait, and leases are
// lost.
func SQLServer(db *sql.DB, opts Options) *Store {
	return newStore(opts, func(o Options) (database, error) {
		d, err := newSQLDB(db)
		if err != nil {
			return nil, err
		}
		return newSQLServer(d, o), nil
	})
}

//go:embed sqlserver/*.sql
var sqlserverFiles embed.FS

type sqlserver struct {
	sqlDB
	names map[string]string
}

func newSQLServer(d sqlDB, o Options) *sqlserver {
	table := qualified(o.Schema, o.TableName, func(name string) string { return quote("[", "]", name) })
	return &sqlserver{sqlDB: d, names: map[string]string{"table": table, "table_text": quote("N'", "'", table)}}
}

// file returns the text of a statement. LOCK_TIMEOUT takes no parameter: it is part of the text.
func (m *sqlserver) file(name string, wait int64) string {
	text, err := sqlserverFiles.ReadFile("sqlserver/" + name + ".sql")
	if err != nil {
		panic(err) // it is embedded
	}
	return strings.TrimSpace(fill(string(text), map[string]string{
		"table": m.names["table"], "table_text": m.names["table_text"], "wait": strconv.FormatInt(wait, 10)}))
}

func (m *sqlserver) String() string { return "sqlserver" }

func (m *sqlserver) close() error { return m.Close() }

func (m *sqlserver) acquire(ctx context.Context, c claim) (v verdict, err error) {
	err = m.QueryRow(ctx, m.file("acquire", c.wait), []any{
		[]byte(c.resource), c.slots, []byte(c.token), c.ttl, c.tick, c.max, c.missed, dlock.MaxTickAhead.Microseconds(),
		c.holder.Host, c.holder.PID, c.holder.ID, c.wait, c.schedule,
	}, v.scan()...)
	return v, err
}

func (m *sqlserver) extend(ctx context.Context, ttl int64, grants string) (answers string, err error) {
	list, err := sqlserverGrants(grants)
	if err == nil {
		err = m.QueryRow(ctx, m.file("extend", patience(ctx)), []any{ttl, list}, &answers)
	}
	return answers, err
}

func (m *sqlserver) release(ctx context.Context, grants string) (answers string, err error) {
	list, err := sqlserverGrants(grants)
	if err == nil {
		err = m.QueryRow(ctx, m.file("release", patience(ctx)), []any{list}, &answers)
	}
	return answers, err
}

// sqlserverGrants writes grants as the statements take them: [index, name in hex, slot, token in hex, 1 if the work ended well], which no collation can change.
func sqlserverGrants(text string) (string, error) {
	var list []grantJSON
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return "", err
	}
	rows := make([][5]any, len(list))
	for i, g := range list {
		rows[i] = [5]any{g.Index, hex.EncodeToString([]byte(g.Resource)), g.Slot, hex.EncodeToString([]byte(g.Token)), g.Well}
	}
	out, err := json.Marshal(rows)
	return string(out), err
}

func (m *sqlserver) list(ctx context.Context, resource string) (held string, err error) {
	err = m.QueryRow(ctx, m.file("list", 0), []any{[]byte(resource)}, &held)
	return held, err
}

func (m *sqlserver) update(ctx context.Context, c updateRow) error {
	wait, done := patience(ctx), 0
	return m.QueryRow(ctx, m.file("order", wait), []any{
		[]byte(c.resource), c.pause, orNull(c.paused), c.limit, orNull(c.limited), orNull(c.trigger), wait,
	}, &done)
}

func (m *sqlserver) inspect(ctx context.Context, resources string) (answers string, err error) {
	names, err := hexNames(resources)
	if err != nil {
		return "", err
	}
	if err := m.QueryRow(ctx, m.file("orders", 0), []any{names}, &answers); err != nil {
		return "", err
	}
	var known []controlRow
	if err := json.Unmarshal([]byte(answers), &known); err != nil {
		return "", fmt.Errorf("%w: %w", errAnswer, err)
	}
	for i := range known {
		name, err := hex.DecodeString(known[i].Resource)
		if err != nil {
			return "", fmt.Errorf("%w: %w", errAnswer, err)
		}
		known[i].Resource = string(name)
	}
	text, err := json.Marshal(known)
	return string(text), err
}

func (m *sqlserver) revoke(ctx context.Context, resource string, slot int, fence int64, by string) (bool, error) {
	rows := 0
	err := m.QueryRow(ctx, m.file("revoke", patience(ctx)), []any{[]byte(resource), slot, fence, by}, &rows)
	return rows > 0, err
}

func (m *sqlserver) cleanup(ctx context.Context, retention int64, after row, limit int) (p page, err error) {
	var last []byte
	err = m.QueryRow(ctx, m.file("cleanup", min(patience(ctx), longestWait)), []any{[]byte(after.resource), after.slot, limit, retention}, &p.seen, &p.deleted, &last, &p.last.slot)
	p.last.resource = string(last)
	return p, err
}

func (m *sqlserver) schema() []string { return []string{m.file("schema", 0)} }

// migrate lets one host after the other create the table.
func (m *sqlserver) migrate(ctx context.Context) error {
	return m.Exec(ctx, "SET XACT_ABORT ON;\nBEGIN TRANSACTION;\n"+
		"EXEC sp_getapplock @Resource = N'tickslot schema', @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = "+
		strconv.FormatInt(patience(ctx), 10)+";\n"+m.file("schema", 0)+";\nCOMMIT TRANSACTION;")
}

var sqlserverColumns = []wantedColumn{
	{"resource_name", "varbinary(544)"}, {"slot", "int"}, {"lock_id", "varbinary(64)"}, {"fence", "bigint"},
	{"acquired_at", "datetime2(6)"}, {"expires_at", "datetime2(6)"}, {"released_at", "datetime2(6)"},
	{"host_name", "nvarchar(255)"}, {"process_id", "bigint"}, {"process_tag", "nvarchar(255)"}, {"revoked", "nvarchar(4000)"},
	{"tick", "bigint"}, {"tick_starts", "int"}, {"tick_schedule", "bigint"}, {"slots", "int"}, {"succeeded_at", "datetime2(6)"},
	{"orders_version", "bigint"}, {"paused_until", "datetime2(6)"}, {"pause_order", "nvarchar(4000)"}, {"slot_limit", "int"}, {"limit_order", "nvarchar(4000)"},
	{"triggered_at", "bigint"}, {"trigger_order", "nvarchar(4000)"},
}

func (m *sqlserver) verify(ctx context.Context) error {
	var text, key string
	var indexes int
	if err := m.QueryRow(ctx, m.file("verify", 0), []any{m.names["table"]}, &text, &key, &indexes); err != nil {
		return err
	}
	var columns []struct{ Name, Type string }
	if err := json.Unmarshal([]byte(text), &columns); err != nil {
		return fmt.Errorf("%w: %w", errAnswer, err)
	}
	if len(columns) == 0 {
		return wrongSchema(fmt.Errorf("there is no table %s", m.names["table"]))
	}
	has := map[string]string{}
	for _, c := range columns {
		has[c.Name] = c.Type
	}
	errs := checkColumns(m.names["table"], has, sqlserverColumns)
	if key != "resource_name,slot" {
		errs = append(errs, fmt.Errorf("the primary key of %s is (%s), and has to be (resource_name, slot)", m.names["table"], key))
	}
	if indexes != 2 {
		errs = append(errs, errors.New("an index is missing"))
	}
	return wrongSchema(errs...)
}

func (m *sqlserver) audit(ctx context.Context, now func() time.Time) (warnings []string, err error) {
	var clock int64
	var delayed int
	sent := now()
	if err := m.QueryRow(ctx, "SELECT DATEDIFF_BIG(MICROSECOND, '1970-01-01', SYSUTCDATETIME()), delayed_durability FROM sys.databases WHERE database_id = DB_ID()", nil, &clock, &delayed); err != nil {
		return nil, err
	}
	warnings = clockWarnings(sent, now(), clock)
	if delayed == 2 {
		warnings = append(warnings, "DELAYED_DURABILITY is FORCED: leases may be lost when the server crashes, and then be granted twice; set it to ALLOWED or DISABLED")
	}
	return warnings, nil
}
