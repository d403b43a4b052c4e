package rediskit_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/internal/rediskit"
	"github.com/tickslot/tickslot/internal/testkit"
)

// lines collects what go-redis logs for all clients of the process.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) Printf(_ context.Context, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, fmt.Sprintf(format, args...))
}

func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.text
	l.text = nil
	return text
}

// While a server is down, our pools print nothing, and other clients of the process print as
// before. A call returns the error of the dial, which says why the server could not be reached. The
// first call after the server is back succeeds.
//
// Fails when the dialer returns its error, when an undialed connection is kept, or when its error
// is not the dial's.
func TestOurPoolsPrintNothing(t *testing.T) {
	var log lines
	redis.SetLogger(&log)
	server := miniredis.RunT(t)
	addr := server.Addr()
	theirs := redis.NewClient(&redis.Options{Addr: addr, DialerRetries: 1, MaxRetries: -1})
	defer theirs.Close()
	pools := map[string]redis.UniversalClient{
		"a server":  rediskit.NewPool(redis.Options{Addr: addr}, 3),
		"a cluster": rediskit.OwnPool(redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}}), 3),
	}
	for name, pool := range pools {
		defer pool.Close()
		if err := pool.Ping(t.Context()).Err(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	server.Close()
	log.take()
	for name, pool := range pools {
		var calls sync.WaitGroup
		for range 30 {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_ = pool.Ping(ctx).Err()
			})
		}
		calls.Wait()
		err := pool.Ping(t.Context()).Err()
		if _, ok := errors.AsType[*net.OpError](err); !ok || !errors.Is(err, syscall.ECONNREFUSED) ||
			!strings.HasPrefix(err.Error(), "dial tcp "+addr) {
			t.Errorf("%s: %v, want that the connection was refused", name, err)
		}
		if text := log.take(); len(text) > 0 {
			t.Errorf("%s: %d lines, the first is %s", name, len(text), text[0])
		}
	}
	_ = theirs.Ping(t.Context()).Err()
	if text := log.take(); len(text) == 0 {
		t.Error("the application's own client is silenced, too")
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	for name, pool := range pools {
		if err := pool.Ping(t.Context()).Err(); err != nil {
			t.Errorf("%s: the first call after the server is back: %v", name, err)
		}
	}
}

// A connection whose dial fails after its caller has left is not passed to the next caller.
//
// Fails when SyscallConn returns no error (on Unix).
func TestAnUndialedConnectionIsNotReused(t *testing.T) {
	server := miniredis.RunT(t)
	release, dialed := make(chan struct{}), make(chan struct{}, 10)
	fail := true
	pool := rediskit.NewPool(redis.Options{Addr: server.Addr(),
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			defer func() { dialed <- struct{}{} }()
			if fail {
				<-release
				return nil, errors.New("no route")
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}}, 3)
	defer pool.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := pool.Ping(ctx).Err(); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v, want that the caller goes away", err)
	}
	close(release)
	<-dialed
	testkit.Eventually(t, testkit.Patience, "the pool has the connection", func() bool {
		return pool.PoolStats().IdleConns == 1
	})
	fail = false
	if err := pool.Ping(t.Context()).Err(); err != nil {
		t.Errorf("the next caller: %v", err)
	}
}
