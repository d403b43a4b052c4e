package redislock_test

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/push"

	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
)

// A forgotten connection was idle for so long that a load balancer has dropped it. Its packets
// vanish silently from then on.
type forgotten struct {
	*net.TCPConn
	after time.Duration

	mu   sync.Mutex
	last time.Time
}

func (c *forgotten) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.last.IsZero() && time.Since(c.last) > c.after {
		return len(b), nil
	}
	c.last = time.Now()
	return c.TCPConn.Write(b)
}

// After a quiet period, the first calls take no longer than others.
//
// Fails when connections may be idle for as long as go-redis allows: calls take until their
// deadline.
func TestIdleConnectionsThatNATForgets(t *testing.T) {
	t.Parallel()
	const forgets = time.Second
	server := redistest.Shared(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: canary, ConnMaxIdleTime: forgets / 2,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &forgotten{TCPConn: conn.(*net.TCPConn), after: forgets}, nil
		}})
	defer client.Close()
	store := open(t, client, redislock.Options{Prefix: unique("idle")})
	burst := func() (slowest time.Duration) {
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				began := time.Now()
				_, err := store.List(ctx, "a", 1)
				mu.Lock()
				defer mu.Unlock()
				if slowest = max(slowest, time.Since(began)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		return slowest
	}
	burst()
	time.Sleep(forgets + 100*time.Millisecond) // the fault is that long without calls
	if d := burst(); d > 2*time.Second {
		t.Errorf("a call after a quiet time took %v", d)
	}
}

// Fails when the settings of the caller's connections determine how long ours may be idle, or
// whether they receive push messages.
func TestOwnPool(t *testing.T) {
	t.Parallel()
	for callers, want := range map[time.Duration]time.Duration{0: redislock.MaxIdleTime, -1: redislock.MaxIdleTime,
		time.Hour: redislock.MaxIdleTime, time.Second: time.Second} {
		theirs := push.NewProcessor()
		client := redis.NewClient(&redis.Options{Addr: "localhost:1", ConnMaxIdleTime: callers,
			ClientSideCacheConfig: &redis.ClientSideCacheConfig{}})
		processed := redis.NewClient(&redis.Options{Addr: "localhost:1", PushNotificationProcessor: theirs})
		for _, c := range []*redis.Client{client, processed} {
			own := redislock.OwnPool(c, 3).(*redis.Client)
			o := own.Options()
			if o.ClientSideCache != nil || o.ClientSideCacheConfig != nil ||
				o.PushNotificationProcessor == push.NotificationProcessor(theirs) {
				t.Errorf("the own pool has the caller's %+v", o)
			}
			if c == client && o.ConnMaxIdleTime != want {
				t.Errorf("idle for %v, of %v: want %v", o.ConnMaxIdleTime, callers, want)
			}
			own.Close()
			c.Close()
		}
		cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"localhost:1"},
			ConnMaxIdleTime: callers, PushNotificationProcessor: theirs})
		own := redislock.OwnPool(cluster, 3).(*redis.ClusterClient)
		if o := own.Options(); o.ConnMaxIdleTime != want || o.PushNotificationProcessor != nil {
			t.Errorf("Cluster: idle for %v, of %v: want %v; %v", o.ConnMaxIdleTime, callers, want,
				o.PushNotificationProcessor)
		}
		own.Close()
		cluster.Close()
	}
}

// While the network drops everything, handshakes hang. When it works again, calls do not wait for
// these handshakes.
//
// Fails with go-redis' own Dialer, which ignores its context in a handshake: each handshake
// occupies a connection until the caller's DialTimeout.
func TestHandshakesThatHang(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{TLS: true})
	way, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer way.Close()
	var silent atomic.Bool
	silent.Store(true)
	go func() {
		for {
			conn, err := way.Accept()
			if err != nil {
				return
			}
			if silent.Load() {
				defer conn.Close() // the listener never answers
				continue
			}
			onward, err := net.Dial("tcp", server.Addr())
			if err != nil {
				conn.Close()
				continue
			}
			go func() { _, _ = io.Copy(onward, conn); onward.Close() }()
			go func() { _, _ = io.Copy(conn, onward); conn.Close() }()
		}
	}()
	client := redis.NewClient(&redis.Options{Addr: way.Addr().String(), Password: canary, TLSConfig: server.TLSConfig(),
		DialTimeout: 30 * time.Second})
	defer client.Close()
	store := open(t, client, redislock.Options{PoolSize: 2})
	call := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := store.List(ctx, "a", 1)
		return err
	}
	for range 4 {
		if call() == nil {
			t.Fatal("a call came through")
		}
	}
	silent.Store(false)
	healed := time.Now()
	testkit.Eventually(t, testkit.Patience, "a call comes through", call)
	if d := time.Since(healed); d > 5*time.Second {
		t.Errorf("%v until a call came through", d)
	}
}
