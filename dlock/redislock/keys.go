package redislock

import (
	"fmt"
	"strings"
	"time"
)

// KeyForm is the form of a store's keys.
type KeyForm uint8

const (
	// KeysAuto is KeysTagged for a *redis.ClusterClient and KeysPlain for any other client.
	KeysAuto KeyForm = iota
	// KeysPlain is shop:timer:orders:slot:0.
	KeysPlain
	// KeysTagged is {shop:timer:orders}:slot:0: the part in braces decides on which node of a
	// Cluster a key is.
	KeysTagged
)

// keys are the keys of one semaphore or mutex.
type keys struct {
	base  string // the key of slot i is base + i; of a mutex, base
	state string
	index string // of a semaphore; only the scripts know the key of its tokens
	other string // state in the other form
}

// keys returns the keys of a name. None is a key of another name, because driver.CheckName refuses
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

// state returns the key of the state, from which the scripts derive the others.
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

// serverKey returns the key that records which run of the server this is, or "" if that is recorded
// in the state of each name instead: see acquire.lua. The key cannot belong to a name, because no
// name is empty.
func (s *Store) serverKey() string {
	if s.tagged {
		return ""
	}
	return s.prefix + ":slot:server"
}

// sharedKeys returns the prefix of the keys that all names share, for enlist.lua. It is "" if there
// are no such keys, because names are on different nodes of a Cluster.
func (s *Store) sharedKeys() string {
	switch {
	case !s.tagged:
		return s.prefix + ":slot:"
	case strings.Contains(s.prefix, "}"): // it has a hash tag
		return "{" + s.prefix + "}:slot:"
	default:
		return ""
	}
}

// form returns the name of the form in the scripts.
func (s *Store) form() string {
	if s.tagged {
		return "tagged"
	}
	return "plain"
}

// CheckRate implements driver.RateLimiter. A server that restarted may have forgotten the starts of
// the last Per. Until they no longer count, it grants nothing that has a rate.
func (s *Store) CheckRate(time.Duration) error { return s.Check() }

// CheckDelay implements driver.Delayer.
func (s *Store) CheckDelay(time.Duration) error { return s.Check() }

// CheckShared implements driver.SharedLimiter. On a Cluster one step reaches the keys of one hash
// slot only, so the names must share one, as they do if the Prefix has a hash tag.
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

// tag returns the part of a name's keys that decides on their hash slot; "": there is one server.
func (s *Store) tag(name string) string {
	if !s.tagged {
		return ""
	}
	tag, _, _ := strings.Cut(s.prefix+name, "}")
	return tag
}

// checkKey checks a valid name together with the prefix.
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
