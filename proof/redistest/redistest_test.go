package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m, func() error { return goleak.Find() }) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// patient returns a client that does not retry. Its calls end with their context, or after
// settleLimit.
func patient(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr:                  addr,
		Password:              servertest.Canary,
		ContextTimeoutEnabled: true,
		DialTimeout:           settleLimit,
		ReadTimeout:           settleLimit,
		WriteTimeout:          settleLimit,
		MaxRetries:            -1,
		DialerRetries:         1,
		PoolSize:              1000,
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// briefly returns a context of 300 ms for a call that should fail.
func briefly(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
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
	c := patient(t, s.Addr())
	must(t, c.Ping(ctx).Err())
	must(t, s.Pause())
	err := c.Ping(briefly(t)).Err()
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("paused server: %v", err)
	}
	must(t, s.Resume())
	testkit.Eventually(t, settleLimit, "resumed", func(ctx context.Context) error { return c.Ping(ctx).Err() })
	// A paused server can still be stopped in each way.
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
	if err := patient(t, s.Addr()).Ping(briefly(t)).Err(); err == nil {
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
	// A master that comes back still owns its slots, and is empty.
	must(t, c.Nodes[1].Kill())
	must(t, c.Nodes[1].Restart())
	testkit.Eventually(t, settleLimit, "cluster heals", func(ctx context.Context) error {
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
	testkit.Eventually(t, settleLimit, "replica takes over", func(ctx context.Context) error {
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
	testkit.Eventually(t, settleLimit, "failover", func(ctx context.Context) error {
		addr, err := s.MasterAddr(ctx)
		if err == nil && addr != s.Replica.Addr() {
			err = fmt.Errorf("master is %s", addr)
		}
		return err
	})
	testkit.Eventually(t, settleLimit, "client follows", func(ctx context.Context) error {
		return c.Set(ctx, "k", "after", 0).Err()
	})
	if v := s.Replica.Client().Get(t.Context(), "k").Val(); v != "after" {
		t.Fatalf("k on the new master is %q", v)
	}
	// The promoted replica is still a master after a restart.
	must(t, s.Replica.Kill())
	must(t, s.Replica.Restart())
	role, err := s.Replica.Client().Do(t.Context(), "ROLE").Slice()
	must(t, err)
	if role[0] != "master" {
		t.Fatalf("promoted replica restarted as %v", role[0])
	}
}
