package redislock

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// Quorum implements dlock.DistributedLock by Redlock: a lease is a key that a majority of independent Redis servers
// holds, so it outlives the loss of any minority of them. It stands on redsync, one mutex per slot, and makes
// fewer promises than Store does:
//
//   - Redlock is a lock by clocks. A server whose wall clock steps forward by more than is left of a lease ends it early.
//   - There is no quarantine. A server that restarts without its data votes again at once, and with it a majority may
//     grant what is still held. Start such a server only after the longest TTL has passed, or make it fsync always.
//     A heartbeat puts the keys of living leases back, so servers restarted one after the other, a heartbeat apart, end none.
//   - Fences are 0, refusals name no holder and no end (the keys have tokens in them and nothing else), there is
//     no listing, and hosts that declare different numbers of slots are not told of each other. Nobody is told that a slot was
//     abandoned, or when a name last succeeded: Info.SinceSuccess is 0.
//   - A tick is a mutex of its own. It is taken before the slot, and given back if there is none. A crash or a failure in between
//     loses one start of that tick; there is never one too many, unless a majority forgets: ticks are not put back.
//   - The clock of this host, not of a server, says that a tick is too far ahead, or late. Late means more than half
//     an hour ago; of two ticks younger than that, the older may start after the newer. Clocks must agree to 25 minutes.
//     Each start leaves a key for one hour.
//   - No tick was ever missed: the servers keep the ticks that were started, not which was the last. A claim of one as missed is refused (TickFirst).
//   - Nobody can pause a name, change its limit or revoke a lease: a Quorum is no dlock.Controller. A revocation says by its fence which lease
//     it means, and there are none; a limit that was lowered counts what is held in all slots, in one step with the grant, and no step spans two servers.
//   - The slots of a name are several mutexes, not one semaphore. When many hosts ask in the same instant, each may get some
//     votes and nobody a majority; they ask again after a random pause of milliseconds, ten times at most. In a long
//     crush a request may be refused as Full while a slot is free; never is one granted too many for it.
//   - While servers are away, a lease that has its majority only with them looks neither taken nor free. That is an error.
//   - It is dear, and outside the budgets: an acquire costs each server one MGET, and one or two scripts for each slot that looked free,
//     at most N a round; a heartbeat costs one script per lease and server. It is meant for some hundred leases per process.
//
// With two servers down out of three, or three out of five, every call is an error that is not ErrNotAcquired. For a server that
// hangs, each step of an acquire waits an eighth of the time that the call has; a heartbeat waits a quarter, once.
type Quorum struct {
	pools   []redsyncredis.Pool
	clients []redis.UniversalClient
	own     []redis.UniversalClient // those to be closed
	plain   Store                   // only names the keys
	fault   error

	hostClock func() time.Time // nil: time.Now
}

// QuorumOptions are the settings of a Quorum. They must be the same on every host. The zero value is fine.
type QuorumOptions struct {
	// Prefix stands before every key. Default "".
	Prefix string
	// PoolSize is the number of own connections to each server. Default 10.
	PoolSize int
}

// NewQuorum returns a store on an odd number of servers, three or more, that know nothing of each other: no
// replicas, no nodes of a Cluster. List them in the same order everywhere or not, that does not matter. The
// clients stay the caller's to close. No server is called. Faults are reported by Check, which
// dlock.NewSession and timer.New call.
func NewQuorum(clients ...redis.UniversalClient) *Quorum {
	return NewQuorumWithOptions(QuorumOptions{}, clients...)
}

// NewQuorumWithOptions is NewQuorum with settings.
func NewQuorumWithOptions(opts QuorumOptions, clients ...redis.UniversalClient) *Quorum {
	q := &Quorum{plain: Store{prefix: opts.Prefix}}
	q.fault = errors.Join(checkPrefix(opts.Prefix), checkPoolSize(opts.PoolSize), checkServers(clients))
	if q.fault != nil {
		return q
	}
	if opts.PoolSize == 0 {
		opts.PoolSize = defaultPoolSize
	}
	for _, client := range clients {
		if pool := ownPool(client, opts.PoolSize); pool != nil {
			q.own = append(q.own, pool)
			client = pool
		}
		q.clients = append(q.clients, client)
		q.pools = append(q.pools, goredis.NewPool(client))
	}
	return q
}

func checkPoolSize(size int) error {
	if size < 0 {
		return fmt.Errorf("redislock: PoolSize %d: must be positive, or 0 for %d", size, defaultPoolSize)
	}
	return nil
}

func checkServers(clients []redis.UniversalClient) error {
	var faults []error
	if n := len(clients); n < 3 {
		faults = append(faults, fmt.Errorf("redislock: a quorum of %d: needs three servers or more, so that one can fail; for a single server use New", n))
	} else if n%2 == 0 {
		faults = append(faults, fmt.Errorf("redislock: a quorum of %d: needs an odd number; the last one makes the majority larger and lets no further server fail", n))
	}
	seen := make(map[string]int)
	for i, client := range clients {
		switch c := client.(type) {
		case nil:
			faults = append(faults, fmt.Errorf("redislock: client %d of the quorum is nil", i))
		case *redis.Client:
			if c == nil {
				faults = append(faults, fmt.Errorf("redislock: client %d of the quorum is nil", i))
				continue
			}
			addr := c.Options().Addr
			if addr == failoverAddr {
				faults = append(faults, fmt.Errorf("redislock: client %d of the quorum is one of Sentinel, whose votes may be lost in a failover: pass a *redis.Client of one server each", i))
				continue
			}
			if first, twice := seen[addr]; twice {
				faults = append(faults, fmt.Errorf("redislock: clients %d and %d of the quorum are the same server, %s: its two votes would be lost together", first, i, addr))
			}
			seen[addr] = i
		case *redis.ClusterClient, *redis.Ring:
			faults = append(faults, fmt.Errorf("redislock: client %d of the quorum is a %T: needs servers that are independent of each other, a *redis.Client each", i, c))
		}
	}
	return errors.Join(faults...)
}

// Check implements dlock.Checker: it returns the faults of the clients and options.
func (q *Quorum) Check() error { return q.fault }

// Close closes the store's own connections, never the clients it was made from.
func (q *Quorum) Close() error {
	var errs []error
	for _, client := range q.own {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}

func (q *Quorum) String() string { return "redis-quorum" }

func (q *Quorum) majority() int { return len(q.pools)/2 + 1 }

func (q *Quorum) slotKey(name string, slots, slot int) string {
	base := q.plain.keys(name, slots == 0).base
	if slots == 0 {
		return base
	}
	return base + strconv.Itoa(slot)
}

func (q *Quorum) slotKeys(name string, slots int) []string {
	base := q.plain.keys(name, slots == 0).base
	if slots == 0 {
		return []string{base}
	}
	keys := make([]string, slots)
	for i := range keys {
		keys[i] = base + strconv.Itoa(i)
	}
	return keys
}
