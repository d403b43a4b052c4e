package driver

import (
	"context"
	"time"
)

// Capabilities are what a store can do beyond [Store]. A field is nil if the store does
// not implement that interface.
type Capabilities struct {
	Checker     Checker
	TTLBounder  TTLBounder
	SlotBounder SlotBounder
	Sharder     Sharder
	Auditor     Auditor
	Lister      Lister
	Enumerator  Enumerator
	Controller  Controller

	SharedLimiter SharedLimiter
	RateLimiter   RateLimiter
	Delayer       Delayer
}

// maxWrappers is how many wrappers CapabilitiesOf looks into.
const maxWrappers = 32

// CapabilitiesOf returns the optional interfaces that a store implements, itself or through the
// stores that it wraps. Call it instead of asserting interfaces: an assertion does not look into a
// wrapper.
//
// A wrapper may have a method Unwrap() Store. An interface that the wrapper does not
// implement itself is then taken from the store that Unwrap returns, and its calls bypass the
// wrapper. Wrappers may be nested up to 32 deep. A wrapper without Unwrap hides every interface
// that it does not implement.
func CapabilitiesOf(store Store) (c Capabilities) {
	for range maxWrappers + 1 {
		c.add(store)
		wrapper, ok := store.(interface{ Unwrap() Store })
		if !ok {
			break
		}
		if store = wrapper.Unwrap(); store == nil {
			break
		}
	}
	return c
}

// add sets the fields that are nil to the store, if it implements them.
func (c *Capabilities) add(store Store) {
	own(&c.Checker, store)
	own(&c.TTLBounder, store)
	own(&c.SlotBounder, store)
	own(&c.Sharder, store)
	own(&c.Auditor, store)
	own(&c.Lister, store)
	own(&c.Enumerator, store)
	own(&c.Controller, store)
	own(&c.SharedLimiter, store)
	own(&c.RateLimiter, store)
	own(&c.Delayer, store)
}

func own[C comparable](field *C, store Store) {
	var none C
	if c, ok := store.(C); ok && *field == none {
		*field = c
	}
}

// A Checker is a store that can find faults in its own settings without calling its server.
// dlock.NewSession returns the error.
type Checker interface {
	Check() error
}

// A TTLBounder is a store that accepts leases only up to a certain length. Without it a store must
// accept any TTL up to [MaxTTL].
type TTLBounder interface {
	MaxTTL() time.Duration
}

// A SlotBounder is a store whose records have a largest size, so it bears only so many leases of a
// semaphore at once. It still takes requests with up to [MaxSlots] slots, as long as fewer leases
// are held, and an acquire beyond that fails. Without it a store bears MaxSlots.
type SlotBounder interface {
	// MaxSlots returns how many leases of one semaphore may be held at once. It does not call the
	// server.
	MaxSlots() int
}

// A Sharder is a store of several servers, such as a Redis Cluster: each server keeps the leases of
// some names, and may hang while the others answer. A dlock.Session renews the leases of each shard
// by separate calls, so that no shard waits for another.
type Sharder interface {
	// Shard returns the server that keeps a name, as far as that is known without asking one. It
	// may change from call to call. "" means that it is not known, or that there is only one; a
	// panic counts as "". It must not block, because a dlock.Session calls it for each lease, and a
	// timer.Scheduler for each tick. They hold no mutex when they do.
	Shard(name string) string
}

// AuditNote begins a warning of an Auditor that people should see, although leases are safe.
const AuditNote = "note: "

// An Auditor is a store that can check its server for settings that endanger leases, such as a
// policy that evicts them. A timer.Scheduler logs the warnings when the store first answers, and
// when it answers again after an outage. A warning that begins with AuditNote endangers no lease.
type Auditor interface {
	Audit(ctx context.Context) (warnings []string, err error)
}

// A Lister is a store that can list its leases with their holders. Without it a caller can show
// only the leases of its own process.
type Lister interface {
	// List returns the leases of a semaphore (slots > 0) or mutex (slots == 0) that have not ended,
	// by slot.
	List(ctx context.Context, name string, slots int) ([]LeaseInfo, error)
}

// An Enumerator is a store that can list all its leases, of any names.
type Enumerator interface {
	// Enumerate returns a page of the leases under the store's prefix, or in its table, in no
	// particular order: those that are held, and those that were released within the last
	// ReleasedFor if their slot was not granted again. Each page takes one call of the server. A
	// page has about limit leases, or more if a name has many slots; it may be empty although
	// further pages follow. after is "" for the first page, and then the Next of the page before. A
	// lease that is granted or ends between two pages may be missing. limit is 1 to MaxPage. If the
	// store cannot enumerate its leases with its settings, the error matches errors.ErrUnsupported
	// and says why, and how to fix that.
	Enumerate(ctx context.Context, after string, limit int) (LeasePage, error)
}

const (
	// MaxPage is how many leases one call of Enumerate may ask for.
	MaxPage = 10_000
	// ReleasedFor is how long Enumerate returns a lease after its release.
	ReleasedFor = time.Minute
)

// A LeasePage is a page of leases.
type LeasePage struct {
	Leases []LeaseInfo
	Next   string // where the next page begins; "": this is the last
}

// A SharedLimiter is a store that can take slots of several semaphores in one atomic step: see
// Request.Shared.
type SharedLimiter interface {
	// CheckShared returns why the store cannot take these names in one step, and how to fix that;
	// nil: it can. On a Redis Cluster, for instance, their keys must be in one hash slot. It does
	// not call the server. TryAcquire checks the same.
	CheckShared(name string, shared ...string) error
}

// A RateLimiter is a SharedLimiter that can bound the starts of a semaphore: see
// SemaphoreSpec.Rate.
type RateLimiter interface {
	// CheckRate returns why the store cannot keep a rate with such a Per, and how to fix that; nil:
	// it can. A store cannot keep one if it may forget a start before it has ceased to count.
	// CheckRate does not call the server. TryAcquire checks the same.
	CheckRate(per time.Duration) error
}

// A Delayer is a store that keeps a fixed delay between leases of a name: see Tick.Delay.
type Delayer interface {
	// CheckDelay returns why the store cannot keep a delay, and how to fix that; nil: it can. A
	// store cannot keep a delay if it may forget the end of a lease before the delay is over.
	// CheckDelay does not call the server. TryAcquire checks the same.
	CheckDelay(time.Duration) error
}

// A LeaseInfo is a lease as a Lister or an Enumerator reports it.
type LeaseInfo struct {
	Name       string
	Mutex      bool // else it is a slot of a semaphore
	Slot       int
	Holder     Holder // of a lease that was released: who had it
	Fence      Fence
	HeldFor    time.Duration // how long ago it was granted
	RenewedAgo time.Duration // how long ago it was granted or extended last; 0: the store does not know
	ExpiresIn  time.Duration // how long until it ends unless extended; 0: it was released
	// ReleasedAgo is how long ago its holder released it; 0: it is held. Only an Enumerator reports
	// leases that were released, and of these it reports at least a microsecond.
	ReleasedAgo time.Duration
}
