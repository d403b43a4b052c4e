package rediskit

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// DefaultPoolSize is enough because a call occupies a connection for one round trip: ten
// connections make tens of thousands of calls a second.
const DefaultPoolSize = 10

// LastResort bounds a call whose context has no deadline. A dlock.Session always sets one.
const LastResort = 5 * time.Second

// dialTimeout leaves time to resend a lost packet. Calls do not wait that long. The limit ends a
// hanging dial that blocks another one.
const dialTimeout = 2 * time.Second

// MaxIdleTime is the time after which an idle connection is closed. Load balancers and NAT drop
// idle connections silently, some after four minutes, and the call that notices loses half of its
// time.
const MaxIdleTime = 2 * time.Minute

// OwnPool opens a pool to the same server or servers as client, in which every wait ends with the
// deadline of its call. It returns nil for a client whose settings cannot be read.
func OwnPool(client redis.UniversalClient, size int) redis.UniversalClient {
	switch c := client.(type) {
	case *redis.Client:
		return NewPool(*c.Options(), size)
	case *redis.ClusterClient:
		o := *c.Options()
		o.ContextTimeoutEnabled = true
		o.MaxRetries = -1
		o.MaxRedirects = 3 // for MOVED and ASK; each repeats the same token
		o.DialerRetries = 1
		o.Dialer = quietly(inTime(o.Dialer, o.TLSConfig))
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = dialTimeout, LastResort, LastResort, LastResort
		o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = size, 0, 0, 0
		o.ConnMaxIdleTime = idleTime(o.ConnMaxIdleTime)
		o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
		o.DisableRoutingPolicies = true // otherwise go-redis first asks some node, which may hang, for its commands
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		o.PushNotificationProcessor = nil
		hook := handshake{authenticates: o.OnConnect != nil}
		o.OnConnect = letIn(o.OnConnect)
		pool := redis.NewClusterClient(&o)
		pool.OnNewNode(func(node *redis.Client) { node.AddHook(hook) })
		return pool
	default:
		return nil
	}
}

// NewPool opens a pool to one server.
func NewPool(o redis.Options, size int) *redis.Client {
	o.ContextTimeoutEnabled = true
	o.MaxRetries = -1   // dlock itself retries, with the same token
	o.DialerRetries = 1 // otherwise a refused connection takes seconds
	o.Dialer = quietly(inTime(o.Dialer, o.TLSConfig))
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = dialTimeout, LastResort, LastResort, LastResort
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = size, 0, 0, 0
	o.MaxConcurrentDials = 0
	o.PipelinePoolSize = 1 // a separate connection for heartbeats
	o.ConnMaxIdleTime = idleTime(o.ConnMaxIdleTime)
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.Limiter = nil
	// These are for the caller's own connections, and a cache cannot hold answers of scripts.
	o.PushNotificationProcessor = nil
	o.ClientSideCache, o.ClientSideCacheConfig = nil, nil
	hook := handshake{authenticates: o.OnConnect != nil}
	o.OnConnect = letIn(o.OnConnect)
	pool := redis.NewClient(&o)
	pool.AddHook(hook)
	return pool
}

// idleTime returns MaxIdleTime, or the caller's idle time if that is shorter. For go-redis, 0 means
// its default, and a negative value means forever.
func idleTime(callers time.Duration) time.Duration {
	if callers > 0 {
		return min(callers, MaxIdleTime)
	}
	return MaxIdleTime
}

// FailoverAddr is the address that go-redis reports for every Sentinel client.
const FailoverAddr = "FailoverClient"

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// inTime wraps dial, or go-redis' dialer if dial is nil, so that it returns when its context ends
// even if dial ignores the context. go-redis' dialer ignores it during a TLS handshake.
func inTime(dial dialer, config *tls.Config) dialer {
	if dial == nil {
		dial = redis.NewDialer(&redis.Options{DialTimeout: dialTimeout, TLSConfig: config})
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		var conn net.Conn
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			conn, err = dial(ctx, network, addr)
		}()
		select {
		case <-done:
			return conn, err
		case <-ctx.Done():
			go func() {
				if <-done; err == nil {
					conn.Close()
				}
			}()
			return nil, ctx.Err()
		}
	}
}
