package driver

import "time"

// MaxTickAhead is how far a tick may be ahead of the store's clock. The store refuses a tick
// further ahead (ReasonTickAhead), because claiming it would block the ticks of every host with a
// correct clock.
const MaxTickAhead = 5 * time.Second

// MaxDelay is the maximum Tick.Delay. Stores may forget a name that has been unused for 40 days.
const MaxDelay = 30 * 24 * time.Hour

// A Tick is an instant at which a timer is due. The instant identifies the tick on every host, to
// the microsecond. The store keeps the latest claimed tick of a name and the number of its claims.
type Tick struct {
	// At is the scheduled instant.
	At time.Time

	// Max is how many starts of this tick the fleet may make, at least 1. A run-time limit of slots
	// does not change it.
	Max int

	// Schedule identifies the schedule that the tick belongs to, for example by a hash. 0 if
	// unknown. The store keeps the Schedule of the latest claimed tick.
	Schedule int64

	// MissedAt, if set, claims a tick that came due at that time while no host was running. It is
	// not before At, but it is later than At if hosts delay their ticks. The store refuses the
	// claim in these cases:
	//   - Its Schedule is unknown, or was unknown when the tick came due (ReasonTickFirst). A new
	//     or changed timer has missed nothing.
	//   - It came due before the latest pause or limit of 0 ended (ReasonPaused).
	//   - This tick or a later one was claimed (ReasonTickTaken, ReasonTickLate).
	//   - It came due before the latest lease of the name ended, or a lease is held now
	//     (ReasonTickHeld). A host was running and skipped the tick.
	//
	// A schedule is known if the latest claimed tick belongs to it. If it is unknown, the refusal
	// makes it known for ticks that come due after MissedAt, or after now if MissedAt is more than
	// MaxTickAhead ahead. It stays known until another schedule becomes known, or until a claimed
	// tick has another schedule than the tick before it. The refusal does not affect claims of
	// ticks that are due. So a timer can miss even its first tick. See KnownSince.
	//
	// Use MissedAt only with semaphores: stores keep no schedules, pauses or lease ends for a
	// mutex.
	MissedAt time.Time

	// Delay, if set, claims a tick of a fixed delay. The store refuses it while any lease of the
	// name is held (ReasonFull), and then until Delay has passed since the last lease ended
	// (ReasonTickEarly). The end may be a release or an expiry, with any holder and any tick. The
	// store measures the delay with its own clock, ignores At, Max and MissedAt, and records its
	// own time as the tick. The request must have one slot. Only a Delayer supports Delay; any
	// other store must return an error. At most MaxDelay.
	Delay time.Duration
}

// KnownSince returns a claim that is always refused. A host makes this claim when it starts and no
// tick of its schedule has come due recently. It makes the schedule known to the store, so ticks
// that come due after since can be missed (see Tick.MissedAt). Its At is the Unix epoch, which
// counts as claimed even in a store that knows no tick of the name.
func KnownSince(schedule int64, since time.Time) Tick {
	return Tick{At: beforeAll, Max: 1, Schedule: schedule, MissedAt: since}
}

// beforeAll counts as already claimed and is never the instant of a missed tick.
var beforeAll = time.UnixMicro(0)

// Info is part of every answer, so that hosts need not poll for it.
type Info struct {
	// DeclaredSlots is the number of slots that the latest grant of this name declared. In a Grant,
	// it comes from the grant before. 0 if unknown. Hosts that declare different numbers share the
	// slots that both have, and together never exceed the larger number.
	DeclaredSlots int

	// SuccessAge is the time since a grant of this name was last released as Succeeded, by the
	// store's clock: at least 1 µs, or 0 if no such release is known. Only answers to TryAcquire
	// carry it, and some stores never do.
	SuccessAge time.Duration

	// Version is the version of the name's overrides: see Controller. It grows with every update
	// and is 0 before the first one. Answers to TryAcquire and Extend carry it.
	Version int64

	// SlotLimit is how many slots the store grants, whatever requests declare. 0 if there is no
	// such limit. Only answers to TryAcquire carry it.
	SlotLimit int
}
