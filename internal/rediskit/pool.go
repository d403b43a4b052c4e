package rediskit

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// DefaultPoolSize is enough because a call lasts as long as a round trip: ten connections make tens
// of thousands of calls a second.
const DefaultPoolSize = 10

// LastResort bounds a call whose context has no deadline. A dlock.Session always sets one.
const LastResort = 5 * time.Second

// dialTimeout is long enough for a lost packet to be repeated. Nobody waits for a connection as
// long, and one that hangs takes the place of one that would not.
const dialTimeout = 2 * time.Second

// MaxIdleTime is after how long without a call a connection is not used again: load balancers and
// NAT forget one without a word, some after four minutes, and the call that finds out has lost half
// of its time.
const MaxIdleTime = 2 * time.Minute

// OwnPool opens a pool to the same server or servers, whose waits end with the deadline of each
// call. It returns nil for a client whose settings cannot be read.
func OwnPool(client redis.UniversalClient, size int) redis.UniversalClient {
	switch c := client.(type) {
	case *redis.Client:
		return NewPool(*c.Options(), size)
	case *redis.ClusterClient:
		o := *c.Options()
		o.ContextTimeoutEnabled = true
		o.MaxRetries = -1
		o.MaxRedirects = 3 // MOVED and ASK; each is the same token again
		o.DialerRetries = 1
		o.Dialer = inTime(o.Dialer, o.TLSConfig)
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = dialTimeout, LastResort, LastResort, LastResort
		o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = size, 0, 0, 0
		o.ConnMaxIdleTime = idleTime(o.ConnMaxIdleTime)
		o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
		o.DisableRoutingPolicies = true // or go-redis asks a node for its commands, which may be one that hangs, before it runs a script on another
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		o.PushNotificationProcessor = nil
		return redis.NewClusterClient(&o)
	default:
		return nil
	}
}

// NewPool opens a pool to one server.
func NewPool(o redis.Options, size int) *redis.Client {
	o.ContextTimeoutEnabled = true
	o.MaxRetries = -1   // a repeated call may be a second call: dlock repeats with the same token
	o.DialerRetries = 1 // or a refused connection takes seconds
	o.Dialer = inTime(o.Dialer, o.TLSConfig)
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = dialTimeout, LastResort, LastResort, LastResort
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = size, 0, 0, 0
	o.MaxConcurrentDials = 0
	o.PipelinePoolSize = 1 // heartbeats have a connection apart, or use one of the others
	o.ConnMaxIdleTime = idleTime(o.ConnMaxIdleTime)
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.Limiter = nil
	// They belong to the caller's connections. A cache would answer nothing here: scripts are not
	// cached.
	o.PushNotificationProcessor = nil
	o.ClientSideCache, o.ClientSideCacheConfig = nil, nil
	return redis.NewClient(&o)
}

// idleTime leaves a shorter time that the caller knows of, and 0 and less are go-redis' words for
// its default and for ever.
func idleTime(callers time.Duration) time.Duration {
	if callers > 0 {
		return min(callers, MaxIdleTime)
	}
	return MaxIdleTime
}

// FailoverAddr is what go-redis gives for the address of every client of a Sentinel.
const FailoverAddr = "FailoverClient"

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// inTime returns the Dialer, or go-redis' own if there is none, which then returns when its context
// ends, whether it looks at that or not: go-redis' own does not in a TLS handshake.
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
