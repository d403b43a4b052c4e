package cluster

import (
	"strings"
	"sync"
	"time"

	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/lifecycle"
)

// The kinds of leases that KindOf knows. A Kind function of your own may return others.
const (
	KindTimer   = "timer"   // a slot of a timer
	KindLimit   = "limit"   // a slot of a limit that timers share
	KindLeader  = "leader"  // a term of a role
	KindOutbox  = "outbox"  // a relay of an outbox
	KindDurable = "durable" // a durable run
	KindHost    = "host"    // a scheduler that competes for slots
	KindProbe   = "probe"   // a scheduler's test whether the store grants
	KindTrigger = "trigger" // triggers of a timer that wait
)

// timerPrefix begins the name of a timer's lock.
const timerPrefix = "timer:"

var kindPrefixes = []struct{ prefix, kind string }{
	{timerPrefix, KindTimer}, {"limit:", KindLimit}, {"leader:", KindLeader}, {"outbox:", KindOutbox},
	{"durable:", KindDurable}, {"tickslot:hosts", KindHost}, {"tickslot:probe:", KindProbe},
	{"tickslot:trigger:", KindTrigger},
}

// KindOf returns the kind of a lock by the prefix of its name: "timer" for "timer:report". It
// returns "" for a name with none of the prefixes.
func KindOf(lock string) string {
	for _, p := range kindPrefixes {
		if strings.HasPrefix(lock, p.prefix) {
			return p.kind
		}
	}
	return ""
}

// frequent reports whether leases of a kind come and go so often that their events would push out
// all others. Timers have the history of their runs instead.
func frequent(kind string) bool {
	switch kind {
	case KindTimer, KindLimit, KindHost, KindProbe, KindTrigger:
		return true
	}
	return false
}

const (
	maxKindLen  = 64
	maxKinds    = 10_000 // names that are remembered: names may be made of data
	kindTimeout = 10 * time.Millisecond
	kindWarning = "cluster: Config.Kind failed, so KindOf is used for this lock; further failures are not logged"
)

// kinds finds the kinds of locks. It never calls the user's function while a lock is acquired or
// released, and uses KindOf if the function panics or does not return in time. It remembers the
// kinds of up to maxKinds names; after that it forgets all, and asks the function again.
type kinds struct {
	user func(name string) string // nil: KindOf
	warn func(line string, args ...any)

	mu      sync.Mutex // of all callers
	known   map[string]string
	calling bool // the function was called and has not returned
	warned  sync.Once
}

func (k *kinds) of(name string) string {
	if k.user == nil {
		return KindOf(name)
	}
	k.mu.Lock()
	kind, ok := k.known[name]
	if ok || k.calling {
		k.mu.Unlock()
		if !ok {
			kind = KindOf(name)
		}
		return kind
	}
	k.calling = true
	k.mu.Unlock()

	answered := guard.Go("Kind function", func() error {
		defer func() {
			k.mu.Lock()
			k.calling = false
			k.mu.Unlock()
		}()
		kind = clean(k.user(name), maxKindLen)
		return nil
	})
	switch err, ok := lifecycle.Await(answered, kindTimeout); {
	case !ok:
		k.warnOnce("lock", name, "took", "longer than "+kindTimeout.String())
	case err != nil:
		k.warnOnce("lock", name, "err", err)
	default:
		return k.remember(name, kind)
	}
	return k.remember(name, KindOf(name))
}

// warnOnce logs the first failure only: names may be made of data.
func (k *kinds) warnOnce(args ...any) { k.warned.Do(func() { k.warn(kindWarning, args...) }) }

func (k *kinds) remember(name, kind string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known == nil || len(k.known) >= maxKinds {
		k.known = map[string]string{}
	}
	k.known[name] = kind
	return kind
}
