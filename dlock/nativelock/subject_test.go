package nativelock_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/nativelock"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// A subject is one kind of native locks in a separate database on a server.
type subject struct {
	driver   string
	dsn      string
	make     func(*sql.DB, nativelock.Options) *nativelock.Store
	server   *sqltest.Server
	database string
	prefix   string                                      // prefix of all names
	sessions string                                      // a statement that lists the sessions of the hosts
	end      string                                      // a statement that ends the session whose number follows it
	held     func(t testing.TB, keys ...string) []string // returns the keys that any session has locked
	key      func(resource [sha256.Size]byte) (k string) // returns the name of a lock in the server
}

// subjects are the kinds of locks that can be tested here.
var subjects = []struct {
	name string
	open func(testing.TB) subject
}{{"Postgres", postgres}, {"MySQL", mysql}}

// onEach runs a test on each subject.
func onEach(t *testing.T, test func(t *testing.T, s subject)) {
	for _, s := range subjects {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			test(t, s.open(t))
		})
	}
}

func postgres(t testing.TB) subject {
	t.Helper()
	return postgresOn(t, sqltest.SharedPostgres(t))
}

func postgresOn(t testing.TB, server *sqltest.Server) subject {
	t.Helper()
	database := server.NewDatabase(t)
	s := subject{driver: "pgx", dsn: server.DSN("", "", database), make: nativelock.PostgresAdvisory, server: server,
		database: database}
	s.sessions = "SELECT pid FROM pg_stat_activity WHERE datname = '" + database +
		"' AND application_name <> 'psql' ORDER BY pid"
	s.end = "SELECT pg_terminate_backend(%s, 10000)"
	s.key = func(resource [sha256.Size]byte) string {
		return strconv.FormatInt(int64(binary.BigEndian.Uint64(resource[:8])), 10)
	}
	s.held = func(t testing.TB, keys ...string) []string {
		return strings.Fields(s.exec(t, "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks "+
			"WHERE locktype = 'advisory' AND objsubid = 1 AND database = (SELECT oid FROM pg_database WHERE datname "+
			"= current_database()) ORDER BY 1"))
	}
	return s
}

func mysql(t testing.TB) subject {
	t.Helper()
	return mysqlOn(t, sqltest.SharedMariaDB(t))
}

func mysqlOn(t testing.TB, server *sqltest.Server) subject {
	t.Helper()
	database := server.NewDatabase(t)
	// These lock names belong to the whole server, which other tests use at the same time.
	prefix := sqltest.Unique("test")
	s := subject{driver: "mysql", dsn: server.DSN("", "", database), server: server, database: database, prefix: prefix}
	s.make = func(db *sql.DB, opts nativelock.Options) *nativelock.Store {
		opts.Prefix = prefix + opts.Prefix
		return nativelock.MySQLGetLock(db, opts)
	}
	s.sessions = "SELECT id FROM information_schema.processlist WHERE db = '" + database +
		"' AND host LIKE '127.%' ORDER BY id"
	s.end = "KILL %s"
	s.key = func(resource [sha256.Size]byte) string { return "tickslot:" + hex.EncodeToString(resource[:20]) }
	s.held = func(t testing.TB, keys ...string) []string {
		var all strings.Builder // in one call, because each call is a process
		for _, key := range keys {
			fmt.Fprintf(&all, "SELECT '%s' FROM DUAL WHERE IS_USED_LOCK('%[1]s') IS NOT NULL;\n", key)
		}
		return strings.Fields(s.exec(t, all.String()))
	}
	return s
}

func (s subject) exec(t testing.TB, statement string) string {
	t.Helper()
	out, err := s.server.Exec(s.database, statement)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// lock returns the key of a lock. Hosts with different versions must agree on it.
func (s subject) lock(prefix, kind string, slot int, name string) string {
	return s.key(sha256.Sum256([]byte(fmt.Sprintf("tickslot lock 1\x00%s\x00%d\x00%s%s", kind, slot, s.prefix+prefix,
		name))))
}

// kill ends all sessions in the database.
func (s subject) kill(t testing.TB) {
	t.Helper()
	for _, id := range strings.Fields(s.exec(t, s.sessions)) {
		s.exec(t, fmt.Sprintf(s.end, id))
	}
}

// pool returns a *sql.DB that is closed after the test, later than the stores on it.
func (s subject) pool(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open(s.driver, s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// open returns the store of another host.
func (s subject) open(t testing.TB, opts nativelock.Options) *nativelock.Store {
	t.Helper()
	n := s.make(s.pool(t), opts)
	t.Cleanup(func() { n.Close() })
	return n
}

func (s subject) hosts(t testing.TB) func() driver.Store {
	prefix := sqltest.Unique("p")
	return func() driver.Store { return s.open(t, nativelock.Options{Prefix: prefix}) }
}

// A crew is several hosts behind one store. Each acquire, with the later calls for its token, goes
// to one of them. The suite expects that any host can use a token, but only the Store that took a
// native lock can use it.
type crew []driver.Store

func (c crew) of(token string) int {
	h := fnv.New32a()
	h.Write([]byte(token))
	return int(h.Sum32() % uint32(len(c)))
}

func (c crew) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return c[c.of(req.Token)].TryAcquire(ctx, req)
}

func (c crew) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	return c.each(grants, func(s driver.Store, part []driver.Grant) ([]driver.Result, error) {
		return s.Extend(ctx, ttl, part...)
	})
}

func (c crew) Release(ctx context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	return c.each(grants, func(s driver.Store, part []driver.Grant) ([]driver.Result, error) {
		return s.Release(ctx, part...)
	})
}

func (c crew) each(grants []driver.Grant, call func(driver.Store, []driver.Grant) ([]driver.Result,
	error)) ([]driver.Result, error) {
	results := make([]driver.Result, len(grants))
	for who, store := range c {
		var part []driver.Grant
		var where []int
		for i, g := range grants {
			if c.of(g.Token) == who {
				part, where = append(part, g), append(where, i)
			}
		}
		got, err := call(store, part)
		if err != nil {
			return nil, err
		}
		for i, r := range got {
			results[where[i]] = r
		}
	}
	return results, nil
}
