package redislock

import (
	"fmt"
	"strings"
	"time"
)

// KeyForm is the form of a store's keys.
type KeyForm uint8

const (
	// KeysAuto selects KeysTagged for a *redis.ClusterClient and KeysPlain for any other client.
	KeysAuto KeyForm = iota
	// KeysPlain has keys such as shop:timer:orders:slot:0.
	KeysPlain
	// KeysTagged has keys such as {shop:timer:orders}:slot:0. The part in braces determines a key's
	// node on a Cluster.
	KeysTagged
)

// keys are the keys of one semaphore or mutex.
type keys struct {
	base  string // key of a mutex; for slot i, the key is base + i
	state string
	index string // for a semaphore; only the scripts know the key of its tokens
	other string // state key in the other form
}

// keys returns the keys of a name. No two names have a common key, because driver.CheckName refuses
// ":slot:" in names.
func (s *Store) keys(name string, mutex bool) keys {
	plain := s.prefix + name
	tagged := "{" + plain + "}"
	b, other := plain, tagged
	if s.tagged {
		b, other = tagged, plain
	}
	if mutex {
		return keys{base: b, state: s.state(name, mutex), other: other + mutexState}
	}
	return keys{base: b + ":slot:", state: s.state(name, mutex), index: b + ":slot:index",
		other: other + semaphoreState}
}

const (
	mutexState     = ":slot:mutex"
	semaphoreState = ":slot:state"
)

// state returns the key of the state. The scripts derive the other keys from it.
func (s *Store) state(name string, mutex bool) string {
	suffix := semaphoreState
	if mutex {
		suffix = mutexState
	}
	if s.tagged {
		return "{" + s.prefix + name + "}" + suffix
	}
	return s.prefix + name + suffix
}

// serverKey returns the key that records the current run of the server. It is "" if the state of
// each name records the run instead: see acquire.lua. The key cannot belong to a name, because no
// name is empty.
func (s *Store) serverKey() string {
	if s.tagged {
		return ""
	}
	return s.prefix + ":slot:server"
}

// sharedKeys returns the prefix of the keys that all names share, for enlist.lua. It is "" if names
// are on different nodes of a Cluster and so cannot share keys.
func (s *Store) sharedKeys() string {
	switch {
	case !s.tagged:
		return s.prefix + ":slot:"
	case strings.Contains(s.prefix, "}"): // the prefix has a hash tag
		return "{" + s.prefix + "}:slot:"
	default:
		return ""
	}
}

// form returns the scripts' name of the form.
func (s *Store) form() string {
	if s.tagged {
		return "tagged"
	}
	return "plain"
}

// CheckRate implements driver.RateLimiter. A server that restarted may have forgotten starts within
// the last Per. It grants nothing with a rate until such starts would no longer count.
func (s *Store) CheckRate(time.Duration) error { return s.Check() }

// CheckDelay implements driver.Delayer.
func (s *Store) CheckDelay(time.Duration) error { return s.Check() }

// CheckShared implements driver.SharedLimiter. On a Cluster, one step reaches only the keys of one
// hash slot, so all names must be in one slot. A Prefix with a hash tag ensures this.
func (s *Store) CheckShared(name string, shared ...string) error {
	if err := s.Check(); err != nil {
		return err
	}
	for _, n := range append([]string{name}, shared...) {
		if err := s.checkKey(n); err != nil {
			return err
		}
		if s.tag(n) != s.tag(name) {
			return fmt.Errorf("redislock: the keys of %q and %q are in different hash slots of the Cluster, so they "+
				"cannot be taken in one step: put braces into Options.Prefix, as in {shop}:, which keeps all names "+
				"with that prefix on one node", name, n)
		}
	}
	return nil
}

// tag returns the part of a name's keys that determines their hash slot. It is "" if there is one
// server.
func (s *Store) tag(name string) string {
	if !s.tagged {
		return ""
	}
	tag, _, _ := strings.Cut(s.prefix+name, "}")
	return tag
}

// checkKey checks that a valid name makes a valid key with the prefix.
func (s *Store) checkKey(name string) error {
	if strings.Contains(s.prefix+name, ":slot:") {
		return fmt.Errorf(`redislock: prefix %q and name %q together have ":slot:" in them: choose another prefix`,
			s.prefix, name)
	}
	if s.tagged && strings.HasPrefix(s.prefix+name, "}") {
		return fmt.Errorf("redislock: the name %q begins with a brace, which would spread its keys over the Cluster: "+
			"set a Prefix", name)
	}
	return nil
}
