//go:build linux && amd64

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/proof/redistest"
)

// watched is the number of leases watched while a node hangs.
const watched = 60

// nodeStop makes a master and its replica hang, so that no node takes over, and checks whether
// leases on other nodes were lost.
func (c *clusterStore) nodeStop(master *redistest.Server, length time.Duration) (err error) {
	d, err := open(c.spec(nil), c.timing())
	if err != nil {
		return err
	}
	defer d.close()
	session, err := dlock.NewSession(d.lock, dlock.SessionOptions{TTL: c.timing().TTL,
		StoreTimeout: c.timing().StoreTimeout})
	if err != nil {
		return err
	}
	defer session.Close(context.Background())
	leases, errs := make([]*dlock.Lease, watched), make([]error, watched)
	var all sync.WaitGroup
	defer func() {
		for _, l := range leases {
			if l != nil {
				all.Go(func() { _ = l.Release(context.Background()) })
			}
		}
		all.Wait()
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for i := range watched { // after a failover, each name waits for a quarantine
		all.Go(func() { leases[i], errs[i] = session.Mutex(fmt.Sprintf("watched-%d", i)).Acquire(ctx) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	stopped := []*redistest.Server{master}
	_, replicas := c.roles()
	for _, r := range replicas {
		info, err := r.Client().Info(ctx, "replication").Result()
		if err != nil {
			return err
		}
		if strings.Contains(info, fmt.Sprintf("master_port:%d\r", master.Port())) {
			stopped = append(stopped, r)
		}
	}
	shards := d.lock.(driver.Sharder)
	for _, server := range stopped {
		if err := server.Pause(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Resume()) }()
	}
	time.Sleep(length)
	lost := 0
	var why error
	for _, l := range leases {
		if shards.Shard(l.Name()) != master.Addr() && !l.Valid() {
			lost++
			why = l.Err()
		}
	}
	if lost > 0 {
		return fmt.Errorf("%d of %d leases were lost on nodes that did not hang: %w", lost, watched, why)
	}
	return nil
}
