package redislock

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// defaultPoolSize is enough because a call lasts as long as a round trip: ten connections make tens
// of thousands of calls a second.
const defaultPoolSize = 10

// lastResort bounds a call whose context has no deadline. A dlock.Session always sets one.
const lastResort = 5 * time.Second

// ownPool opens a pool to the same server or servers, whose waits end with the deadline of each call. It
// returns nil for a client whose settings cannot be read.
func ownPool(client redis.UniversalClient, size int) redis.UniversalClient {
	switch c := client.(type) {
	case *redis.Client:
		// A Sentinel client is a *redis.Client, too: its Dialer asks the sentinels for the master.
		o := *c.Options()
		o.ContextTimeoutEnabled = true
		o.MaxRetries = -1   // a repeated call may be a second call: dlock repeats with the same token
		o.DialerRetries = 1 // or a refused connection takes seconds
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = lastResort, lastResort, lastResort, lastResort
		o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = size, 0, 0, 0
		o.MaxConcurrentDials = 0
		o.PipelinePoolSize = 1 // heartbeats have a connection apart, or use one of the others
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		o.Limiter = nil
		return redis.NewClient(&o)
	case *redis.ClusterClient:
		o := *c.Options()
		o.ContextTimeoutEnabled = true
		o.MaxRetries = -1
		o.MaxRedirects = 3 // MOVED and ASK; each is the same token again
		o.DialerRetries = 1
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = lastResort, lastResort, lastResort, lastResort
		o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = size, 0, 0, 0
		o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
		o.ClusterStateReloadInterval = time.Second // the default leaves a dead master in the map for a minute
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		return redis.NewClusterClient(&o)
	default:
		return nil
	}
}
