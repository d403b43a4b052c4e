//go:build unix && !aix

package pgxkit

import (
	"crypto/tls"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
)

// HasInput detects data and the end of the stream, even while a goroutine waits for them, as one of
// pgx may do. It consumes nothing, and reports when it cannot tell.
//
// Fails when it waits for that goroutine (raw.Read), or reads without MSG_PEEK.
func TestHasInput(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	wrapped := tls.Client(client, &tls.Config{ServerName: "x"})
	if yes, known := HasInput(wrapped); yes || !known {
		t.Errorf("nothing was sent: %v, %v", yes, known)
	}
	arrived := func() bool { yes, known := HasInput(wrapped); return yes && known }
	if _, err := server.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "data has arrived", arrived)
	var b [2]byte
	if n, err := client.Read(b[:]); err != nil || string(b[:n]) != "x" {
		t.Errorf("%q is left: %v", b[:n], err)
	}
	raw, err := client.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	reads, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- raw.Read(func(uintptr) bool {
			select {
			case <-reads:
				return true
			default:
				close(reads)
				return false // waits, and is called again when something has arrived
			}
		})
	}()
	<-reads
	defer time.AfterFunc(testkit.Patience, func() { server.Close() }).Stop()
	if yes, known := HasInput(wrapped); yes || !known {
		t.Errorf("all was read: %v, %v", yes, known)
	}
	server.Close()
	testkit.Eventually(t, testkit.Patience, "the end has arrived", arrived)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	pipe, other := net.Pipe()
	defer pipe.Close()
	defer other.Close()
	if _, known := HasInput(pipe); known {
		t.Error("a pipe is no socket")
	}
}
