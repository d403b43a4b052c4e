package redistest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// NewProtected returns the address of a server that behaves like a Redis in protected mode towards
// a remote client: it answers DENIED and closes the connection. A real server does not do that to
// clients on its own machine.
func NewProtected(t testing.TB) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			conns.Go(func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, "-DENIED Redis is running in protected mode because protected "+
					"mode is enabled and no password is set for the default user.\r\n")
				_, _ = conn.Read(make([]byte, 4096)) // unread data would make the close discard the answer
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		conns.Wait()
	})
	return listener.Addr().String()
}
