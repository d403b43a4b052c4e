package driver

import "time"

// MaxTickAhead is how far a tick may be ahead of the store's clock. A claim further ahead would
// keep every host with a correct clock from claiming ticks, so it is refused (ReasonTickAhead).
const MaxTickAhead = 5 * time.Second

// MaxDelay is the longest Tick.Delay. Stores forget a name that was not used for 40 days.
const MaxDelay = 30 * 24 * time.Hour

// A Tick is an instant at which a timer is due. The instant identifies it, to the microsecond, on
// every host. The store keeps the latest tick claimed of a name, and how often it was claimed.
type Tick struct {
	// At is the scheduled instant.
	At time.Time

	// Max is how many starts of this tick are allowed in the fleet, at least 1. A limit of slots
	// that is set at run time does not change it.
	Max int

	// Schedule identifies the schedule that the tick belongs to, for instance by a hash; 0 if it is
	// not known. The store keeps the Schedule of the latest tick claimed.
	Schedule int64

	// MissedAt, if it is set, makes this the claim of a missed tick: it came due at that time, with
	// no host running. It is not before At, and later where hosts delay their ticks. The store
	// refuses the claim if nothing was missed:
	//   - its Schedule is not known, or was not yet when the tick came due (ReasonTickFirst): a
	//     timer that is new or was changed has missed nothing;
	//   - it came due before the end of the latest pause or limit of 0 (ReasonPaused);
	//   - this tick or a later one was claimed (ReasonTickTaken, ReasonTickLate);
	//   - it came due before the end of the latest lease of the name, or while one is held
	//     (ReasonTickHeld): a host was running, and skipped the tick.
	//
	// A schedule is known if the latest tick claimed belongs to it. If it is not known, that
	// refusal makes it known for ticks that come due after MissedAt, or after now if MissedAt is
	// more than MaxTickAhead ahead. It stays known until another one is made known, or a tick is
	// claimed whose schedule differs from that of the tick before. The refusal changes nothing
	// else: claims of ticks that are due are granted as before. So even the first tick of a timer
	// can be missed. See KnownSince.
	//
	// Use it with semaphores only: stores keep no schedules, pauses and ends of leases of a mutex.
	MissedAt time.Time

	// Delay, if it is set, makes this the claim of a fixed delay. The store refuses it while any
	// lease of the name is held (ReasonFull), and until Delay has passed since the last one ended
	// (ReasonTickEarly), by release or expiry, with any holder and any tick. The store's clock
	// measures all of that, so At, Max and MissedAt are ignored: the store records its own time as
	// the tick. The request has one slot. At most MaxDelay. Only a Delayer takes it; any other
	// store must return an error.
	Delay time.Duration
}

// KnownSince returns a claim that is always refused. It is for a host that starts when no tick of
// its schedule has come due lately: from then on the store knows the schedule (see Tick.MissedAt),
// so a tick that comes due after since, with no host running, has been missed. Its At is the Unix
// epoch, which counts as claimed, also by a store that knows no tick of the name.
func KnownSince(schedule int64, since time.Time) Tick {
	return Tick{At: beforeAll, Max: 1, Schedule: schedule, MissedAt: since}
}

// beforeAll is never the instant of a missed tick: it counts as one that was claimed.
var beforeAll = time.UnixMicro(0)

// Info comes with every answer, so that no host needs to poll for it.
type Info struct {
	// DeclaredSlots is the number of slots that the latest grant of this name declared (in a Grant,
	// the grant before it); 0 if that is not known. Hosts that declare different numbers share the
	// slots that both have, and together never exceed the larger number.
	DeclaredSlots int

	// SuccessAge is how long ago, by the store's clock, a grant of this name was last released as
	// Succeeded: at least 1 µs, or 0 if no such release is known. Only answers to TryAcquire carry
	// it, and some stores never do.
	SuccessAge time.Duration

	// Version is the version of the name's overrides, see Controller; 0 if it was never updated. It
	// grows with every update. Answers to TryAcquire and Extend have it.
	Version int64

	// SlotLimit is how many slots the store grants, whatever requests declare; 0 if there is no
	// such limit. Only answers to TryAcquire have it.
	SlotLimit int
}
