package driver

import (
	"context"
	"time"
)

// Capabilities holds the optional interfaces of a store, beyond [Store]. A field is nil if the
// store does not implement that interface.
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

// maxWrappers is how many nested wrappers CapabilitiesOf unwraps.
const maxWrappers = 32

// CapabilitiesOf returns the optional interfaces that a store implements, either itself or through
// the stores that it wraps. Call it instead of a type assertion, which does not look into a
// wrapper.
//
// A wrapper may have a method Unwrap() Store. CapabilitiesOf then takes each interface that the
// wrapper does not implement from the store that Unwrap returns, and calls to that interface bypass
// the wrapper. Wrappers may be nested up to 32 deep. A wrapper without Unwrap hides every interface
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

// add sets each nil field whose interface the store implements.
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

// A Checker is a store that can validate its own settings without calling its server.
// dlock.NewSession returns the error.
type Checker interface {
	Check() error
}

// A TTLBounder is a store with a maximum lease length. Any other store must accept all TTLs up to
// [MaxTTL].
type TTLBounder interface {
	MaxTTL() time.Duration
}

// A SlotBounder is a store whose records have a maximum size, which limits the leases of one
// semaphore. It still accepts requests with up to [MaxSlots] slots while fewer leases are held. An
// acquire beyond its limit fails. Any other store must support MaxSlots leases.
type SlotBounder interface {
	// MaxSlots returns how many leases of one semaphore can be held at once. It does not call the
	// server.
	MaxSlots() int
}

// A Sharder is a store on several servers, such as a Redis Cluster. Each server keeps the leases of
// some names and may hang while the others answer. A dlock.Session renews each shard's leases with
// separate calls, so that no shard waits for another.
type Sharder interface {
	// Shard identifies the server that keeps a name, as far as the store knows without asking a
	// server. The result may change from call to call. It is "" if the server is unknown or if
	// there is only one. A panic counts as "". Shard must not block, because a dlock.Session calls
	// it for each lease and a timer.Scheduler for each tick. They hold no mutex during the call.
	Shard(name string) string
}

// AuditNote is the prefix of an Auditor's warning that is worth reading but endangers no lease.
const AuditNote = "note: "

// An Auditor is a store that can check its server for settings that endanger leases, such as an
// eviction policy. A timer.Scheduler logs the warnings when the store first answers and when it
// answers again after an outage. A warning that begins with AuditNote endangers no lease.
type Auditor interface {
	Audit(ctx context.Context) (warnings []string, err error)
}

// A Lister is a store that can list the leases of a name with their holders. For other stores, a
// process can show only its own leases.
type Lister interface {
	// List returns the leases of a semaphore (slots > 0) or mutex (slots == 0) that have not ended,
	// in slot order.
	List(ctx context.Context, name string, slots int) ([]LeaseInfo, error)
}

// An Enumerator is a store that can list the leases of all names.
type Enumerator interface {
	// Enumerate returns a page of the leases under the store's prefix or in its table, in no
	// particular order. It includes leases that are held, and leases released within the last
	// ReleasedFor whose slots have not been granted again.
	//
	// Each page takes one call to the server. limit is 1 to MaxPage. A page has about limit leases,
	// or more if a name has many slots. It may be empty even if further pages follow. For the first
	// page, after is ""; for every other page, it is the Next of the page before. A lease that is
	// granted or ends between two pages may be missing.
	//
	// If the store's settings do not allow an enumeration, the error matches errors.ErrUnsupported
	// and says why, and how to fix that.
	Enumerate(ctx context.Context, after string, limit int) (LeasePage, error)
}

const (
	// MaxPage is the largest limit of one call of Enumerate.
	MaxPage = 10_000
	// ReleasedFor is how long Enumerate still returns a lease after its release.
	ReleasedFor = time.Minute
)

// A LeasePage is a page of leases.
type LeasePage struct {
	Leases []LeaseInfo
	Next   string // where the next page begins; "" on the last page
}

// A SharedLimiter is a store that can take slots of several semaphores in one atomic step: see
// Request.Shared.
type SharedLimiter interface {
	// CheckShared returns nil if the store can take these names in one step. Otherwise the error
	// says why not, and how to fix that. On a Redis Cluster, for example, their keys must be in one
	// hash slot. CheckShared does not call the server. TryAcquire makes the same check.
	CheckShared(name string, shared ...string) error
}

// A RateLimiter is a SharedLimiter that can limit the rate of starts: see SemaphoreSpec.Rate.
type RateLimiter interface {
	// CheckRate returns nil if the store can enforce a rate with the given Per. Otherwise the error
	// says why not, and how to fix that. A store cannot enforce a rate if it may forget a start
	// that still counts. CheckRate does not call the server. TryAcquire makes the same check.
	CheckRate(per time.Duration) error
}

// A Delayer is a store that keeps a fixed delay between leases of a name: see Tick.Delay.
type Delayer interface {
	// CheckDelay returns nil if the store can enforce a delay. Otherwise the error says why not,
	// and how to fix that. A store cannot enforce a delay if it may forget the end of a lease
	// before the delay is over. CheckDelay does not call the server. TryAcquire makes the same
	// check.
	CheckDelay(time.Duration) error
}

// A LeaseInfo is a lease as a Lister or an Enumerator reports it.
type LeaseInfo struct {
	Name       string
	Mutex      bool // true for a mutex, false for a slot of a semaphore
	Slot       int
	Holder     Holder // for a released lease, its last holder
	Fence      Fence
	HeldFor    time.Duration // time since the grant
	RenewedAgo time.Duration // time since the grant or the last extend; 0 if the store does not know
	ExpiresIn  time.Duration // time until it ends unless extended; 0 if it was released
	// ReleasedAgo is the time since the release, at least a microsecond, or 0 if the lease is held.
	// Only an Enumerator reports released leases.
	ReleasedAgo time.Duration
}
