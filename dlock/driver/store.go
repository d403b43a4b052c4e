package driver

import (
	"context"
	"time"
)

// A Store is a store of leases. To use one, make a dlock.Session on it.
//
// Each call is one round trip, atomic per grant. The store's own clock decides when a lease ends.
// No call waits for a lease to become free, and each returns when the deadline of its context has
// passed, even if the server does not answer. Package dlock/dlocktest checks that an implementation
// does all this. A store that can do more implements further interfaces: see [Capabilities].
type Store interface {
	// TryAcquire leases req.Name or, for a semaphore, any one free slot of it. A *NotAcquiredError
	// is a refusal, with its Reason. Any other error means "unknown", not "no": the lease may have
	// been granted.
	//
	// A second request with the same Token returns (and extends) the same grant. Once that grant
	// has ended, the store treats the token as a new one, so a caller must not use it again.
	//
	// Every store takes the same steps, marks them with these numbers and names, and returns the
	// answer of the first step that has one. Package memlock is the shortest of them.
	//
	//  1. read: what is known of the name. The clock may have been set back: a tick, a known
	//     schedule, a success, and the end of a lease or a pause do not count if they are more than
	//     MaxTickAhead ahead of it, and a lease that was renewed so far ahead ends a TTL from now.
	//     Fences and versions stay, as does a pause that is not over.
	//  2. again: if the token has a lease, and one of each of req.Shared, they last the TTL from
	//     now and are returned, even if they were revoked. If it has only some of them, that is an
	//     error, and the caller releases them.
	//  3. first: a missed tick is ReasonTickFirst if its schedule is not known, or was not yet
	//     known when the tick came due, unless At is too far ahead (step 5). From then on the
	//     schedule is known.
	//  4. overrides: a pause, a limit of 0, or a missed tick that came due before the end of the
	//     latest of them is ReasonPaused.
	//  5. tick: ReasonTickAhead, ReasonTickLate, ReasonTickTaken or ReasonTickHeld, unless the tick
	//     has a delay.
	//  6. slot: one below req.Slots, or below the limit of an override, that no lease has. None is
	//     free (ReasonFull) while as many leases are held as the limit allows, in any slots; with a
	//     delay, while any lease is held. The refusal names the lease that ends first: of those
	//     below req.Slots, or of all if all count.
	//  7. delay: until it has passed, counted from the end of the last lease, ReasonTickEarly.
	//  8. shared: for each of req.Shared, in their order, a slot, and one more start of its rate.
	//     The first that is paused or has no slot is ReasonLimitFull, and one whose rate is reached
	//     ReasonLimitRate. They have no ticks, missed ticks or delays.
	//  9. grant: the lease, with a fence above all before.
	//  10. record: the tick, one more start of it, its schedule, who claimed it, how many slots
	//     were declared, and the start of each shared rate.
	//
	// A refusal writes nothing but the schedule of step 3, and corrections after a fault of the
	// store's clock or its index. A store that may have forgotten what it granted refuses after
	// step 7 (ReasonQuarantine).
	TryAcquire(ctx context.Context, req Request) (Grant, error)

	// Extend makes every grant last ttl from now. It returns one Result per grant, in their order.
	// An error means that the outcome of all is unknown. Every grant has its Slot, and no grant is
	// passed twice.
	Extend(ctx context.Context, ttl time.Duration, grants ...Grant) ([]Result, error)

	// Release ends the grants, found by name and token. Their Slot may be AnySlot, because an
	// acquire whose reply was lost has no slot to name. A grant that is already lost is reported as
	// GrantLost, and never taken from its new holder. The same goes for one that is released twice,
	// even if the driver did it: that of a Redis Cluster repeats a call whose connection broke.
	Release(ctx context.Context, grants ...Grant) ([]Result, error)
}

const (
	// AnySlot in a Grant given to Release means the slot that the token holds, whichever it is.
	AnySlot = -1
	// MaxSlots is the largest number of slots of one semaphore.
	MaxSlots = 10_000
	// MaxShared is how many further semaphores one request may name.
	MaxShared = 10
	// MaxRate is the largest SemaphoreSpec.Rate.
	MaxRate = 1_000_000_000
	// MinPer is the shortest SemaphoreSpec.Per. The clock of SQLite counts milliseconds.
	MinPer = 100 * time.Millisecond
	// MaxPer is the longest SemaphoreSpec.Per. Stores forget a name that was not used for 40 days.
	MaxPer = 30 * 24 * time.Hour
	// MaxTTL is the longest lease. A longer one would stay taken for more than a day after its
	// holder died.
	MaxTTL = 24 * time.Hour
)

// A Request asks for one lease.
type Request struct {
	Name   string        // "timer:process-orders"; see CheckName
	Slots  int           // 0: Name itself is the lock, a mutex; N: any one of Name:slot:0 … Name:slot:N-1
	Holder Holder        // shown to operators
	Token  string        // secret of this attempt: one token, at most one grant
	TTL    time.Duration // how long the grant lasts unless extended
	Tick   *Tick         // for schedulers: the tick to claim in the same atomic step, or nil

	// Shared are further semaphores. The store takes a slot of each in the same atomic step: of all
	// or, if one refuses (ReasonLimitFull), of none. Their names differ from each other and from
	// Name, which is a semaphore, too. Only a SharedLimiter takes them; any other store must return
	// an error. At most MaxShared.
	Shared []SemaphoreSpec
}

// A SemaphoreSpec names a semaphore, and says how many slots it has.
type SemaphoreSpec struct {
	Name  string // see CheckName
	Slots int    // 1 to MaxSlots

	// Rate and Per bound the starts: the store grants no slot while it has counted Rate grants
	// within the Per before, by its own clock (ReasonLimitRate). So no window of that length,
	// wherever it begins, has more. Each grant counts, and stays counted after a release or a lost
	// reply. A repeated request with the same Token counts once. A refusal is not counted. Hosts
	// with another rate for the name count the same grants, each against its own. A grant may count
	// for up to a sixtieth of Per longer. Only a RateLimiter takes them; any other store must
	// return an error. Rate is 1 to MaxRate, and Per MinPer to MaxPer; 0 and 0: the starts are
	// neither bounded nor counted.
	// the starts are neither bounded nor counted.
	Rate int
	Per  time.Duration
}

// A Grant is a lease as the store granted it.
type Grant struct {
	Name  string
	Slots int // as requested; 0: a mutex
	Slot  int // 0 for a mutex
	Token string
	Fence Fence
	Info  Info

	// PreviousExpired: the previous holder of the slot let its lease expire without releasing it.
	// False also if the store cannot tell.
	PreviousExpired bool

	// Shared has the grants of Request.Shared, in their order: leases of their own, with the same
	// token. Extend and Release get each of them as a grant beside this one, and ignore Shared.
	Shared []Grant

	// Succeeded, in a grant given to Release, says that the work ended well. If the grant is still
	// held, the store remembers the time, for Info.SuccessAge.
	Succeeded bool
}

// A Fence grows with every grant of a slot, across releases, expiries, restarts and loss of the
// store's data. A resource that remembers the highest fence it has seen (per slot, if there are
// several) can refuse a holder that has lost its lease. 0 means that the store gives no fences.
type Fence int64

// A Result is the store's answer about one grant.
type Result struct {
	Outcome   GrantOutcome
	Err       error  // GrantUnknown: what went wrong for this grant alone, or nil
	RevokedBy *Cause // GrantLost, from Extend: who revoked the lease; else nil
	Info      Info
}

// A GrantOutcome is what Extend or Release did to a grant.
type GrantOutcome uint8

const (
	GrantUnknown GrantOutcome = iota // the store did not answer for this grant: ask again
	GrantOK                          // extended, or released
	GrantLost                        // it had ended before: final
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
