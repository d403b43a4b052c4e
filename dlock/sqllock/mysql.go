package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

// MySQL returns a store on MySQL 8.0 or MariaDB 10.6, or newer, with any driver for database/sql. It does not call the server. Faults of the
// options are reported by Check, which dlock.NewSession and timer.New call.
//
//	db, err := sql.Open("mysql", "user:password@tcp(db.example.org:3306)/shop?interpolateParams=true") // go-sql-driver/mysql
//	lock := sqllock.MySQL(db, sqllock.Options{})
//	err = lock.Migrate(ctx)
//
// Every operation calls one stored procedure, which Migrate makes: no client can stop in the middle of a transaction and keep a row
// locked. With interpolateParams=true that is one round trip, without it two, because the driver prepares each call. Databases that only speak
// like MySQL, and have no stored procedures, will not do.
//
// Grants of one name, and updates of it, are made one after the other, each with a commit. A release that says that its work succeeded waits for the one that is just
// being made, or for another such release; refusals, extensions and other releases wait for nobody.
//
// A row that some other session has locked costs the slot that it is about and nothing else: another slot is granted, and of one lease it is unknown
// whether it was extended. If nothing else is free, or the row of the name (slot -1) is locked, an acquire asks again and again for nine tenths of the
// time that its context leaves, and then says so with an error that matches dlock.ErrFault. What cannot be passed over is waited for, at most a minute, and
// then for a second by what is left in the server: a locked gap, the first time that a slot is used, and the whole table (LOCK TABLES, ALTER TABLE,
// mysqldump without --single-transaction). The store is down meanwhile: give the table a database of its own.
//
// Add timeout=2s, too: a dial that nobody answers would otherwise keep its place in the pool for minutes after the network is back.
//
// Give it a *sql.DB of its own: if it shares one with the application, and all its connections are in use, heartbeats wait, and leases are
// lost.
//
// What a machine that crashes must not forget has to be on its disk: innodb_flush_log_at_trx_commit=1 and, where there is a binary log,
// sync_binlog=1. Audit warns of anything else. A replica that takes over without the last transactions has forgotten those leases, as
// with any asynchronous replication. All hosts have to reach the same primary, also in Galera or a group with several: another one
// may not have heard of a release yet, or of an extension when its clock says that the lease has ended.
func MySQL(db *sql.DB, opts Options) *Store {
	return newStore(opts, func(o Options) (database, error) {
		d, err := newSQLDB(db)
		if err := errors.Join(err, mysqlName("TableName", o.TableName), mysqlName("Schema", o.Schema)); err != nil {
			return nil, err
		}
		return newMySQL(d, o), nil
	})
}

// mysqlName tells what is wrong with the name of a table or a database, which the server would refuse only later.
func mysqlName(what, name string) error {
	switch {
	case strings.HasSuffix(name, " "):
		return fmt.Errorf("sqllock: %s %q: MySQL has no names that end with a space", what, name)
	case strings.ContainsFunc(name, func(r rune) bool { return r > 0xFFFF }):
		return fmt.Errorf("sqllock: %s %q: MySQL has no names with characters beyond U+FFFF", what, name)
	}
	return nil
}

//go:embed mysql/*.sql
var mysqlFiles embed.FS

// mysqlVersion is part of the names of the procedures: see postgresVersion.
const mysqlVersion = "_v3"

type mysql struct {
	sqlDB
	options  Options
	names    map[string]string
	acquires string
	extends  string
	releases string
	decrees  string
	revokes  string
	reads    string
	cleans   string
	lists    string
	verifies string
}

// mysqlRoutines are the procedures; each has a file.
var mysqlRoutines = []string{"acquire", "extend", "release", "cleanup", "order", "revoke"}

// mysqlParts are what several procedures begin with: how long they wait, and how they begin a transaction and repeat it. SQL cannot include.
var mysqlParts = []string{"bounded", "transaction"}

func newMySQL(d sqlDB, o Options) *mysql {
	in := func(suffix string) string {
		return qualified(o.Schema, o.TableName+suffix, func(name string) string { return quote("`", "`", name) })
	}
	m := &mysql{sqlDB: d, options: o, names: map[string]string{"table": in("")}}
	for _, routine := range mysqlRoutines {
		m.names[routine] = in("_" + routine + mysqlVersion)
	}
	for _, part := range mysqlParts {
		m.names[part] = m.file(part)
	}
	m.acquires = fill("CALL {acquire}(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", m.names)
	m.extends = fill("CALL {extend}(?, ?, ?)", m.names)
	m.releases = fill("CALL {release}(?, ?)", m.names)
	m.cleans = fill("CALL {cleanup}(?, ?, ?, ?, ?)", m.names)
	m.decrees = fill("CALL {order}(?, ?, ?, ?, ?, ?, ?)", m.names)
	m.revokes = fill("CALL {revoke}(?, ?, ?, ?, ?)", m.names)
	m.lists, m.reads, m.verifies = m.file("list"), m.file("orders"), m.file("verify")
	return m
}

func (m *mysql) file(name string) string {
	text, err := mysqlFiles.ReadFile("mysql/" + name + ".sql")
	if err != nil {
		panic(err) // it is embedded
	}
	return strings.TrimSpace(fill(string(text), m.names))
}

func (m *mysql) String() string { return "mysql" }

func (m *mysql) close() error { return m.Close() }

// call calls a procedure. After an error its connection is not used again. Its settings may not have been set back, and where a KILL QUERY or the
// like ends a procedure without asking its handlers, its session is in the middle of a transaction.
func (m *mysql) call(ctx context.Context, query string, args []any, dest ...any) error {
	return m.with(ctx, func(conn *sql.Conn) error {
		err := conn.QueryRowContext(ctx, query, args...).Scan(dest...)
		if err != nil {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
		return err
	})
}

// Text is passed as bytes: what the server would make of it depends on the character set of the connection.
func (m *mysql) acquire(ctx context.Context, c claim) (v verdict, err error) {
	err = m.call(ctx, m.acquires, []any{
		[]byte(c.resource), c.slots, []byte(c.token), c.ttl, c.tick, c.max, c.missed, c.schedule, dlock.MaxTickAhead.Microseconds(),
		cut(c.holder.Host), c.holder.PID, cut(c.holder.ID), min(c.wait, longestWait),
	}, v.scan()...)
	return v, err
}

// cut makes text fit into a column of 255 characters.
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

// longestWait, in milliseconds, is how long a lock in the database is waited for by a caller who has all day.
const longestWait = 60_000

func (m *mysql) extend(ctx context.Context, ttl int64, grants string) (answers string, err error) {
	list, err := mysqlGrants(grants)
	if err == nil {
		err = m.call(ctx, m.extends, []any{ttl, list, min(patience(ctx), longestWait)}, &answers)
	}
	return answers, err
}

func (m *mysql) release(ctx context.Context, grants string) (answers string, err error) {
	list, err := mysqlGrants(grants)
	if err == nil {
		err = m.call(ctx, m.releases, []any{list, min(patience(ctx), longestWait)}, &answers)
	}
	return answers, err
}

// mysqlGrants writes grants as the procedures take them. Names are in hex, so that no character set can change them.
func mysqlGrants(text string) (string, error) {
	var list []grantJSON
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return "", err
	}
	var b strings.Builder
	for i, g := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `[%d,"%x",%d,"%s",%d]`, g.Index, g.Resource, g.Slot, g.Token, g.Well)
	}
	return "[" + b.String() + "]", nil
}

// list reads row by row: MariaDB cuts what its functions put together after group_concat_max_len bytes.
func (m *mysql) list(ctx context.Context, resource string) (string, error) {
	held := []heldJSON{}
	err := m.read(ctx, m.lists, []any{[]byte(resource)}, func(rows *sql.Rows) error {
		var h heldJSON
		err := rows.Scan(&h.Slot, &h.Host, &h.PID, &h.ID, &h.Fence, &h.Since, &h.Ends)
		held = append(held, h)
		return err
	})
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(held)
	return string(text), err
}

// read calls row for each row of a query. It is in a transaction that ends, so that it sees the present: with autocommit = 0 one that was
// begun by an earlier query would go on, and with completion_type = CHAIN one that the last left behind.
func (m *mysql) read(ctx context.Context, query string, args []any, row func(*sql.Rows) error) error {
	const end = "ROLLBACK AND NO CHAIN NO RELEASE"
	return m.with(ctx, func(conn *sql.Conn) (err error) {
		for _, statement := range []string{end, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"} {
			if _, err := conn.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		defer func() {
			if _, failed := conn.ExecContext(ctx, end); failed != nil {
				discard(conn)
			}
		}()
		rows, err := conn.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := row(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

func (m *mysql) update(ctx context.Context, c updateRow) error {
	var done int
	return m.call(ctx, m.decrees, []any{
		[]byte(c.resource), c.pause, orNull(c.paused), c.limit, orNull(c.limited), orNull(c.trigger), min(patience(ctx), longestWait),
	}, &done)
}

func (m *mysql) inspect(ctx context.Context, resources string) (string, error) {
	names, err := hexNames(resources)
	if err != nil {
		return "", err
	}
	known := []controlRow{}
	err = m.read(ctx, m.reads, []any{names}, func(rows *sql.Rows) error {
		var o controlRow
		err := rows.Scan(&o.Resource, &o.Version, &o.PauseLeft, &o.Paused, &o.Limit, &o.Limited, &o.At, &o.Ago, &o.Trigger, &o.Tick, &o.Host, &o.PID, &o.ID)
		known = append(known, o)
		return err
	})
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(known)
	return string(text), err
}

// hexNames writes a list of names in hex, so that neither a character set nor a collation can change them.
func hexNames(resources string) (string, error) {
	var list []string
	if err := json.Unmarshal([]byte(resources), &list); err != nil {
		return "", err
	}
	for i, name := range list {
		list[i] = hex.EncodeToString([]byte(name))
	}
	text, err := json.Marshal(list)
	return string(text), err
}

func (m *mysql) revoke(ctx context.Context, resource string, slot int, fence int64, by string) (held bool, err error) {
	err = m.call(ctx, m.revokes, []any{[]byte(resource), slot, fence, by, min(patience(ctx), longestWait)}, &held)
	return held, err
}

func (m *mysql) cleanup(ctx context.Context, retention int64, after row, limit int) (p page, err error) {
	err = m.call(ctx, m.cleans, []any{[]byte(after.resource), after.slot, limit, retention, min(patience(ctx), longestWait)},
		&p.seen, &p.deleted, &p.last.resource, &p.last.slot)
	return p, err
}

func (m *mysql) schema() []string {
	list := []string{m.file("schema")}
	for _, routine := range mysqlRoutines {
		list = append(list, m.file(routine))
	}
	return list
}

// migrate is safe when several do it at once: a procedure is there or not, and that it is there already is no mistake. (Not every MySQL 8.0
// knows IF NOT EXISTS for procedures.)
func (m *mysql) migrate(ctx context.Context) error {
	return m.with(ctx, func(conn *sql.Conn) error {
		// A procedure keeps the sql_mode of the session that made it. Some change what '' or "x" means.
		var mode string
		if err := conn.QueryRowContext(ctx, "SELECT @@SESSION.sql_mode").Scan(&mode); err != nil {
			return err
		}
		if _, err := conn.ExecContext(ctx, "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'"); err != nil {
			return err
		}
		var err error
		for _, statement := range m.schema() {
			if _, err = conn.ExecContext(ctx, statement); err != nil && sqlkit.MySQLNumber(err) != alreadyExists {
				break
			}
			err = nil
		}
		_, back := conn.ExecContext(ctx, "SET SESSION sql_mode = '"+mode+"'")
		return cmp.Or(err, back)
	})
}

var mysqlColumns = []wantedColumn{
	{"resource_name", "varbinary(544)"}, {"slot", "int"}, {"lock_id", "varbinary(64)"}, {"fence", "bigint"},
	{"acquired_at", "datetime(6)"}, {"expires_at", "datetime(6)"}, {"released_at", "datetime(6)"},
	{"host_name", "varchar(255) utf8mb4"}, {"process_id", "bigint"}, {"process_tag", "varchar(255) utf8mb4"}, {"revoked", "text utf8mb4"},
	{"tick", "bigint"}, {"tick_starts", "int"}, {"tick_schedule", "bigint"}, {"slots", "int"}, {"succeeded_at", "datetime(6)"},
	{"orders_version", "bigint"}, {"paused_until", "datetime(6)"}, {"pause_order", "text utf8mb4"}, {"slot_limit", "int"}, {"limit_order", "text utf8mb4"},
	{"triggered_at", "bigint"}, {"trigger_order", "text utf8mb4"},
}

// mysqlIndexes are those that the procedures name, and what they have to begin with.
var mysqlIndexes = []struct{ name, columns string }{
	{"PRIMARY", "resource_name,slot"}, {"ends", "resource_name,expires_at,slot"}, {"holders", "lock_id"},
}

// displayWidth is what MariaDB puts behind the name of an integer type, and MySQL did: it means nothing.
var displayWidth = regexp.MustCompile(`^(\w*int)\(\d+\)`)

func (m *mysql) verify(ctx context.Context) error {
	var schema any
	if m.options.Schema != "" {
		schema = m.options.Schema
	}
	var args []any
	for range 3 {
		args = append(args, schema, m.options.TableName, []byte(m.options.TableName))
	}
	args = append(args, schema)
	var exact []any
	for _, routine := range mysqlRoutines {
		name := m.options.TableName + "_" + routine + mysqlVersion
		args, exact = append(args, name), append(exact, []byte(name))
	}
	args = append(args, exact...)
	has := map[string]map[string]string{"engine": {}, "column": {}, "index": {}, "routine": {}}
	err := m.read(ctx, m.verifies, args, func(rows *sql.Rows) error {
		var kind, name, value string
		err := rows.Scan(&kind, &name, &value)
		if has[kind] != nil {
			has[kind][name] = displayWidth.ReplaceAllString(value, "$1")
		}
		return err
	})
	if err != nil {
		return err
	}
	table := m.names["table"]
	if len(has["engine"]) == 0 {
		return wrongSchema(fmt.Errorf("there is no table %s", table))
	}
	errs := checkColumns(table, has["column"], mysqlColumns)
	for _, engine := range has["engine"] {
		if !strings.EqualFold(engine, "InnoDB") {
			errs = append(errs, fmt.Errorf("%s has engine %s, and has to have InnoDB", table, engine))
		}
	}
	for _, index := range mysqlIndexes {
		var list []string
		for seq := 1; has["index"][fmt.Sprint(index.name, " ", seq)] != ""; seq++ {
			list = append(list, has["index"][fmt.Sprint(index.name, " ", seq)])
		}
		if columns := strings.Join(list, ","); columns != index.columns {
			errs = append(errs, fmt.Errorf("index %s of %s is on (%s), and has to be on (%s)", index.name, table, columns, index.columns))
		}
	}
	if len(has["routine"]) < len(mysqlRoutines) {
		errs = append(errs, fmt.Errorf("of the %d procedures of this version this user sees %d: he may lack EXECUTE on them, or another table,"+
			" whose name differs by case or accents only, has them", len(mysqlRoutines), len(has["routine"])))
	}
	return wrongSchema(errs...)
}

func (m *mysql) audit(ctx context.Context, now func() time.Time) (warnings []string, err error) {
	var clock int64
	var flush, binlog, sync int
	var readOnly string
	sent := now()
	err = m.QueryRow(ctx, "SELECT TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6)), @@GLOBAL.innodb_flush_log_at_trx_commit, @@GLOBAL.log_bin, @@GLOBAL.sync_binlog, CONCAT(@@GLOBAL.read_only)", nil,
		&clock, &flush, &binlog, &sync, &readOnly)
	if err != nil {
		return nil, err
	}
	warnings = clockWarnings(sent, now(), clock)
	const lost = ": leases may be lost when the server's machine crashes, and then be granted twice; set it to 1"
	if flush == 0 || flush == 2 {
		warnings = append(warnings, fmt.Sprintf("innodb_flush_log_at_trx_commit is %d%s", flush, lost))
	}
	if binlog != 0 && sync != 1 { // after a crash InnoDB undoes what did not reach the binary log
		warnings = append(warnings, fmt.Sprintf("there is a binary log, and sync_binlog is %d%s", sync, lost))
	}
	if readOnly != "0" && !strings.EqualFold(readOnly, "OFF") {
		warnings = append(warnings, "this server is read-only, a replica perhaps, and grants nothing: connect to the primary")
	}
	return warnings, nil
}

// alreadyExists is the number of the error that a procedure with this name exists.
const alreadyExists = "1304"
