package redlock

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/rediskit"
)

// Options are the settings of a Store. They must be the same on every host. The zero value is
// valid.
type Options struct {
	// Prefix is put before every key. At most 256 bytes of text without control characters and
	// without ":slot:". Default "".
	Prefix string
	// PoolSize is the number of connections that the store opens to each server. Default 10.
	PoolSize int
}

// Store implements driver.Store with Redlock. The package comment lists what it does not promise.
type Store struct {
	pools   []redsyncredis.Pool
	clients []redis.UniversalClient
	own     []redis.UniversalClient // clients that Close closes
	prefix  string
	fault   error
	closed  atomic.Bool

	hostClock func() time.Time // nil for time.Now
}

// New returns a store on three or more independent servers. Their number must be odd. They must not
// be replicas of each other or nodes of a Cluster. Their order does not matter. The caller keeps
// and closes the clients. New does not call the servers. Check reports faults; dlock.NewSession and
// timer.New call it.
func New(clients []redis.UniversalClient, opts Options) *Store {
	s := &Store{prefix: opts.Prefix}
	s.fault = check(clients, opts)
	if s.fault != nil {
		return s
	}
	for _, client := range clients {
		if pool := rediskit.OwnPool(client, cmp.Or(opts.PoolSize, rediskit.DefaultPoolSize)); pool != nil {
			s.own = append(s.own, pool)
			client = pool
		}
		s.clients = append(s.clients, client)
		s.pools = append(s.pools, goredis.NewPool(client))
	}
	return s
}

func check(clients []redis.UniversalClient, opts Options) error {
	faults := []error{checkServers(clients)}
	for _, err := range []error{rediskit.CheckPrefix(opts.Prefix), rediskit.CheckPoolSize(opts.PoolSize)} {
		if err != nil {
			faults = append(faults, fmt.Errorf("redlock: %w", err))
		}
	}
	return errors.Join(faults...)
}

func checkServers(clients []redis.UniversalClient) error {
	var faults []error
	if n := len(clients); n < 3 {
		faults = append(faults,
			fmt.Errorf("redlock: a quorum of %d: needs three servers or more, so that one can fail; for a single "+
				"server use redislock", n))
	} else if n%2 == 0 {
		faults = append(faults,
			fmt.Errorf("redlock: a quorum of %d: needs an odd number; the last one makes the majority larger and "+
				"lets no further server fail", n))
	}
	seen := make(map[string]int)
	for i, client := range clients {
		switch c := client.(type) {
		case nil:
			faults = append(faults, fmt.Errorf("redlock: client %d of the quorum is nil", i))
		case *redis.Client:
			if c == nil {
				faults = append(faults, fmt.Errorf("redlock: client %d of the quorum is nil", i))
				continue
			}
			addr := c.Options().Addr
			if addr == rediskit.FailoverAddr {
				faults = append(faults,
					fmt.Errorf("redlock: client %d of the quorum is one of Sentinel, whose votes may be lost in a "+
						"failover: pass a *redis.Client of one server each", i))
				continue
			}
			if first, twice := seen[addr]; twice {
				faults = append(faults,
					fmt.Errorf("redlock: clients %d and %d of the quorum are the same server, %s: its two votes "+
						"would be lost together", first, i, addr))
			}
			seen[addr] = i
		case *redis.ClusterClient, *redis.Ring:
			faults = append(faults,
				fmt.Errorf("redlock: client %d of the quorum is a %T: needs servers that are independent of each "+
					"other, a *redis.Client each", i, c))
		}
	}
	return errors.Join(faults...)
}

// Check implements driver.Checker. It returns the faults of the clients and options. All other
// methods return them, too.
func (s *Store) Check() error {
	switch {
	case s == nil || s.clients == nil && s.fault == nil:
		return fmt.Errorf("redlock: %w: an empty *Store: make one with New", driver.ErrSetup)
	case s.fault != nil:
		return fmt.Errorf("%w: %w", driver.ErrSetup, s.fault)
	case s.closed.Load():
		return errClosed
	}
	return nil
}

var errClosed = fmt.Errorf("redlock: %w", driver.ErrClosed)

// Close closes the connections that the store opened, never the clients passed to New. Call it
// after everything that uses the store has ended. Later calls return an error that matches
// driver.ErrClosed.
func (s *Store) Close() error {
	if s == nil || s.closed.Swap(true) {
		return nil
	}
	var errs []error
	for _, client := range s.own {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}

func (s *Store) String() string { return "redlock" }

func (s *Store) majority() int { return len(s.pools)/2 + 1 }

// base returns the key of a mutex, or the key of a slot without its number.
func (s *Store) base(name string, slots int) string {
	if slots == 0 {
		return s.prefix + name
	}
	return s.prefix + name + ":slot:"
}

func (s *Store) slotKey(name string, slots, slot int) string {
	if slots == 0 {
		return s.base(name, slots)
	}
	return s.base(name, slots) + strconv.Itoa(slot)
}

func (s *Store) slotKeys(name string, slots int) []string {
	if slots == 0 {
		return []string{s.base(name, slots)}
	}
	keys := make([]string, slots)
	for i := range keys {
		keys[i] = s.slotKey(name, slots, i)
	}
	return keys
}

// checkKey checks that a valid name makes a valid key with the prefix.
func (s *Store) checkKey(name string) error {
	if strings.Contains(s.prefix+name, ":slot:") {
		return fmt.Errorf(`redlock: prefix %q and name %q together have ":slot:" in them: choose another prefix`,
			s.prefix, name)
	}
	return nil
}
