package redistest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// NewProtected returns the address of something that behaves as a server in protected mode does to
// a client on another machine: it says DENIED to whoever connects, and hangs up. A real one does
// not do that to clients on its own machine.
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
				return // it is closed
			}
			conns.Go(func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, "-DENIED Redis is running in protected mode because protected "+
					"mode is enabled and no password is set for the default user.\r\n")
				_, _ = conn.Read(make([]byte, 4096)) // so that the answer is not lost with what nobody has read
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		conns.Wait()
	})
	return listener.Addr().String()
}
