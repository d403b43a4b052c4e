package redislock

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/internal/rediskit"
)

// Audit implements driver.Auditor. It warns about an eviction policy that can remove leases, a
// server that keeps no data over a restart, replicas that lag or that the master does not wait for,
// and clocks that differ by more than a second. It calls TIME, INFO and CONFIG GET, which do not
// block other clients, and reports commands that the user may not call.
func (s *Store) Audit(ctx context.Context) ([]string, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	forgetful := fmt.Sprintf("a restart forgets every lease and every tick, nothing is granted for %v then, "+
		"and a tick that was started may start again", s.quarantine)
	if s.noQuarantine {
		forgetful = "a restart forgets every lease and every tick, " +
			"and what others hold is granted at once (NoQuarantine)"
	}
	a := rediskit.Audit{Now: s.hostClock, Embedded: s.quarantine == 0, Blind: s.noQuarantine, Forgetful: forgetful}
	var err error
	if c, ok := s.client.(*redis.ClusterClient); ok {
		err = c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return a.Look(ctx, node, node.Options().Addr+": ")
		})
	} else {
		err = a.Look(ctx, s.client, "")
	}
	return a.Warnings(), err
}
