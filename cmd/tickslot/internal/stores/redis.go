package stores

import (
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/tickslot/tickslot/cluster/redisregistry"
	"github.com/tickslot/tickslot/dlock/redislock"
)

func (s *Store) openRedis(o Options) error {
	logging.Disable() // go-redis would print a line for each connection that cannot be opened
	options, err := redis.ParseURL(o.URL)
	if err != nil {
		return errBadURL
	}
	options.DialTimeout = dialTimeout
	options.MaxRetries, options.DialerRetries = -1, 1 // who waits for an answer tries again
	s.keepSecret(options.Password)
	s.Kind, s.Name, s.Redis = "redis", "Redis "+options.Addr, redis.NewClient(options)
	locks := redislock.New(s.Redis, redislock.Options{Prefix: o.Prefix, PoolSize: 2})
	prefix := o.Prefix
	if o.RegistryPrefix != nil {
		prefix = *o.RegistryPrefix
	}
	registry := redisregistry.New(s.Redis, redisregistry.Options{Prefix: prefix})
	s.closers = append(s.closers, s.Redis.Close, locks.Close, registry.Close)
	s.Locks, s.Registry = locks, registry
	return nil
}
