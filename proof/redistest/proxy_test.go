package redistest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
)

func TestProxyBlackHole(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := New(t)
	p := servertest.NewProxyFor(t, s.Addr())
	conn, err := net.Dial("tcp", p.Addr())
	must(t, err)
	defer conn.Close()
	ask := func(limit time.Duration, request string, want int) (string, error) {
		if _, err := io.WriteString(conn, request); err != nil {
			return "", err
		}
		must(t, conn.SetReadDeadline(time.Now().Add(limit)))
		reply := make([]byte, want)
		n, err := io.ReadFull(conn, reply)
		return string(reply[:n]), err
	}
	login := "AUTH " + servertest.Canary + "\r\n"
	if reply, err := ask(settleLimit, login+"SET k 1\r\n", 10); err != nil || reply != "+OK\r\n+OK\r\n" {
		t.Fatalf("reply %q, %v", reply, err)
	}
	p.BlackHole(true)
	if reply, err := ask(300*time.Millisecond, "INCR k\r\n", 4); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("black hole let through %q, %v", reply, err)
	}
	if v := s.Client().Get(ctx, "k").Val(); v != "1" {
		t.Fatalf("the request arrived: k is %q", v)
	}
	// New connections are accepted, and hang.
	late, err := net.Dial("tcp", p.Addr())
	must(t, err)
	defer late.Close()
	_, err = io.WriteString(late, login)
	must(t, err)
	must(t, late.SetReadDeadline(time.Now().Add(300*time.Millisecond)))
	if n, err := late.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("black hole answers a new connection: %d bytes, %v", n, err)
	}
	p.BlackHole(false)
	if reply, err := ask(settleLimit, "INCR k\r\n", 8); err != nil || reply != ":2\r\n:3\r\n" {
		t.Fatalf("reply after the black hole %q, %v", reply, err)
	}
	p.BlackHole(true)
	must(t, s.Kill())
	if reply, err := ask(300*time.Millisecond, "INCR k\r\n", 4); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("black hole let the server's end through: %q, %v", reply, err)
	}
	p.BlackHole(false)
	must(t, conn.SetReadDeadline(time.Now().Add(settleLimit)))
	if n, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the server's end does not arrive: %d, %v", n, err)
	}
}

func TestProxyCut(t *testing.T) {
	t.Parallel()
	s := New(t)
	p := servertest.NewProxyFor(t, s.Addr())
	conn, err := net.Dial("tcp", p.Addr())
	must(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "AUTH "+servertest.Canary+"\r\n")
	must(t, err)
	must(t, conn.SetReadDeadline(time.Now().Add(settleLimit)))
	_, err = io.ReadFull(conn, make([]byte, len("+OK\r\n")))
	must(t, err)
	p.Cut()
	p.Cut()
	if _, err = conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("cut connection: %v", err)
	}
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("new connection: %v", err)
	}
	must(t, p.Mend())
	must(t, p.Mend())
	must(t, patient(t, p.Addr()).Ping(t.Context()).Err())
	p.Close()
	p.Close()
}

func TestProxyDropAndDelay(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := New(t)
	p := servertest.NewProxyFor(t, s.Addr())
	c := patient(t, p.Addr())
	must(t, c.Ping(ctx).Err())
	p.DropReplies(1)
	if err := c.Incr(briefly(t), "k").Err(); err == nil {
		t.Fatal("the reply arrived")
	}
	arrives(t, s, "1")
	must(t, c.Ping(ctx).Err())
	const d = 20 * time.Millisecond
	p.Delay(d)
	begin := time.Now()
	must(t, c.Ping(ctx).Err())
	if took := time.Since(begin); took < 2*d {
		t.Fatalf("round trip took %v", took)
	}
}

// Fails when a reply arrives while replies are lost, or on a connection that has lost one, or when
// the request does not arrive; when Reset keeps a connection open or refuses new ones; and when a
// delay is outside its bounds, or a delay of replies delays a request.
func TestProxyLoseRepliesResetAndJitter(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := New(t)
	must(t, s.Client().ConfigSet(ctx, "requirepass", "").Err()) // bare connections follow
	p := servertest.NewProxyFor(t, s.Addr())
	conn, err := net.Dial("tcp", p.Addr())
	must(t, err)
	defer conn.Close()
	incr := func(conn net.Conn, limit time.Duration) error {
		_, err := io.WriteString(conn, "INCR k\r\n")
		must(t, err)
		must(t, conn.SetReadDeadline(time.Now().Add(limit)))
		_, err = io.ReadFull(conn, make([]byte, len(":1\r\n")))
		return err
	}
	must(t, incr(conn, settleLimit))
	p.LoseReplies(true)
	if err := incr(conn, 300*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the reply arrived: %v", err)
	}
	arrives(t, s, "2")
	p.LoseReplies(false)
	if err := incr(conn, 300*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the stream goes on behind a hole: %v", err)
	}
	fresh, err := net.Dial("tcp", p.Addr())
	must(t, err)
	defer fresh.Close()
	must(t, incr(fresh, settleLimit))
	p.Reset()
	must(t, fresh.SetReadDeadline(time.Now().Add(settleLimit)))
	if _, err = fresh.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("reset connection: %v", err)
	}
	c := patient(t, p.Addr())
	must(t, c.Ping(ctx).Err())
	const least, most = 10 * time.Millisecond, 20 * time.Millisecond
	p.DelayUpTo(least, most)
	for range 5 {
		begin := time.Now()
		must(t, c.Ping(ctx).Err())
		if took := time.Since(begin); took < 2*least {
			t.Fatalf("round trip took %v", took)
		}
	}
	testkit.Eventually(t, settleLimit, "a round trip as short as it may be", func(ctx context.Context) error {
		begin := time.Now()
		must(t, c.Ping(ctx).Err())
		if took := time.Since(begin); took > 2*most {
			return fmt.Errorf("round trip took %v", took) // a busy machine may delay one, but not all
		}
		return nil
	})
	p.DelayUpTo(0, 0)
	p.DelayReplies(time.Minute)
	if err := c.Set(briefly(t), "k", "late", 0).Err(); err == nil {
		t.Fatal("the reply arrived")
	}
	arrives(t, s, "late")
}

// arrives waits until a request has set k. On a busy machine, that may take longer than the client
// waited for the reply.
func arrives(t *testing.T, s *Server, want string) {
	t.Helper()
	testkit.Eventually(t, settleLimit, "the request arrives", func(ctx context.Context) error {
		if v, err := s.Client().Get(ctx, "k").Result(); err != nil || v != want {
			return fmt.Errorf("k is %q, %v", v, err)
		}
		return nil
	})
}

func TestProxyCounts(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := New(t)
	p := NewCountingProxyFor(t, s.Addr())
	c := redis.NewClient(&redis.Options{Addr: p.Addr(), Password: servertest.Canary,
		ReadTimeout: time.Minute, WriteTimeout: time.Minute}) // requests that time out are sent again
	defer c.Close()
	must(t, c.Ping(ctx).Err())
	if n := p.RoundTrips(); n != 0 || p.Commands()["PING"] != 1 {
		t.Fatalf("%d round trips for a handshake and a ping, commands %v", n, p.Commands())
	}
	expect := func(what string, trips int64, sets int) {
		t.Helper()
		if n := p.RoundTrips(); n != trips {
			t.Errorf("%s: %d round trips, want %d", what, n, trips)
		}
		if n := p.Commands()["SET"]; n != sets {
			t.Errorf("%s: %d times SET, want %d", what, n, sets)
		}
		p.Reset()
	}
	for range 3 {
		must(t, c.Set(ctx, "k", "v", 0).Err())
	}
	expect("three commands", 3, 3)
	// The small values fit in one write, the largest take many.
	for _, size := range []int{1, 1000, 10_000} {
		value := strings.Repeat("v", size)
		pipe := c.Pipeline()
		for i := range 500 {
			pipe.Set(ctx, fmt.Sprint("k", i%5), value, 0)
		}
		_, err := pipe.Exec(ctx)
		must(t, err)
		expect(fmt.Sprintf("pipeline of 500 with values of %d", size), 1, 500)
	}
	_, err := c.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.Set(ctx, "k", "v", 0)
		tx.Get(ctx, "k")
		return nil
	})
	must(t, err)
	if n := p.Commands(); n["MULTI"] != 1 || n["EXEC"] != 1 || n["GET"] != 1 {
		t.Errorf("commands of a transaction: %v", n)
	}
	expect("transaction", 1, 1)
}

func TestCommandParser(t *testing.T) {
	t.Parallel()
	// The argument of ECHO looks like a command, but is not.
	stream := string(encode("set", "k", "")) + "ping\r\n" + string(encode("ECHO", "*1\r\n$3\r\nGET\r\n")) +
		"*0\r\n" + string(encode("Get", "k"))
	want := "[SET PING ECHO GET]"
	for size := 1; size <= len(stream); size++ {
		var p commandParser
		var names []string
		for rest := stream; rest != ""; {
			n := min(size, len(rest))
			names = append(names, p.feed([]byte(rest[:n]))...)
			rest = rest[n:]
		}
		if fmt.Sprint(names) != want || !p.between() {
			t.Fatalf("in chunks of %d: %v, between %t", size, names, p.between())
		}
	}
}
