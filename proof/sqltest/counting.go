package sqltest

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tickslot/tickslot/proof/servertest"
)

// CountingProxy is a proxy in front of a server that also counts what clients ask of it. Its
// methods are safe for concurrent use.
type CountingProxy struct {
	*servertest.Proxy

	server            *Server
	trips, statements atomic.Int64
}

// StartCountingProxy starts a proxy in front of the server. The connections through it must not be
// encrypted. Close ends it.
func (s *Server) StartCountingProxy() (*CountingProxy, error) {
	p := &CountingProxy{server: s}
	var err error
	p.Proxy, err = servertest.NewProxyWith(p.reader, s.Addr())
	return p, err
}

// NewCountingProxy is StartCountingProxy for a test, with which it ends.
func (s *Server) NewCountingProxy(t testing.TB) *CountingProxy {
	t.Helper()
	p, err := s.StartCountingProxy()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// DSN is that of the server, through the proxy.
func (c *CountingProxy) DSN(user, password, database string) string {
	return strings.Replace(c.server.DSN(user, password, database), c.server.Addr(), c.Addr(), 1)
}

// RoundTrips returns how often clients have waited for an answer. The login does not count, nor
// does the ping with which pgx begins if nobody has used the connection for a second: what counts
// must not depend on how busy the machine is.
func (c *CountingProxy) RoundTrips() int64 { return c.trips.Load() }

// Statements returns how many statements clients have had executed: one round trip may have several
// of them, or, if it prepares one, none.
func (c *CountingProxy) Statements() int64 { return c.statements.Load() }

// reader returns a function that reads and counts the next message.
func (c *CountingProxy) reader(conn net.Conn) func() ([]byte, error) {
	first := true
	return func() ([]byte, error) {
		m, err := c.server.read(conn, first)
		first = false
		if m.waits {
			c.trips.Add(1)
		}
		if m.executes {
			c.statements.Add(1)
		}
		return m.bytes, err
	}
}

// A message is what a client sends.
type message struct {
	bytes    []byte
	waits    bool // the client waits for the answer
	executes bool // a statement
}

// postgresMessage reads a message: its type, of which the first of a connection has none, its
// length, and the rest. Clients wait for the answers to Sync and Query.
func postgresMessage(conn io.Reader, first bool) (message, error) {
	head := make([]byte, 5)
	if first {
		head = head[:4]
	}
	if _, err := io.ReadFull(conn, head); err != nil {
		return message{}, err
	}
	size := binary.BigEndian.Uint32(head[len(head)-4:])
	if size < 4 || size > 1<<26 {
		return message{}, errors.New("not a message of Postgres")
	}
	bytes, err := withBody(conn, head, int(size)-4)
	if err != nil || first {
		return message{bytes: bytes}, err
	}
	const sync, query, execute = 'S', 'Q', 'E'
	if head[0] == query && string(bytes[len(head):]) == "-- ping\x00" {
		return message{bytes: bytes}, nil
	}
	return message{bytes, head[0] == sync || head[0] == query, head[0] == execute || head[0] == query}, nil
}

// mysqlMessage reads a packet: the length of its body, its number, and its body. A command is
// packet 0, and clients wait for the answers to all but COM_STMT_CLOSE and COM_QUIT.
func mysqlMessage(conn io.Reader, _ bool) (message, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(conn, head); err != nil {
		return message{}, err
	}
	size := int(head[0]) | int(head[1])<<8 | int(head[2])<<16
	bytes, err := withBody(conn, head, size)
	if err != nil || head[3] != 0 || size == 0 {
		return message{bytes: bytes}, err
	}
	const quit, query, stmtExecute, stmtClose = 0x01, 0x03, 0x17, 0x19
	command := bytes[len(head)]
	return message{bytes, command != stmtClose && command != quit, command == query || command == stmtExecute}, nil
}

// withBody reads size bytes, and returns them behind the head.
func withBody(conn io.Reader, head []byte, size int) ([]byte, error) {
	bytes := append(head, make([]byte, size)...)
	if _, err := io.ReadFull(conn, bytes[len(head):]); err != nil {
		return nil, err
	}
	return bytes, nil
}
