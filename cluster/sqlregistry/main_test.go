package sqlregistry_test

import (
	"database/sql"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/internal/servertest"
	"github.com/tickslot/tickslot/internal/sqltest"
)

func TestMain(m *testing.M) { servertest.Main(m, func() error { return goleak.Find() }) }

// A subject is one database, reached in one way, for the tests that all databases share.
type subject struct {
	// db opens a pool, which is closed after the test, by the address of the server and a user of
	// the database; "": the server itself, and its owner.
	db func(t testing.TB, addr, user string) *sql.DB
	of func(*sql.DB, sqlregistry.Options) *sqlregistry.Store

	server   *sqltest.Server // nil: SQLite
	database string
	wire     func(net.Conn, *atomic.Int64) func() ([]byte, error)
	trips    int64 // of a call
	proxied  bool  // db has a proxy
}

// open returns the client of one more host.
func (s subject) open(t testing.TB) *sqlregistry.Store {
	t.Helper()
	return s.of(s.db(t, "", ""), sqlregistry.Options{})
}

// migrated returns a store whose table has been made.
func (s subject) migrated(t testing.TB) *sqlregistry.Store {
	t.Helper()
	store := s.open(t)
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store
}

// exec executes statements as the owner of the database.
func (s subject) exec(t testing.TB, statements ...string) {
	t.Helper()
	db := s.db(t, "", "")
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// proxy starts a proxy before the server that counts the messages for whose answers a client waits.
func (s subject) proxy(t testing.TB) (waits *atomic.Int64, p *servertest.Proxy) {
	t.Helper()
	waits = new(atomic.Int64)
	p, err := servertest.NewProxyWith(func(conn net.Conn) func() ([]byte, error) {
		return s.wire(conn, waits)
	}, s.server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return waits, p
}

// postgresWire reads the messages of a client. It waits for the answers to Sync and Query.
func postgresWire(conn net.Conn, waits *atomic.Int64) func() ([]byte, error) {
	greeted := false
	return func() ([]byte, error) {
		// the type of a message and its length, which the first of a connection has without a type
		head := make([]byte, 5)
		if !greeted {
			head = head[:4]
		}
		if _, err := io.ReadFull(conn, head); err != nil {
			return nil, err
		}
		size := binary.BigEndian.Uint32(head[len(head)-4:])
		if size < 4 || size > 1<<26 {
			return nil, errors.New("not a message of Postgres")
		}
		body := make([]byte, size-4)
		if _, err := io.ReadFull(conn, body); err != nil {
			return nil, err
		}
		if greeted && (head[0] == 'S' || head[0] == 'Q') {
			waits.Add(1)
		}
		greeted = true
		return append(head, body...), nil
	}
}

// mysqlWire reads the packets of a client. It waits for the answer to each command, which is packet
// 0 of a sequence, but for COM_STMT_CLOSE.
func mysqlWire(conn net.Conn, waits *atomic.Int64) func() ([]byte, error) {
	return func() ([]byte, error) {
		head := make([]byte, 4)
		if _, err := io.ReadFull(conn, head); err != nil {
			return nil, err
		}
		body := make([]byte, int(head[0])|int(head[1])<<8|int(head[2])<<16)
		if _, err := io.ReadFull(conn, body); err != nil {
			return nil, err
		}
		const stmtClose = 0x19
		if head[3] == 0 && len(body) > 0 && body[0] != stmtClose {
			waits.Add(1)
		}
		return append(head, body...), nil
	}
}
