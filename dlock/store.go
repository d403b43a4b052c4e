package dlock

import (
	"context"
	"time"
)

// A DistributedLock is the store: it keeps leases and grants them. Users of leases want a
// [Session].
//
// Each call is one round trip, atomic per grant, and the store's own clock decides when a lease
// ends. No call waits for a lease to become free. Every call must return when the deadline of its
// context has passed, whatever the server does. The conformance suite dlock/dlocktest tells whether
// an implementation keeps all this.
type DistributedLock interface {
	// TryAcquire leases req.Name, or any one free slot of it. A *NotAcquiredError says no, with its
	// Reason. Any other error is the store's and means "unknown", not "no": the lease may have been
	// granted. Asked again with the same Token, it returns (and extends) the same grant; a token
	// whose grant has ended is a new one to the store, so nobody may use it again. When a tick is
	// refused and no slot is free either, the Reason is the tick's; when the name is paused, it is
	// ReasonPaused.
	TryAcquire(ctx context.Context, req Request) (Grant, error)

	// Extend makes every grant last ttl from now. It returns one Result per grant, in their order;
	// an error means that all are unknown. Every grant has its Slot, and none is given twice.
	Extend(ctx context.Context, ttl time.Duration, grants ...Grant) ([]Result, error)

	// Release ends the grants, found by name and token; their Slot may be AnySlot, because an
	// acquire whose reply was lost has no slot to name. One that is already lost is left alone and
	// reported, never taken from its new holder.
	Release(ctx context.Context, grants ...Grant) ([]Result, error)
}

const (
	// AnySlot in a Grant given to Release means: whichever slot this token holds.
	AnySlot = -1
	// MaxSlots is the largest number of slots of one semaphore.
	MaxSlots = 10_000
	// MaxTTL is the longest lease: longer ones would not come back within a day after their holder
	// died.
	MaxTTL = 24 * time.Hour
	// MaxTickAhead is how far a tick may lie ahead of the store's clock. A claim further ahead
	// would block the timer for every host with a correct clock, so it is refused with
	// ReasonTickAhead.
	MaxTickAhead = 5 * time.Second
)

// A Request asks for one lease.
type Request struct {
	Name   string        // "timer:process-orders"; see CheckName
	Slots  int           // 0: Name itself is the lock, a mutex; N: any one of Name:slot:0 … Name:slot:N-1
	Holder Holder        // identity shown to operators
	Token  string        // secret of this attempt: one token, one attempt, at most one grant
	TTL    time.Duration // how long the grant lasts unless extended
	Tick   *Tick         // nil, or the tick to claim in the same atomic step
}

// A Tick is one scheduled instant of a timer. The instant is its identity, the same on every host;
// the store keeps the latest one claimed and how often. Instants are told apart by the microsecond.
type Tick struct {
	At  time.Time // the scheduled instant
	Max int       // starts of this tick allowed in the fleet, at least 1. A limit of slots set at run time does not change it

	// Schedule says which schedule the tick belongs to, as a hash does; 0: not known. The store
	// keeps it with the latest tick claimed.
	Schedule int64

	// Missed, if it is set, makes this the claim of a tick that came due at that time while nobody
	// was there. Nothing was missed, and the claim is refused, if
	//   - a tick as late was claimed (ReasonTickTaken, ReasonTickLate);
	//   - the latest tick claimed was of another Schedule, or none is known (ReasonTickFirst): a timer that is new, or was changed, has
	//     missed nothing before;
	//   - it came due before the end of a pause, or of a limit of 0 (ReasonPaused);
	//   - it came due before the end of a lease of the name (ReasonTickHeld): whoever held that was there, and skipped the tick.
	// Missed is not before At; it is later where hosts come to their ticks with a delay. The last
	// two hold for a semaphore.
	Missed time.Time
}

// A Grant is a lease as the store gave it.
type Grant struct {
	Name  string
	Slots int // as requested; 0: a mutex
	Slot  int // 0 for a mutex
	Token string
	Fence Fence
	Info  Info

	// PreviousExpired: whoever had the slot before let its lease end without releasing it. Stores
	// that cannot tell leave it false.
	PreviousExpired bool

	// Succeeded, in a grant that is given to Release, says that the work ended well. If the grant
	// is still held, the store remembers when that was, for Info.
	Succeeded bool
}

// A Fence grows with every grant of a slot, across release, expiry, restart and loss of the store's
// data. A resource that remembers the highest fence it has seen (per slot, when N > 1) can refuse a
// holder that was lost. 0 means that the store gives no fences.
type Fence int64

// A Result is the store's answer about one grant.
type Result struct {
	Outcome   GrantOutcome
	Err       error   // GrantUnknown: what went wrong for this grant alone, or nil
	RevokedBy *Origin // GrantLost, from Extend: who revoked the lease; else nil
	Info      Info
}

// GrantOutcome is what became of a grant in Extend or Release.
type GrantOutcome uint8

const (
	GrantUnknown GrantOutcome = iota // the store did not answer for this grant: ask again
	GrantOK                          // extended, or released
	GrantLost                        // it had ended before: final
)

func (o GrantOutcome) String() string {
	switch o {
	case GrantOK:
		return "ok"
	case GrantLost:
		return "lost"
	default:
		return "unknown"
	}
}

// Info travels with every answer, so that nobody needs to poll for it.
type Info struct {
	// DeclaredSlots is the number of slots that the latest grant of this name declared; 0 if there
	// is nothing to tell. Hosts that declare different numbers share the slots they have in common
	// and together never exceed the larger one.
	DeclaredSlots int

	// SinceSuccess is how long ago, by the store's clock, a grant of this name was last released as
	// Succeeded, at least 1 µs; 0 if no such release is known. Only answers to TryAcquire have it,
	// and not of every store.
	SinceSuccess time.Duration

	// Version is that of the overrides of the name, see Controller; 0: it was never updated. When
	// it grows, something has changed. Answers to TryAcquire and Extend have it.
	Version int64

	// SlotLimit is how many slots are granted instead of what requests declare; 0: as they declare.
	// Only answers to TryAcquire have it.
	SlotLimit int
}
