package servertest

import (
	"io"
	"net"
	"testing"
	"time"
)

// A request forwarded while replies are lost gets no reply, even if the server answers only after
// LoseReplies(false). So a test that saw the request arrive need not know when its reply is lost.
//
// Fails when only replies that arrive while replies are lost are dropped.
func TestReplyToARequestThatWentThroughIsLost(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer server.Close()
	p, err := NewProxy(server.Addr().String())
	must(t, err)
	defer p.Close()
	client, err := net.Dial("tcp", p.Addr())
	must(t, err)
	defer client.Close()
	conn, err := server.Accept()
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(limit))) // otherwise a lost request would hang the test
	exchange := func(between func()) error {
		_, err := client.Write([]byte{'?'})
		must(t, err)
		_, err = io.ReadFull(conn, make([]byte, 1))
		must(t, err)
		between()
		_, err = conn.Write([]byte{'!'})
		must(t, err)
		must(t, client.SetReadDeadline(time.Now().Add(time.Second)))
		_, err = io.ReadFull(client, make([]byte, 1))
		return err
	}
	must(t, exchange(func() {}))
	p.LoseReplies(true)
	if exchange(func() { p.LoseReplies(false) }) == nil {
		t.Error("the reply came back")
	}
}
