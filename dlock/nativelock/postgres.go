package nativelock

import (
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/binary"
	"strconv"
	"strings"
	"time"
)

// PostgresAdvisory returns a store on the session-level advisory locks of Postgres 13 or newer. The
// package comment lists what it does not promise. PostgresAdvisory does not call the server.
//
//	// with any driver; stdlib.OpenDBFromPool(pool) permanently takes one connection of a pgxpool
//	db, err := sql.Open("pgx", url)
//	store := nativelock.PostgresAdvisory(db, nativelock.Options{Prefix: "shop:"})
//	defer store.Close()
//
// Once the driver has prepared the statement, an acquire is one round trip for any number of slots.
// It tries the slots one after the other, so a refusal costs the server about a microsecond per
// slot.
//
// The server ends a session that has been idle for a second longer than its longest lease
// (idle_session_timeout, since Postgres 14). So the slots of a host that was stopped or has
// vanished become free only slightly later than with sqllock. Postgres 13 detects only a host that
// has vanished, within 15 seconds (tcp_keepalives), and never one that was stopped. A PgBouncer in
// between must be in pool_mode=session and detect vanished hosts itself (tcp_keepidle and similar
// settings).
//
// Advisory locks belong to a database, so all hosts must use the same database. A lock is 64 bits
// of a SHA-256 over prefix, name and slot. Two locks that collide exclude each other, so the store
// may grant less but never more. Among 10,000 locks, the probability of a collision is 3 in 10¹².
// Collisions with the application's own advisory locks are as rare if these are hashed, too, and
// impossible if they are small numbers.
//
// Each lock uses one entry of the server's lock table, which has max_locks_per_transaction ×
// max_connections entries for all purposes (6,400 by default).
func PostgresAdvisory(db *sql.DB, opts Options) *Store {
	return newStore(db, opts, postgresDialect{})
}

//go:embed *.sql
var files embed.FS

func file(name string, pairs ...string) string {
	text, err := files.ReadFile(name + ".sql")
	if err != nil {
		panic(err) // cannot fail, because the file is embedded
	}
	return strings.NewReplacer(pairs...).Replace(string(text))
}

// postgresSession is the process ID of a session, and a mark that only we have set on it. Without
// the mark, another client of a pooler on the same server connection would look like us.
const postgresSession = "pg_backend_pid() || ' ' || coalesce(current_setting('tickslot.session', true), '')"

// postgresIdle is the name of the setting idle_session_timeout. Postgres 13 does not have this
// setting. It is then a name with a dot, which Postgres accepts as a custom variable.
const postgresIdle = "CASE WHEN current_setting('idle_session_timeout', true) IS NULL THEN 'tickslot.idle' ELSE " +
	"'idle_session_timeout' END"

var (
	postgresTry   = file("postgres_try", "{session}", postgresSession, "{idle}", postgresIdle)
	postgresFree  = file("postgres_free", "{session}", postgresSession, "{idle}", postgresIdle)
	postgresClear = file("postgres_clear", "{session}", postgresSession)
	postgresOpen  = file("postgres_open")
)

const (
	postgresProbe = "SELECT " + postgresSession + ", NULL::text"
	postgresKeep  = "SELECT me, CASE WHEN me = $1::text AND set_config(" + postgresIdle +
		", $2::text, false) IS NULL THEN '' END FROM (SELECT " +
		postgresSession + " AS me OFFSET 0) AS s"
)

type postgresDialect struct{}

func (postgresDialect) String() string { return "postgres-advisory" }

func (postgresDialect) key(resource [sha256.Size]byte) string {
	return strconv.FormatInt(advisoryKey(resource), 10)
}

func advisoryKey(hash [sha256.Size]byte) int64 { return int64(binary.BigEndian.Uint64(hash[:])) }

func (postgresDialect) open(mark string) statement {
	return statement{postgresOpen, []any{mark}}
}

func (postgresDialect) probe() statement { return statement{postgresProbe, nil} }

func (postgresDialect) keep(session string, idle time.Duration) statement {
	return statement{postgresKeep, []any{session, milliseconds(idle)}}
}

func (postgresDialect) try(session string, keys []string, idle time.Duration) []statement {
	return []statement{{postgresTry, []any{session, strings.Join(keys, ","), milliseconds(idle)}}}
}

func (postgresDialect) free(session string, keys []string, idle time.Duration) []statement {
	return []statement{{postgresFree, []any{session, strings.Join(keys, ","), milliseconds(idle)}}}
}

func (postgresDialect) clear(session string, keys []string) []statement {
	return []statement{{postgresClear, []any{session, strings.Join(keys, ",")}}}
}

// idle returns "", because the other statements set the idle time.
func (postgresDialect) idle(time.Duration) string { return "" }

// beforeClose begins a transaction because of stdlib.OpenDBFromPool. A pgxpool keeps a connection
// that database/sql has closed, with its locks and settings, unless the connection is in a
// transaction.
func (postgresDialect) beforeClose() string { return "BEGIN" }

// milliseconds rounds up to whole milliseconds.
func milliseconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}
