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
	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/internal/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m, func() error { return goleak.Find() }) }

// eventually polls check until it returns nil.
func eventually(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	if err := servertest.Poll(settleLimit, what, check); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// impatient returns a client that gives up after 300 ms, and does not retry.
func impatient(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr:          addr,
		Password:      servertest.Canary,
		DialTimeout:   300 * time.Millisecond,
		ReadTimeout:   300 * time.Millisecond,
		WriteTimeout:  300 * time.Millisecond,
		MaxRetries:    -1,
		DialerRetries: 1,
		PoolSize:      1000,
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := New(t)
	addr, pid := s.Addr(), s.Pid()
	must(t, s.Client().Set(ctx, "k", "v", 0).Err())
	if err := s.Restart(); err == nil {
		t.Fatal("restart of a running server succeeded")
	}
	must(t, s.Kill())
	if s.Pid() != 0 {
		t.Fatal("pid of a dead server")
	}
	if err := s.Kill(); err == nil {
		t.Fatal("kill of a dead server succeeded")
	}
	if conn, err := net.Dial("tcp", addr); err == nil {
		_ = conn.Close()
		t.Fatal("killed server still accepts connections")
	}
	must(t, s.Restart())
	if s.Addr() != addr || s.Pid() == pid || s.Pid() == 0 {
		t.Fatalf("restarted at %s as %d, was %s, %d", s.Addr(), s.Pid(), addr, pid)
	}
	if n := s.Client().DBSize(ctx).Val(); n != 0 {
		t.Fatalf("%d keys outlived a server without persistence", n)
	}
	must(t, s.Stop())
	must(t, s.Restart())
	must(t, s.Client().Ping(ctx).Err())
	if !strings.Contains(s.Log(), "Ready to accept connections") {
		t.Fatalf("log: %q", s.Log())
	}
	s.Close()
	s.Close()
	if s.Log() == "" {
		t.Fatal("the log is lost")
	}
	if _, err := os.Stat(s.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("folder is left: %v", err)
	}
	if err := s.Restart(); err == nil {
		t.Fatal("restart of a closed server succeeded")
	}
}

func TestRDB(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := New(t, Options{Persistence: RDB})
	must(t, s.Client().Set(ctx, "saved", "v", 0).Err())
	must(t, s.Save())
	must(t, s.Client().Set(ctx, "unsaved", "v", 0).Err())
	must(t, s.Kill())
	must(t, s.Restart())
	if keys := s.Client().Keys(ctx, "*").Val(); len(keys) != 1 || keys[0] != "saved" {
		t.Fatalf("keys after a kill: %q", keys)
	}
	must(t, s.Client().Set(ctx, "unsaved", "v", 0).Err())
	must(t, s.Stop())
	must(t, s.Restart())
	if keys := s.Client().Keys(ctx, "*").Val(); len(keys) != 1 || keys[0] != "saved" {
		t.Fatalf("keys after a stop: %q", keys)
	}
	must(t, s.Kill())
	must(t, s.RestartEmpty())
	if n := s.Client().DBSize(ctx).Val(); n != 0 {
		t.Fatalf("%d keys after RestartEmpty", n)
	}
}

func TestAOF(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := New(t, Options{Persistence: AOF})
	must(t, s.Client().Set(ctx, "k", "v", 0).Err())
	must(t, s.Kill())
	must(t, s.Restart())
	if v := s.Client().Get(ctx, "k").Val(); v != "v" {
		t.Fatalf("k is %q after a kill", v)
	}
	must(t, s.Kill())
	must(t, s.RestartEmpty())
	if n := s.Client().DBSize(ctx).Val(); n != 0 {
		t.Fatalf("%d keys after RestartEmpty", n)
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := New(t)
	c := impatient(t, s.Addr())
	must(t, c.Ping(ctx).Err())
	if err := s.Pause(); errors.Is(err, errors.ErrUnsupported) {
		t.Skip("no pausing on this system")
	}
	err := c.Ping(ctx).Err()
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("paused server: %v", err)
	}
	must(t, s.Resume())
	eventually(t, "resumed", func(ctx context.Context) error { return c.Ping(ctx).Err() })
	// A paused server can still be ended in each way.
	must(t, s.Pause())
	must(t, s.Stop())
	must(t, s.Restart())
	must(t, s.Pause())
	must(t, s.Kill())
	must(t, s.Restart())
	must(t, s.Pause())
	process, err := os.FindProcess(s.Pid())
	must(t, err)
	s.Close()
	if err := process.Signal(syscall.Signal(0)); !errors.Is(err, os.ErrProcessDone) {
		t.Fatalf("closed server is still there: %v", err)
	}
}

func TestTLSAndPassword(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := New(t, Options{TLS: true, Password: "p@ss/word"})
	must(t, s.Client().Ping(ctx).Err())
	opts, err := redis.ParseURL(s.URL())
	must(t, err)
	opts.TLSConfig = s.TLSConfig()
	c := redis.NewClient(opts)
	defer c.Close()
	must(t, c.Ping(ctx).Err())
	if err := impatient(t, s.Addr()).Ping(ctx).Err(); err == nil {
		t.Fatal("plain text works on a TLS server")
	}
	must(t, s.Kill())
	must(t, s.Restart())
	must(t, s.Client().Ping(ctx).Err())
}

func TestBadArgs(t *testing.T) {
	t.Parallel()
	Require(t)
	s, err := Start(Options{Args: []string{"--no-such-option", "1"}})
	if err == nil {
		s.Close()
		t.Fatal("started")
	}
	if !strings.Contains(err.Error(), "no-such-option") {
		t.Fatalf("the error does not show the server's output: %v", err)
	}
}

func TestShared(t *testing.T) {
	t.Parallel()
	a, b := Shared(t), Shared(t)
	if a != b {
		t.Fatal("two shared servers")
	}
	must(t, a.Client().Ping(t.Context()).Err())
}

func TestCluster(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := NewCluster(t, 3)
	for i := range 100 {
		key := fmt.Sprint("key", i)
		must(t, c.Client().Set(ctx, key, i, 0).Err())
		if v, err := c.Client().Get(ctx, key).Int(); err != nil || v != i {
			t.Fatalf("%s is %d, %v", key, v, err)
		}
	}
	for _, n := range c.Nodes {
		if n.Client().DBSize(ctx).Val() == 0 {
			t.Errorf("no keys on %s", n.Addr())
		}
	}
	// A master that comes back is still the owner of its slots, and empty.
	must(t, c.Nodes[1].Kill())
	must(t, c.Nodes[1].Restart())
	eventually(t, "cluster heals", func(ctx context.Context) error {
		for i := range 100 {
			if err := c.Client().Set(ctx, fmt.Sprint("key", i), i, 0).Err(); err != nil {
				return err
			}
		}
		return settled(ctx, c.Nodes[1], 3, 0, false)
	})
	if c.Nodes[1].Client().DBSize(ctx).Val() == 0 {
		t.Error("no keys on the restarted node")
	}
}

func TestClusterFailover(t *testing.T) {
	t.Parallel()
	c := NewClusterWithReplicas(t, 3, 1)
	if len(c.Nodes) != 6 || len(c.Addrs()) != 6 {
		t.Fatalf("nodes: %q", c.Addrs())
	}
	must(t, c.Nodes[0].Kill())
	eventually(t, "replica takes over", func(ctx context.Context) error {
		role, err := c.Nodes[3].Client().Do(ctx, "ROLE").Slice()
		if err == nil && role[0] != "master" {
			err = fmt.Errorf("role is %v", role[0])
		}
		return err
	})
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	s := NewSentinel(t)
	addr, err := s.MasterAddr(t.Context())
	must(t, err)
	if addr != s.Master.Addr() {
		t.Fatalf("sentinel names %s, the master is %s", addr, s.Master.Addr())
	}
	c := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:    s.MasterName(),
		Password:      servertest.Canary,
		SentinelAddrs: s.SentinelAddrs(),
		DialTimeout:   300 * time.Millisecond,
	})
	defer c.Close()
	must(t, c.Set(t.Context(), "k", "before", 0).Err())
	must(t, s.Master.Kill())
	eventually(t, "failover", func(ctx context.Context) error {
		addr, err := s.MasterAddr(ctx)
		if err == nil && addr != s.Replica.Addr() {
			err = fmt.Errorf("master is %s", addr)
		}
		return err
	})
	eventually(t, "client follows", func(ctx context.Context) error {
		return c.Set(ctx, "k", "after", 0).Err()
	})
	if v := s.Replica.Client().Get(t.Context(), "k").Val(); v != "after" {
		t.Fatalf("k on the new master is %q", v)
	}
	// The promotion outlives a restart of the promoted replica.
	must(t, s.Replica.Kill())
	must(t, s.Replica.Restart())
	role, err := s.Replica.Client().Do(t.Context(), "ROLE").Slice()
	must(t, err)
	if role[0] != "master" {
		t.Fatalf("promoted replica restarted as %v", role[0])
	}
}

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
	// New connections are accepted and hang, even when the server is gone.
	late, err := net.Dial("tcp", p.Addr())
	must(t, err)
	defer late.Close()
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
	must(t, impatient(t, p.Addr()).Ping(t.Context()).Err())
	p.Close()
	p.Close()
}

func TestProxyDropAndDelay(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := New(t)
	p := servertest.NewProxyFor(t, s.Addr())
	c := impatient(t, p.Addr())
	must(t, c.Ping(ctx).Err())
	p.DropReplies(1)
	if err := c.Incr(ctx, "k").Err(); err == nil {
		t.Fatal("the reply arrived")
	}
	if v := s.Client().Get(ctx, "k").Val(); v != "1" {
		t.Fatalf("the request did not arrive: k is %q", v)
	}
	must(t, c.Ping(ctx).Err())
	const d = 20 * time.Millisecond
	p.Delay(d)
	begin := time.Now()
	must(t, c.Ping(ctx).Err())
	if took := time.Since(begin); took < 2*d {
		t.Fatalf("round trip took %v", took)
	}
}

// Fails when a reply arrives while replies are lost or on a connection that has lost one, or the
// request does not arrive; when Reset keeps a connection open, or refuses new ones; and when a
// delay is outside of its bounds, or a delay of replies delays a request.
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
	if v := s.Client().Get(ctx, "k").Val(); v != "2" {
		t.Fatalf("the request did not arrive: k is %q", v)
	}
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
	c := impatient(t, p.Addr())
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
	p.DelayUpTo(0, 0)
	p.DelayReplies(time.Minute)
	if err := c.Set(ctx, "k", "late", 0).Err(); err == nil {
		t.Fatal("the reply arrived")
	}
	if v := s.Client().Get(ctx, "k").Val(); v != "late" {
		t.Fatalf("the request did not arrive: k is %q", v)
	}
}

func TestProxyCounts(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := New(t)
	p := NewCountingProxyFor(t, s.Addr())
	c := redis.NewClient(&redis.Options{Addr: p.Addr(), Password: servertest.Canary})
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
	// The small values fit in one write, the large ones take many.
	for _, size := range []int{1, 1000, 100_000} {
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
