package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
)

// hosts measures the server's CPU time per attempt when this many hosts try the same ticks of one
// timer.
func (l *lab) hosts(n int) Group {
	const slots = 5
	return Group{
		Name: fmt.Sprintf("%d hosts, one timer, N=5", n), Unit: "µs CPU of Redis per attempt", Less: true,
		Window: 300 * time.Millisecond, Begin: l.redis.flush, Plot: "hosts",
		Cases: []Case{
			{Name: "tickslot", Open: func() (runner, error) { return l.oursOnHosts(n, slots) }},
			{Name: "naive loop", Open: func() (runner, error) {
				loop, err := naiveLoop{slots: slots, names: shared("hosts")}.on(l.redis, n)
				if err != nil {
					return nil, err
				}
				return &crowd{cycles: loop, redis: l.redis, hosts: n}, nil
			}},
		},
	}
}

// oursOnHosts gives each host its own store and session.
func (l *lab) oursOnHosts(n, slots int) (runner, error) {
	const name = "timer:hosts"
	if err := l.redis.known(slots, name); err != nil {
		return nil, err
	}
	c := &cycles{proof: l.redis.commands()}
	semaphores := make([]dlock.Semaphore, n)
	for h := range semaphores {
		store := redislock.New(l.redis.admin, redislock.Options{QuarantineTTL: longest, PoolSize: 2})
		session, err := dlock.NewSession(store, dlock.SessionOptions{})
		if err != nil {
			return nil, err
		}
		semaphores[h] = session.Semaphore(name, slots)
		c.stop = append(c.stop, store.Close, func() error { return session.Close(ctx) })
	}
	p := &crowd{cycles: c, redis: l.redis, hosts: n}
	c.take = func(h int) (func() error, error) {
		lease, err := semaphores[h].TryAcquireTick(ctx, driver.Tick{At: p.tick, Max: slots})
		if errors.Is(err, dlock.ErrNotAcquired) {
			return nil, errBusy
		}
		if err != nil {
			return nil, err
		}
		return func() error { return lease.Release(ctx) }, nil
	}
	return p, nil
}

// A crowd of hosts tries the same tick at the same time, repeatedly. Each run lasts until all hosts
// have tried.
type crowd struct {
	*cycles
	redis *redisServer
	hosts int
	tick  time.Time
}

func (c *crowd) measure(window time.Duration) (sample, error) {
	used, err := c.redis.cpu()
	if err != nil {
		return sample{}, err
	}
	before, err := c.proof.count()
	if err != nil {
		return sample{}, err
	}
	attempts := 0
	for began := time.Now(); time.Since(began) < window; {
		c.tick = time.Now()
		if _, _, err := c.atOnce(c.hosts); err != nil {
			return sample{}, err
		}
		attempts += c.hosts
	}
	usedNow, err := c.redis.cpu()
	if err != nil {
		return sample{}, err
	}
	after, err := c.proof.count()
	if err != nil {
		return sample{}, err
	}
	if grown := after - before; grown < float64(attempts) {
		return sample{}, fmt.Errorf("it counted %d attempts, but the server knows of %.0f commands", attempts, grown)
	}
	return sample{Value: (usedNow - used) * 1e6 / float64(attempts), Did: float64(attempts)}, nil
}
