//go:build unix && !aix

package pgxkit

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
)

// HasInput sees data, and the end, also if a goroutine waits for them, as one of pgx may; it takes
// nothing away, and says so if it cannot tell.
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
	read := make(chan string, 2)
	next := func() {
		var b [1]byte
		n, err := client.Read(b[:])
		if err != nil {
			read <- "the end"
			return
		}
		read <- string(b[:n])
	}
	arrived := func() bool { yes, known := HasInput(wrapped); return yes && known }
	if _, err := server.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "data has arrived", arrived)
	next()
	if got := <-read; got != "x" {
		t.Errorf("%q is left", got)
	}
	go next() // waits
	defer time.AfterFunc(testkit.Patience, func() { server.Close() }).Stop()
	if yes, known := HasInput(wrapped); yes || !known {
		t.Errorf("all was read: %v, %v", yes, known)
	}
	server.Close()
	testkit.Eventually(t, testkit.Patience, "the end has arrived", arrived)
	if got := <-read; got != "the end" {
		t.Errorf("the reader got %q", got)
	}
	pipe, other := net.Pipe()
	defer pipe.Close()
	defer other.Close()
	if _, known := HasInput(pipe); known {
		t.Error("a pipe is no socket")
	}
}
