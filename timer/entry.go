package timer

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/schedule"
)

// An entry is the state of one timer name on this host. Each name has one entry, until the timer
// was removed and its last run has ended. Each field belongs to one part. mu guards the fields,
// except those about future ticks, which registry.mu guards.
type entry struct {
	lockName string
	settings atomic.Pointer[settings] // the current or last settings; belongs to the registry
	ticks    tickTimes

	// mu guards runs, the fields of a Run that say so, record, view and override. Each timer has
	// its own mutex, because the runs of a busy host would contend for a shared one.
	// docs/architecture.md defines the lock order.
	mu       sync.Mutex
	runs     []*Run   // by their place on this host; nil if the place is free
	record   record   // belongs to the ledger
	view     view     // belongs to views
	override override // belongs to overrides

	// endedAt is when a handler last returned here, in ns since programStart, or 0 if none has. The
	// delay of schedule.After counts from it.
	endedAt atomic.Int64

	// places is how many places are taken under this name, including those of a removed timer's
	// runs. It is written with registry.mu held.
	places atomic.Int32

	// knownAt is when the store last reported that it knows the current schedule, in seconds since
	// programStart, plus 1. It is 0 if the store has not.
	knownAt atomic.Int32

	// planned belongs to the planner. It is the time at which the heap item of the next tick is
	// due, in µs, or 0 if the heap has none. Older items of the timer in the heap are ignored.
	planned int64
	// failures belongs to the planner. It is how many times in a row the schedule has failed. 0
	// means that it works, and planning means that Update is calling a new schedule.
	failures int8
	begun    bool         // of the planner: planned while Run was running, including RunOnStart
	overdue  atomic.Int32 // runs past MaxRunTime that ignore their context; written with mu held

	pending *pending // the tick that waits, or nil; guarded by the registry's mutex

	blackoutFailed atomic.Bool // of the gate: the timer's blackouts failed when last called
}

// settings holds a timer as it was registered or updated. Settings are immutable: Update and a new
// registration create new settings. A run, or an attempt to start one, keeps the settings with
// which it began.
type settings struct {
	timer  Timer
	id     int64   // identifies the schedule
	shares *shares // Timer.Limits, or nil if it has none
	open   bool    // the code does not set MaxPerHost
	local  bool    // LocalOnly, or there is no store

	// These fields are set when the settings take effect.
	nth          int32 // the number of this schedule in the entry; ticks of others are not tried
	entry        *entry
	registration *registration
}

// A registration lasts from Register to Remove, across Updates. The registry guards it.
type registration struct {
	removed atomic.Bool
	places  int32    // the places that its attempts and runs take
	removal *removal // nil if no caller waits
}

// A removal waits for the runs of a removed timer.
type removal struct {
	callers int32         // runs to ignore: 1 if a handler removes its own timer
	done    chan struct{} // closed when no other run is left
}

func newEntry(t Timer) *entry { return &entry{lockName: t.lockName()} }

func newSettings(t Timer, hasStore bool) *settings {
	s := &settings{timer: t.withDefaults(), open: t.MaxPerHost == 0, local: t.LocalOnly || !hasStore}
	s.id = scheduleID(s.timer.Schedule)
	return s
}

// removed reports whether the timer was removed after it was registered with these settings. It is
// also true for settings that Update had replaced before the removal.
func (s *settings) removed() bool { return s.registration.removed.Load() }

// current reports whether these are the settings of a registered timer. With other settings no run
// starts.
func (s *settings) current() bool { return s.entry.settings.Load() == s && !s.removed() }

// placesTaken returns how many places are taken under the timer's name, including those of a
// removed timer's runs.
func (s *settings) placesTaken() int { return int(s.entry.places.Load()) }

// isOver reports whether the timer was removed and the last of its runs has ended. That may have
// happened after the caller got the settings from the registry.
func (s *settings) isOver() bool { return s.removed() && s.placesTaken() == 0 }

// stillScheduled reports whether the timer is registered and still has the schedule of these
// settings.
func (s *settings) stillScheduled() bool {
	present := s.entry.settings.Load()
	return present.nth == s.nth && !present.removed()
}

// tickTimes has the latest and the next tick of a timer. Only the planner sets them, but any part
// may read them.
type tickTimes struct {
	mu    sync.Mutex
	next  int64   // µs; 0 if there is no further tick
	due   int64   // the latest tick that was due, in µs; 0 if none
	fault *string // the error of the schedule; nil if it works
}

// read returns the next tick and the latest tick that was due, in µs, or 0 if there is none.
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
	// Sub saturates. The difference in microseconds could overflow a Duration.
	return time.UnixMicro(next).Sub(time.UnixMicro(due))
}

// tried returns the latest tick that was due and will not be due again, or the zero time if there
// is none. If the wall clock has since been set back by less than an interval, that tick still
// counts. A correction by a second must not repeat a nightly run. If the clock was set back
// further, ticks that are in the future again become due again. The store refuses those that were
// claimed.
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

// set sets the next tick. If due is not 0, it also sets the latest tick that was due.
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

// clear removes all ticks.
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

// scheduleID identifies a schedule. If the schedule of a timer changes, or differs between hosts,
// so does the ID. Every claim sends the ID to the store, because a tick that was claimed under one
// schedule says nothing about the ticks that another schedule missed. Delay is not part of the ID,
// because it does not change the ticks.
func scheduleID(s schedule.Schedule) int64 {
	if s == nil {
		return 0
	}
	return int64(hashed("schedule", schedule.Identity(s)))
}

// The limits of a timer are its settings, unless MaxConcurrency is overridden in the fleet. If
// MaxPerHost is not set, it follows the override. MaxPerTick never does: an operator who allows
// more overlapping runs on a slow day does not want each email sent twice.

// limit returns the MaxConcurrency in effect.
func (s *settings) limit() int {
	if limit := s.entry.override.limit.Load(); limit > 0 && !s.local {
		return int(limit)
	}
	return s.timer.MaxConcurrency
}

// claim returns the claim of a tick for the store. ok is false if the tick does not need to be
// claimed.
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

// hostLimit returns how many runs may be in progress on this host. Without a store this host is the
// whole fleet.
func (s *settings) hostLimit() int {
	if s.open {
		return s.limit()
	}
	return min(s.timer.MaxPerHost, s.limit())
}

// shared reports whether the store enforces the timer's limits.
func (s *settings) shared() bool {
	return !s.local && !(s.timer.limitsNothing() && s.limit() == unlimited && len(s.limits()) == 0)
}

// slots returns how many slots the timer has in the store.
func (t Timer) slots() int { return min(t.MaxConcurrency, driver.MaxSlots) }

// limitsNothing reports whether the timer has no limit for the store to enforce.
func (t Timer) limitsNothing() bool {
	return t.MaxConcurrency == unlimited && t.MaxPerTick == unlimited
}
