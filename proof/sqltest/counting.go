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

// A CountingProxy is a proxy in front of a server that also counts clients' requests. Its methods
// are safe for concurrent use.
type CountingProxy struct {
	*servertest.Proxy

	server            *Server
	trips, statements atomic.Int64
}

// StartCountingProxy starts a proxy in front of the server. Connections through it must not be
// encrypted. Close ends it.
func (s *Server) StartCountingProxy() (*CountingProxy, error) {
	p := &CountingProxy{server: s}
	var err error
	p.Proxy, err = servertest.NewProxyWith(p.reader, s.Addr())
	return p, err
}

// NewCountingProxy is StartCountingProxy for a test, and ends with it.
func (s *Server) NewCountingProxy(t testing.TB) *CountingProxy {
	t.Helper()
	p, err := s.StartCountingProxy()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// DSN returns the server's DSN with the proxy's address.
func (c *CountingProxy) DSN(user, password, database string) string {
	return strings.Replace(c.server.DSN(user, password, database), c.server.Addr(), c.Addr(), 1)
}

// RoundTrips returns how often clients have waited for an answer. It does not count logins, or the
// ping that pgx sends on a connection that was idle for a second, because the count must not depend
// on how busy the machine is.
func (c *CountingProxy) RoundTrips() int64 { return c.trips.Load() }

// Statements returns how many statements clients have executed. One round trip may have several, or
// none if it only prepares one.
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

// A message is a message from a client.
type message struct {
	bytes    []byte
	waits    bool // the client waits for the answer
	executes bool // it executes a statement
}

// postgresMessage reads a message: its type, which a connection's first message lacks, its length,
// and the rest. Clients wait for the answers to Sync and Query.
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
// packet 0. Clients wait for the answers to all commands except COM_STMT_CLOSE and COM_QUIT.
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

// withBody reads size bytes, and returns head followed by them.
func withBody(conn io.Reader, head []byte, size int) ([]byte, error) {
	bytes := append(head, make([]byte, size)...)
	if _, err := io.ReadFull(conn, bytes[len(head):]); err != nil {
		return nil, err
	}
	return bytes, nil
}
