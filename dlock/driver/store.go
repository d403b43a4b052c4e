package driver

import (
	"context"
	"time"
)

// A Store is a store of leases. To use one, create a dlock.Session on it.
//
// Each call is one round trip and atomic per grant. The store's own clock decides when a lease
// ends. No call waits for a lease to become free. Each call returns when its context's deadline has
// passed, even if the server does not answer. Package dlock/dlocktest tests all of this. A store
// with more features implements further interfaces: see [Capabilities].
type Store interface {
	// TryAcquire leases req.Name or, for a semaphore, any one of its free slots. A
	// *NotAcquiredError is a refusal with a Reason. Any other error means "unknown", not "no": the
	// lease may have been granted.
	//
	// A second request with the same Token extends and returns the same grant. Once that grant has
	// ended, the store treats the token as a new one, so a caller must not use it again.
	//
	// Every store executes the same steps and returns the answer of the first step that has one.
	// The stores' sources mark the steps with these numbers and names. Package memlock is the
	// shortest.
	//
	//  1. read: load the state of the name. If the clock was set back, recorded times may lie in
	//     its future. A tick, a known schedule, a success, and the end of a lease or pause do not
	//     count if they are more than MaxTickAhead ahead of the clock. A lease that was renewed
	//     that far ahead ends one TTL from now. Fences, versions and pauses that are not over stay.
	//  2. again: if the token holds a lease of the name and of each of req.Shared, extend these
	//     leases to one TTL from now and return them, even if they were revoked. If it holds only
	//     some of them, return an error; the caller then releases them.
	//  3. first: refuse a missed tick (ReasonTickFirst) if its schedule is unknown, or was unknown
	//     when the tick came due. From then on, the schedule is known. Skip this step if At is too
	//     far ahead (step 5).
	//  4. overrides: refuse (ReasonPaused) during a pause, under a limit of 0, and for a missed
	//     tick that came due before the latest of these ended.
	//  5. tick: refuse with ReasonTickAhead, ReasonTickLate, ReasonTickTaken or ReasonTickHeld.
	//     Skip this step if the tick has a delay.
	//  6. slot: find a free slot below req.Slots, or below the limit of an override. Refuse
	//     (ReasonFull) if there is none. Under an override, also refuse while as many leases are
	//     held as the limit allows, in any slots. With a delay, refuse while any lease is held. The
	//     refusal describes the lease that ends first, either of those below req.Slots or, in the
	//     last two cases, of all.
	//  7. delay: refuse (ReasonTickEarly) until the delay has passed since the last lease ended.
	//  8. shared: for each of req.Shared, in order, find a slot and count one start toward its
	//     rate. The first semaphore that is paused or full refuses with ReasonLimitFull, and one
	//     whose rate is reached with ReasonLimitRate. Ticks, missed ticks and delays do not apply
	//     to these semaphores.
	//  9. grant: create the lease, with a fence higher than all before.
	//  10. record: store the tick, its number of starts, its schedule, the host that claimed it,
	//      the declared number of slots, and the start of each shared rate.
	//
	// A refusal writes only the schedule of step 3, and corrections after a fault of the store's
	// clock or index. A store that may have forgotten grants refuses after step 7
	// (ReasonQuarantine).
	TryAcquire(ctx context.Context, req Request) (Grant, error)

	// Extend makes every grant last for ttl from now. It returns one Result per grant, in the same
	// order. If it returns an error, the outcome is unknown for all grants. Every grant must have
	// its Slot, and no grant may be passed twice.
	Extend(ctx context.Context, ttl time.Duration, grants ...Grant) ([]Result, error)

	// Release ends the grants, which it finds by name and token. A grant's Slot may be AnySlot,
	// because after a lost reply the caller does not know the slot. For a grant that is already
	// lost, Release answers GrantLost and leaves the slot to its new holder. The same applies to a
	// grant that is released twice, even if the driver repeats the call: Redis Cluster's does after
	// a broken connection.
	Release(ctx context.Context, grants ...Grant) ([]Result, error)
}

const (
	// AnySlot, in a Grant passed to Release, stands for whichever slot the token holds.
	AnySlot = -1
	// MaxSlots is the maximum number of slots of one semaphore.
	MaxSlots = 10_000
	// MaxShared is the maximum number of further semaphores in one request.
	MaxShared = 10
	// MaxRate is the maximum SemaphoreSpec.Rate.
	MaxRate = 1_000_000_000
	// MinPer is the minimum SemaphoreSpec.Per. SQLite's clock counts milliseconds.
	MinPer = 100 * time.Millisecond
	// MaxPer is the maximum SemaphoreSpec.Per. Stores may forget a name that has been unused for 40
	// days.
	MaxPer = 30 * 24 * time.Hour
	// MaxTTL is the maximum TTL. A longer lease would block its slot for more than a day after its
	// holder died.
	MaxTTL = 24 * time.Hour
)

// A Request asks for one lease.
type Request struct {
	Name   string        // for example "timer:process-orders"; see CheckName
	Slots  int           // 0 for a mutex, where Name itself is the lock; N for any one of Name:slot:0 … Name:slot:N-1
	Holder Holder        // shown to operators
	Token  string        // secret of this attempt; one token gets at most one grant
	TTL    time.Duration // how long the grant lasts unless extended
	Tick   *Tick         // for schedulers: the tick to claim in the same atomic step, or nil

	// Shared lists further semaphores. In the same atomic step, the store takes one slot of each.
	// If any of them refuses (ReasonLimitFull), it takes none. The names must differ from each
	// other and from Name, which must also be a semaphore. Only a SharedLimiter supports Shared;
	// any other store must return an error. At most MaxShared.
	Shared []SemaphoreSpec
}

// A SemaphoreSpec is the name of a semaphore and its number of slots.
type SemaphoreSpec struct {
	Name  string // see CheckName
	Slots int    // 1 to MaxSlots

	// Rate and Per limit the starts. The store grants no slot if it has counted Rate grants within
	// the last Per, by its own clock (ReasonLimitRate). So no time window of length Per contains
	// more than Rate starts.
	//
	// Each grant counts, even after its release or a lost reply. A repeated request with the same
	// Token counts once, and a refusal does not count. A grant may count for up to a sixtieth of
	// Per longer. Hosts with different rates for the name count the same grants, each against its
	// own rate.
	//
	// Only a RateLimiter supports Rate; any other store must return an error. Rate is 1 to MaxRate,
	// and Per is MinPer to MaxPer. If both are 0, starts are not limited or counted.
	Rate int
	Per  time.Duration
}

// A Grant is a lease as the store granted it.
type Grant struct {
	Name  string
	Slots int // as requested; 0 for a mutex
	Slot  int // 0 for a mutex
	Token string
	Fence Fence
	Info  Info

	// PreviousExpired means that the slot's previous lease expired without a release. It is false
	// if the store cannot tell.
	PreviousExpired bool

	// Shared has the grants of Request.Shared in the same order. Each is a separate lease with the
	// same token. Callers pass them to Extend and Release as further grants; both ignore this
	// field.
	Shared []Grant

	// Succeeded, in a grant passed to Release, says that the work succeeded. If the grant is still
	// held, the store records the time for Info.SuccessAge.
	Succeeded bool
}

// A Fence grows with every grant of a slot, across releases, expiries, restarts and loss of the
// store's data. A resource can remember the highest fence that it has seen, per slot if there are
// several, and refuse a holder that has lost its lease. 0 means that the store gives no fences.
type Fence int64

// A Result is the store's answer for one grant.
type Result struct {
	Outcome   GrantOutcome
	Err       error  // with GrantUnknown: the error for this grant alone, or nil
	RevokedBy *Cause // with GrantLost from Extend: who revoked the lease, or nil
	Info      Info
}

// A GrantOutcome is the result of Extend or Release for one grant.
type GrantOutcome uint8

const (
	GrantUnknown GrantOutcome = iota // the store did not answer for this grant; ask again
	GrantOK                          // extended or released
	GrantLost                        // it had already ended; final
)

func (g GrantOutcome) String() string {
	switch g {
	case GrantOK:
		return "ok"
	case GrantLost:
		return "lost"
	default:
		return "unknown"
	}
}
