package timer

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/schedule"
)

// An entry is what this host knows of the timer of one name. There is one entry for a name, until
// the timer was removed and its last run has ended. Each field belongs to one part. mu guards the
// fields, except those about future ticks, which registry.mu guards.
type entry struct {
	lockName string
	settings atomic.Pointer[settings] // the present ones, or the last; belongs to the registry
	ticks    tickTimes

	// mu guards runs, the fields of a Run that say so, and what this host knows and remembers. Each
	// timer has its own mutex: the runs of a busy host would queue for a common one.
	// docs/architecture.md has the order of mutexes.
	mu       sync.Mutex
	runs     []*Run   // by their place on this host; nil: the place is free
	record   record   // the ledger's
	view     view     // of views
	override override // of overrides

	// endedAt is when a handler last returned here, in ns since programStart; 0: none has. The
	// delay of schedule.After counts from it.
	endedAt atomic.Int64

	// places is how many places are taken under the name, also by runs of a removed timer. Written
	// with registry.mu held.
	places atomic.Int32

	// knownAt is when the store last reported that it knows the present schedule, in seconds since
	// programStart, plus 1; 0: it has not.
	knownAt atomic.Int32

	// planned belongs to the planner: the time at which the item of the next tick comes up, µs; 0:
	// the heap has none. Other items of the timer no longer count.
	planned int64
	// failures belongs to the planner: how often in a row the schedule has failed; 0: it works;
	// planning: Update is asking a new one.
	failures int8
	begun    bool         // of the planner: it was planned while Run was running, RunOnStart included
	overdue  atomic.Int32 // runs past MaxRunTime that ignore their context. Written with mu held

	pending *pending // the tick that waits; nil: none. The registry's mutex guards it

	blackoutFailed atomic.Bool // of the gate: the timer's blackouts failed when they were last asked
}

// settings are a timer as it was registered or updated. They do not change: Update and a new
// registration set new ones. A run, or an attempt to start one, keeps the settings that it began
// with.
type settings struct {
	timer  Timer
	id     int64   // of the schedule
	shares *shares // of Timer.Limits; nil: it has none
	open   bool    // the code does not set MaxPerHost
	local  bool    // LocalOnly, or there is no store

	// Set when the settings come into force.
	nth          int32 // which of the entry's schedules this is: a tick of another is not tried
	entry        *entry
	registration *registration
}

// A registration lasts from Register to Remove; Update keeps it. The registry guards it.
type registration struct {
	removed atomic.Bool
	places  int32    // taken by its attempts and runs
	removal *removal // nil: no caller waits
}

// A removal is a wait for the runs of a removed timer.
type removal struct {
	callers int32         // runs that are not waited for: 1 if a handler removes its own timer
	done    chan struct{} // closed when no other run is left
}

func newEntry(t Timer) *entry { return &entry{lockName: t.lockName()} }

func newSettings(t Timer, hasStore bool) *settings {
	s := &settings{timer: t.withDefaults(), open: t.MaxPerHost == 0, local: t.LocalOnly || !hasStore}
	s.id = scheduleID(s.timer.Schedule)
	return s
}

// removed reports whether the timer was removed since it was registered with these settings, or
// with settings that Update has replaced by these.
func (s *settings) removed() bool { return s.registration.removed.Load() }

// current reports whether these are the settings of a registered timer. With other settings nothing
// new starts.
func (s *settings) current() bool { return s.entry.settings.Load() == s && !s.removed() }

// placesTaken returns how many places are taken under the timer's name, also by runs of a removed
// timer.
func (s *settings) placesTaken() int { return int(s.entry.places.Load()) }

// isOver reports whether the timer was removed and the last of its runs has ended, perhaps since
// the caller got it from the registry.
func (s *settings) isOver() bool { return s.removed() && s.placesTaken() == 0 }

// stillScheduled reports whether the timer is registered, and still has the schedule of these
// settings.
func (s *settings) stillScheduled() bool {
	present := s.entry.settings.Load()
	return present.nth == s.nth && !present.removed()
}

// tickTimes are the latest and the next tick of a timer. Only the planner sets them, but every part
// may read them.
type tickTimes struct {
	mu    sync.Mutex
	next  int64   // µs; 0: no further tick
	due   int64   // µs, the latest tick that came due; 0: none
	fault *string // the error of its schedule; nil: it works
}

// read returns the next tick and the latest tick that came due, in µs; 0: there is none.
func (t *tickTimes) read() (next, due int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.next, t.due
}

// interval returns the time between the latest tick and the next.
func (t *tickTimes) interval() time.Duration {
	next, due := t.read()
	if next == 0 || due == 0 {
		return math.MaxInt64
	}
	// Sub saturates, whereas the difference in microseconds could overflow a Duration.
	return time.UnixMicro(next).Sub(time.UnixMicro(due))
}

// tried returns the latest tick that came due and does not come due again; the zero time: none. If
// the wall clock was set back since by less than an interval, that tick still counts: a nightly run
// must not be repeated because of a second. If it was set back further, ticks that are in the
// future again do come due again, and the store refuses those that were claimed.
func (t *tickTimes) tried(now time.Time, interval time.Duration) time.Time {
	_, due := t.read()
	if at := time.UnixMicro(due); due != 0 && at.Sub(now) < interval {
		return at
	}
	return time.Time{}
}

func (t *tickTimes) scheduleFault() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fault == nil {
		return ""
	}
	return *t.fault
}

// set sets the next tick and, if due is not 0, the latest that came due.
func (t *tickTimes) set(due int64, next time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next = 0
	if !next.IsZero() {
		t.next = next.UnixMicro()
	}
	if due != 0 {
		t.due = due
	}
}

// clear forgets all ticks.
func (t *tickTimes) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next, t.due, t.fault = 0, 0, nil
}

func (t *tickTimes) setFault(fault string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fault = nil
	if fault != "" {
		t.fault = &fault
	}
}

// scheduleID identifies a schedule: two schedules that a timer has at different times, or on
// different hosts, have different IDs. Every claim sends the ID to the store, because a tick that
// was claimed under one schedule says nothing about the ticks that another one missed. Delay is not
// part of it, because it does not change the ticks.
func scheduleID(s schedule.Schedule) int64 {
	if s == nil {
		return 0
	}
	return int64(hashed("schedule", schedule.Identity(s)))
}

// The limits of a timer are its settings, unless MaxConcurrency is overridden in the fleet. If
// MaxPerHost is not set, it follows the override. MaxPerTick never does: an operator who lets more
// runs overlap on a slow day does not want each mail sent twice.

// limit returns the MaxConcurrency in force.
func (s *settings) limit() int {
	if limit := s.entry.override.limit.Load(); limit > 0 && !s.local {
		return int(limit)
	}
	return s.timer.MaxConcurrency
}

// claim returns the claim of a tick for the store. ok is false if the tick need not be claimed.
func (t tick) claim() (claim driver.Tick, ok bool) {
	s := t.s
	if t.at == 0 || s.timer.MaxPerTick == unlimited || t.ownStart {
		return claim, false
	}
	claim = driver.Tick{At: time.UnixMicro(t.at), Max: s.timer.MaxPerTick, Schedule: s.id}
	claim.Delay, _ = s.delay()
	if t.onStart {
		claim.Max = 1
	}
	if t.missedAt != 0 {
		claim.MissedAt = time.UnixMicro(t.missedAt)
	}
	return claim, true
}

// hostLimit returns how many runs may be in progress here. Without a store this host is the whole
// fleet.
func (s *settings) hostLimit() int {
	if s.open {
		return s.limit()
	}
	return min(s.timer.MaxPerHost, s.limit())
}

// shared reports whether a timer's limits are kept in the store.
func (s *settings) shared() bool {
	return !s.local && !(s.timer.limitsNothing() && s.limit() == unlimited && len(s.limits()) == 0)
}

// slots returns how many slots the timer has in the store.
func (t Timer) slots() int { return min(t.MaxConcurrency, driver.MaxSlots) }

// limitsNothing reports whether the timer has no limit that the store would enforce.
func (t Timer) limitsNothing() bool {
	return t.MaxConcurrency == unlimited && t.MaxPerTick == unlimited
}
