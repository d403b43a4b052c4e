// Package redisservice assembles a service.Service on Redis: locks, timers, the registry, the page,
// probes and metrics. It has neither durable runs nor an outbox, because these belong in the
// application's database.
//
//	svc, err := redisservice.New(client, service.Config{Name: "billing"}, timers...)
//	…
//	return svc.Run(ctx, tickslot.Server(server))
package redisservice

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/cluster/redisregistry"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/service"
	"github.com/tickslot/tickslot/timer"
)

// New assembles a service on the server of client: a *redis.Client (redis.NewFailoverClient also
// returns one) or a *redis.ClusterClient. It returns every fault of the settings, and does not call
// the server. You remain the owner of client: close it after Run has returned. If Config.Name is
// set, every key begins with it and a colon. Config.Schema must be "".
//
// If you need options of redislock, such as Embedded for a server within a test process, call
// service.New with your own stores.
func New(client redis.UniversalClient, config service.Config, timers ...timer.Timer) (*service.Service, error) {
	if config.Schema != "" {
		return nil, fmt.Errorf("redisservice: Config.Schema: %.60q: Redis has none", config.Schema)
	}
	prefix := config.Name
	if prefix != "" {
		prefix += ":"
	}
	return service.New(service.Stores{
		Locks:    redislock.New(client, redislock.Options{Prefix: prefix}),
		Registry: redisregistry.New(client, redisregistry.Options{Prefix: prefix}),
	}, config, timers...)
}
