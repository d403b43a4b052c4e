package nativelock

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// MySQLGetLock returns a store on the GET_LOCK locks of MySQL 5.7 or newer, or MariaDB. The package
// comment lists what it does not promise. MySQLGetLock does not call the server.
//
//	db, err := sql.Open("mysql", "user:password@tcp(host)/")
//	store := nativelock.MySQLGetLock(db, nativelock.Options{Prefix: "shop:"})
//	defer store.Close()
//
// An acquire of up to 1,000 slots is one round trip. It tries the slots one after the other, so a
// refusal costs the server about six microseconds per slot. Taking the first lock and freeing the
// last one each cost another round trip, which sets how long the session may be idle
// (wait_timeout). The server ends a session that has been idle for a second or two longer than its
// longest lease. So the slots of a host that was stopped or has vanished become free only slightly
// later than with sqllock.
//
// The names of these locks belong to the whole server, not to a database, so use a Prefix. The
// locks are not replicated, so all hosts must use the same server. The store refuses a replica. On
// Galera or group replication, where every node grants on its own, use sqllock. The name of a lock
// is 160 bits of a SHA-256 over prefix, name and slot, in hexadecimal, because GET_LOCK ignores
// case and accepts at most 64 characters.
func MySQLGetLock(db *sql.DB, opts Options) *Store {
	return newStore(db, opts, mysqlDialect{})
}

// readOnlyMark follows the session in an answer if its server has become read-only.
const (
	readOnlyMark      = " read-only"
	hasBecomeReadOnly = "this server is read-only: a replica, or a primary that was replaced, which has locks of " +
		"its own: connect to the primary"
)

const (
	// A server that becomes read-only is being replaced by another server, which does not have its
	// locks. The variable is 0 or 1, or a word since MariaDB 12.
	mysqlSession = "CONCAT(CONNECTION_ID(), IF(@@global.read_only IN ('0', 'OFF'), '', '" + readOnlyMark + "'))"
	mysqlProbe   = "SELECT " + mysqlSession + ", NULL"
	mysqlOpen    = "SELECT " + mysqlSession + ", IF(@@global.read_only IN ('0', 'OFF'), NULL, " +
		"'" + hasBecomeReadOnly + "')"

	// mysqlBatch limits the length of a statement.
	mysqlBatch = 1000
)

type mysqlDialect struct{}

func (mysqlDialect) String() string { return "mysql-getlock" }

// key returns a text that needs no quoting.
func (mysqlDialect) key(resource [sha256.Size]byte) string {
	return "tickslot:" + hex.EncodeToString(resource[:20])
}

func (mysqlDialect) open(string) statement { return statement{mysqlOpen, nil} }

func (mysqlDialect) probe() statement { return statement{mysqlProbe, nil} }

// keep only probes, because SET is a separate statement.
func (m mysqlDialect) keep(string, time.Duration) statement { return m.probe() }

// try passes no arguments; with arguments, the driver would have to prepare the statement. CASE
// stops at the first condition that is true.
func (m mysqlDialect) try(session string, keys []string, _ time.Duration) []statement {
	return m.inBatches(keys, func(b *strings.Builder, first int, keys []string) {
		fmt.Fprintf(b, "SELECT %s, CASE WHEN CONNECTION_ID() <> %d THEN NULL", mysqlSession, connectionID(session))
		for i, key := range keys {
			fmt.Fprintf(b, " WHEN GET_LOCK('%s', 0) = 1 THEN '%d'", key, first+i)
		}
		b.WriteString(" END")
	})
}

func (m mysqlDialect) free(session string, keys []string, _ time.Duration) []statement {
	return m.inBatches(keys, func(b *strings.Builder, _ int, keys []string) {
		fmt.Fprintf(b, "SELECT %s, CASE WHEN CONNECTION_ID() <> %d THEN NULL ELSE CONCAT(''", mysqlSession,
			connectionID(session))
		for _, key := range keys {
			fmt.Fprintf(b, ", COALESCE(RELEASE_LOCK('%s'), 0)", key)
		}
		b.WriteString(") END")
	})
}

// clear uses the statements of free, because releasing a lock that is not held has no effect.
func (m mysqlDialect) clear(session string, keys []string) []statement {
	return m.free(session, keys, 0)
}

func (mysqlDialect) idle(d time.Duration) string {
	if d == 0 {
		return "SET SESSION wait_timeout = DEFAULT"
	}
	return "SET SESSION wait_timeout = " + strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

func (mysqlDialect) beforeClose() string { return "" }

func (mysqlDialect) inBatches(keys []string, write func(b *strings.Builder, first int, keys []string)) []statement {
	var list []statement
	for first := 0; first < len(keys); first += mysqlBatch {
		var b strings.Builder
		write(&b, first, keys[first:min(first+mysqlBatch, len(keys))])
		list = append(list, statement{b.String(), nil})
	}
	return list
}

// connectionID parses the number before it becomes part of a statement.
func connectionID(session string) uint64 {
	id, _ := strconv.ParseUint(sessionID(session), 10, 64)
	return id
}
