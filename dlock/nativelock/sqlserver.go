package nativelock

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"strings"
	"time"
)

// SQLServerAppLock returns a store on the session-level application locks of SQL Server
// (sp_getapplock). The package comment lists what it does not promise. SQLServerAppLock does not
// call the server.
//
// It is experimental: it has not been run against a server. Only its statements and the parsing of
// answers are tested.
//
//	db, err := sql.Open("sqlserver", url) // with github.com/microsoft/go-mssqldb
//	store := nativelock.SQLServerAppLock(db, nativelock.Options{Prefix: "shop:"})
//	defer store.Close()
//
// An acquire is one round trip for any number of slots. SQL Server detects a host that has vanished
// by its keepalives, by default after about half a minute. It ends no idle session, so a host that
// was stopped keeps its slots until it runs again or its machine is switched off.
//
// Application locks belong to a database, so all hosts must use the same database. The name of a
// lock is 160 bits of a SHA-256 over prefix, name and slot.
func SQLServerAppLock(db *sql.DB, opts Options) *Store {
	return newStore(db, opts, sqlserverDialect{})
}

const (
	sqlserverSession = "CAST(@@SPID AS nvarchar(11))"
	sqlserverProbe   = "SELECT " + sqlserverSession + ", CAST(NULL AS nvarchar(11))"
	sqlserverOpen    = "SELECT " + sqlserverSession +
		", CASE WHEN DATABASEPROPERTYEX(DB_NAME(), 'Updateability') = 'READ_WRITE' THEN NULL " +
		"ELSE N'this database is read-only: a replica, which has locks of its own: connect to the primary' END"

	// sqlserverName is the length of a lock's name. The scripts split a list of names at this
	// length.
	sqlserverName = len("tickslot:") + 40
)

var (
	sqlserverTry  = file("sqlserver_try")
	sqlserverFree = file("sqlserver_free")
)

type sqlserverDialect struct{}

func (sqlserverDialect) String() string { return "sqlserver-applock" }

func (sqlserverDialect) key(resource [sha256.Size]byte) string {
	return "tickslot:" + hex.EncodeToString(resource[:20])
}

func (sqlserverDialect) open(string) statement { return statement{sqlserverOpen, nil} }

func (sqlserverDialect) probe() statement { return statement{sqlserverProbe, nil} }

func (s sqlserverDialect) keep(string, time.Duration) statement { return s.probe() }

func (sqlserverDialect) try(session string, keys []string, _ time.Duration) []statement {
	return []statement{{sqlserverTry, sqlserverArgs(session, keys)}}
}

func (sqlserverDialect) free(session string, keys []string, _ time.Duration) []statement {
	return []statement{{sqlserverFree, sqlserverArgs(session, keys)}}
}

func (s sqlserverDialect) clear(session string, keys []string) []statement {
	return s.free(session, keys, 0)
}

func (sqlserverDialect) idle(time.Duration) string { return "" }

func (sqlserverDialect) beforeClose() string { return "" }

func sqlserverArgs(session string, keys []string) []any {
	return []any{session, strings.Join(keys, ""), int64(sqlserverName), int64(len(keys))}
}
