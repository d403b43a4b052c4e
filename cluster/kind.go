package cluster

import (
	"strings"
	"sync"
	"time"

	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/lifecycle"
)

// The kinds that KindOf returns. Config.Kind may return others.
const (
	KindTimer   = "timer"   // a slot of a timer
	KindLimit   = "limit"   // a slot of a limit that timers share
	KindLeader  = "leader"  // a leadership term of a role
	KindOutbox  = "outbox"  // a relay of an outbox
	KindDurable = "durable" // a durable run
	KindHost    = "host"    // a scheduler that competes for slots
	KindProbe   = "probe"   // a scheduler's test of whether the store grants locks
	KindTrigger = "trigger" // pending triggers of a timer
)

// timerPrefix is the prefix of the lock names of timers.
const timerPrefix = "timer:"

var kindPrefixes = []struct{ prefix, kind string }{
	{timerPrefix, KindTimer}, {"limit:", KindLimit}, {"leader:", KindLeader}, {"outbox:", KindOutbox},
	{"durable:", KindDurable}, {"tickslot:hosts", KindHost}, {"tickslot:probe:", KindProbe},
	{"tickslot:trigger:", KindTrigger},
}

// KindOf derives the kind of a lock from the prefix of its name: "timer" for "timer:report". It
// returns "" for a name without a known prefix.
func KindOf(lock string) string {
	for _, p := range kindPrefixes {
		if strings.HasPrefix(lock, p.prefix) {
			return p.kind
		}
	}
	return ""
}

// frequent reports whether leases of a kind are acquired so often that their events would displace
// all others. The history of a timer is in its runs.
func frequent(kind string) bool {
	switch kind {
	case KindTimer, KindLimit, KindHost, KindProbe, KindTrigger:
		return true
	}
	return false
}

const (
	maxKindLen  = 64
	maxKinds    = 10_000 // limit of remembered names, which may contain data
	kindTimeout = 10 * time.Millisecond
	kindWarning = "cluster: Config.Kind failed, so KindOf is used for this lock; further failures are not logged"
)

// kinds determines the kinds of locks. It never calls the user's function during an acquire or
// release, and falls back to KindOf if the function panics or is too slow. It remembers the kinds
// of up to maxKinds names. When that limit is exceeded, it clears them all.
type kinds struct {
	user func(name string) string // nil if only KindOf is used
	warn func(line string, args ...any)

	mu      sync.Mutex // used by all callers
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

// warnOnce logs only the first failure, because there may be very many names.
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
