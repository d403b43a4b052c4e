package stores

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/tickslot/tickslot/cluster/redisregistry"
	"github.com/tickslot/tickslot/dlock/redislock"
)

const lockConns = 2 // for the locks, per server

// openRedis opens a single server, a master named by Sentinels, or a Cluster. The URL accepts the
// parameters of go-redis, and a few for Sentinels.
func (s *Store) openRedis(o Options) error {
	logging.Disable() // go-redis would print a line for each failed dial
	locks := redislock.Options{Prefix: o.Prefix, PoolSize: lockConns}
	if o.Tagged {
		locks.Keys = redislock.KeysTagged
	}
	scheme, _, _ := strings.Cut(o.URL, "://")
	var err error
	var store *redislock.Store
	switch {
	case strings.HasSuffix(scheme, "-sentinel"):
		store, err = s.openSentinel(o.URL, locks)
	case strings.HasSuffix(scheme, "-cluster"):
		store, err = s.openCluster(o.URL, locks)
	default:
		store, err = s.openServer(o.URL, locks)
	}
	if errors.Is(err, errUnchecked) || errors.Is(err, errNoTLS) {
		return err
	}
	if err != nil {
		return errBadURL
	}
	prefix := o.Prefix
	if o.RegistryPrefix != nil {
		prefix = *o.RegistryPrefix
	}
	registry := redisregistry.New(s.Redis, redisregistry.Options{Prefix: prefix})
	s.closers = append(s.closers, s.Redis.Close, store.Close, registry.Close)
	s.Kind, s.Locks, s.Registry = "redis", store, registry
	return nil
}

func (s *Store) openServer(address string, locks redislock.Options) (*redislock.Store, error) {
	options, err := redis.ParseURL(address)
	if err != nil {
		return nil, err
	}
	if err := s.trust(options.TLSConfig); err != nil {
		return nil, err
	}
	s.keepSecret(options.Password)
	options.DialTimeout = dialTimeout
	options.MaxRetries, options.DialerRetries = -1, 1 // the caller retries
	s.Name, s.Redis = "Redis "+options.Addr, redis.NewClient(options)
	return redislock.New(s.Redis, locks), nil
}

func (s *Store) openSentinel(address string, locks redislock.Options) (*redislock.Store, error) {
	u, others, err := several(address, "26379")
	if err != nil {
		return nil, err
	}
	// go-redis puts the user and password of the Sentinels before the host.
	password, _ := u.User.Password()
	query := u.Query()
	master := query.Get("master")
	query.Set("master_name", master)
	query.Set("username", u.User.Username())
	query.Set("password", password)
	u.User = url.UserPassword(query.Get("sentinel_username"), query.Get("sentinel_password"))
	for _, own := range []string{"master", "sentinel_username", "sentinel_password"} {
		query.Del(own)
	}
	query["addr"] = others
	u.RawQuery = query.Encode()
	options, err := redis.ParseFailoverURL(u.String())
	if err != nil || master == "" {
		return nil, errBadURL
	}
	if err := s.trust(options.TLSConfig); err != nil {
		return nil, err
	}
	s.keepSecret(options.Password)
	s.keepSecret(options.SentinelPassword)
	options.RouteByLatency, options.RouteRandomly, options.ReplicaOnly = false, false, false
	options.DialTimeout = dialTimeout
	options.MaxRetries, options.DialerRetries = -1, 1
	s.Name = "Redis " + master + " of " + strings.Join(options.SentinelAddrs, ", ")
	s.Redis = redis.NewFailoverClient(options)
	return redislock.NewFailover(options, locks), nil
}

func (s *Store) openCluster(address string, locks redislock.Options) (*redislock.Store, error) {
	u, others, err := several(address, "6379")
	if err != nil {
		return nil, err
	}
	query := u.Query()
	query["addr"] = others
	u.RawQuery = query.Encode()
	options, err := redis.ParseClusterURL(u.String())
	if err != nil || strings.Trim(u.Path, "/") != "" { // a Cluster has no numbered databases
		return nil, errBadURL
	}
	if err := s.trust(options.TLSConfig); err != nil {
		return nil, err
	}
	s.keepSecret(options.Password)
	options.ReadOnly, options.RouteByLatency, options.RouteRandomly = false, false, false
	options.DialTimeout = dialTimeout
	options.MaxRetries, options.DialerRetries = -1, 1
	s.Name, s.Redis = "Redis Cluster "+strings.Join(options.Addrs, ", "), redis.NewClusterClient(options)
	return redislock.New(s.Redis, locks), nil
}

// several reads a URL with several hosts, separated by commas:
// rediss-cluster://user:password@one:6379,two:6379. It returns the URL of the first host, with a
// scheme that go-redis knows, and the other hosts.
func several(address, port string) (first *url.URL, others []string, err error) {
	scheme, rest, _ := strings.Cut(address, "://")
	scheme, _, _ = strings.Cut(scheme, "-")
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	// A password can contain such a character only in escaped form.
	hosts := rest[strings.LastIndex(rest[:end], "@")+1 : end]
	for i, host := range strings.Split(hosts, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		if strings.HasPrefix(host, ":") {
			return nil, nil, errBadURL
		}
		if i > 0 {
			others = append(others, host)
			continue
		}
		first, err = url.Parse(scheme + "://" + rest[:end-len(hosts)] + host + rest[end:])
		if err != nil {
			return nil, nil, errBadURL
		}
	}
	return first, others, nil
}

// pingRedis makes one round trip to the server, or to all masters of a Cluster in parallel.
func pingRedis(ctx context.Context, client redis.UniversalClient) error {
	ping := func(ctx context.Context, server redis.Cmdable) error {
		err := server.Ping(ctx).Err()
		if redis.HasErrorPrefix(err, "NOPERM") { // also an answer: no host needs PING
			return nil
		}
		return err
	}
	if c, ok := client.(*redis.ClusterClient); ok {
		return c.ForEachMaster(ctx, func(ctx context.Context, server *redis.Client) error { return ping(ctx, server) })
	}
	return ping(ctx, client)
}

// A RedisServer is what a Redis server reports about itself.
type RedisServer struct {
	Name   string            // its address
	Config map[string]string // the settings that the user may read with CONFIG GET
	info   map[string]string
}

// Info returns a field of INFO, or "" if it does not exist.
func (r RedisServer) Info(field string) string { return r.info[field] }

// Number returns a numeric field of INFO, or 0 if it is not a number.
func (r RedisServer) Number(field string) int64 {
	n, _ := strconv.ParseInt(r.info[field], 10, 64)
	return n
}

// RedisServers asks the masters for INFO, and for settings that are not part of INFO.
func (s *Store) RedisServers(ctx context.Context) ([]RedisServer, error) {
	var mu sync.Mutex
	var servers []RedisServer
	ask := func(ctx context.Context, server redis.Cmdable, name string) error {
		text, err := server.Info(ctx).Result()
		if err != nil {
			return err
		}
		r := RedisServer{Name: name, Config: map[string]string{}, info: map[string]string{}}
		for line := range strings.Lines(text) {
			field, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			r.info[field] = value
		}
		for _, setting := range []string{"appendfsync", "min-replicas-to-write"} {
			config, _ := server.ConfigGet(ctx, setting).Result() // nil if the user may not read it
			maps.Copy(r.Config, config)
		}
		mu.Lock()
		defer mu.Unlock()
		servers = append(servers, r)
		return nil
	}
	var err error
	if c, ok := s.Redis.(*redis.ClusterClient); ok {
		err = c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return ask(ctx, node, node.Options().Addr)
		})
	} else {
		err = ask(ctx, s.Redis, "")
	}
	slices.SortFunc(servers, func(a, b RedisServer) int { return strings.Compare(a.Name, b.Name) })
	return servers, err
}
