package redislock

import (
	"fmt"
	"strings"
)

// KeyForm is how the keys of one name are kept together.
type KeyForm uint8

const (
	// Auto is Tagged for a *redis.ClusterClient and Plain for everything else.
	KeysAuto KeyForm = iota
	// Plain is shop:timer:orders:slot:0.
	KeysPlain
	// Tagged is {shop:timer:orders}:slot:0: the part in braces decides on which node of a Cluster the key lives.
	KeysTagged
)

// keys are the keys of one semaphore or mutex.
type keys struct {
	base  string // the key of slot i is base + i; of a mutex, base
	state string
	index string // of a semaphore; its tokens, too, are the scripts' own affair
	other string // state in the other form
}

// dlock.CheckName refuses ":slot:" in names, so no key of one name can be a key of another.
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
	return keys{base: b + ":slot:", state: s.state(name, mutex), index: b + ":slot:index", other: other + semaphoreState}
}

const (
	mutexState     = ":slot:mutex"
	semaphoreState = ":slot:state"
)

// state is the key of the state alone, from which the scripts know the others.
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

// note is the key at which it is noted when the server began, or "" if that is in the state of each name: see acquire.lua. No name is empty, so it
// is no key of a name.
func (s *Store) note() string {
	if s.tagged {
		return ""
	}
	return s.prefix + ":slot:server"
}

// form is what the scripts call the form of the keys.
func (s *Store) form() string {
	if s.tagged {
		return "tagged"
	}
	return "plain"
}

// checkKey finds what is wrong with a name that is fine by itself, once the prefix stands before it.
func (s *Store) checkKey(name string) error {
	if strings.Contains(s.prefix+name, ":slot:") {
		return fmt.Errorf(`redislock: prefix %q and name %q together have ":slot:" in them: choose another prefix`, s.prefix, name)
	}
	if s.tagged && strings.HasPrefix(s.prefix+name, "}") {
		return fmt.Errorf("redislock: the name %q begins with a brace, which would spread its keys over the Cluster: set a Prefix", name)
	}
	return nil
}
