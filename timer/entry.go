package timer

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// settings are one registered timer.
type settings struct {
	timer    Timer
	lockName string
	ticks    tickTimes
	places   int   // taken by this timer; the registry's, like entry.places
	id       int64 // of the schedule
	entry    *entry
	shares   *shares // of Timer.Limits; nil: it has none

	// Set by the registry. Nil: the timer is registered. Itself: the timer was removed.
	// Any other: Update has put that in this one's place.
	successor atomic.Pointer[settings]

	// The planner's: the pause before a failed schedule is asked again; 0: it works; planning: it
	// is being asked.
	askPause       time.Duration
	later          int32 // the planner's: ticks in the heap that are tried after they were due
	open           bool  // the code does not set MaxPerHost
	local          bool  // LocalOnly, or there is no store
	blackoutFailed bool  // the gate's: its blackouts failed when they were last asked
	begun          bool  // the planner's: it was planned while Run was running, RunOnStart included
}

// An entry is what this host knows of a timer. It outlives settings that Update replaces, and
// passes to a timer that takes the name of a removed one whose runs go on.
type entry struct {
	record   record   // the ledger's
	view     view     // of views
	override override // of overrides

	// mu guards runs, and the fields of a Run that say so. docs/architecture.md has the order of
	// mutexes.
	mu   sync.Mutex
	runs []*Run // by their place on this host; nil: the place is free

	// endedAt is when a handler last returned here, ns since programStart; 0: none has. The delay
	// of schedule.After counts from it.
	endedAt atomic.Int64

	// places is how many are taken under the name, also by runs of a removed timer. Written with
	// registry.mu held.
	places atomic.Int32

	// knownAt is when the store was last seen to know the schedule, in seconds since programStart,
	// plus 1; 0: it was not. It is that of the latest settings.
	knownAt atomic.Int32
}

func newSettings(t Timer, hasStore bool) *settings {
	s := &settings{timer: t.withDefaults(), lockName: t.lockName(), open: t.MaxPerHost == 0, local: t.LocalOnly ||
		!hasStore, entry: &entry{}}
	s.id = scheduleID(s.timer.Schedule)
	return s
}

// placesTaken returns how many places are taken under the timer's name, also by runs of a removed
// timer.
func (s *settings) placesTaken() int { return int(s.entry.places.Load()) }

// gone reports whether the settings were removed or replaced: nothing new starts in its name.
func (s *settings) gone() bool { return s.successor.Load() != nil }

// latest returns what Update has put in this one's place last, or s itself.
func (s *settings) latest() *settings {
	for {
		next := s.successor.Load()
		if next == nil || next == s {
			return s
		}
		s = next
	}
}

// removed reports whether the timer was removed, perhaps after these settings were replaced.
func (s *settings) removed() bool { return s.latest().gone() }

// heir returns what goes on with the ticks of these settings: itself, or what has replaced it
// with the same schedule; nil: the timer was removed, or has another schedule now.
func (s *settings) heir() *settings {
	if h := s.latest(); !h.gone() && h.id == s.id {
		return h
	}
	return nil
}

// isOver reports whether the timer was removed and the last of its runs has ended, perhaps since
// the caller got it from the registry.
func (s *settings) isOver() bool { return s.removed() && s.placesTaken() == 0 }

// tickTimes are the latest and the next tick of a timer. The planner sets them, and every part may
// read them.
type tickTimes struct {
	mu    sync.Mutex
	next  int64   // µs; 0: no further tick
	due   int64   // µs, the latest tick that came due; 0: none
	fault *string // the error of its schedule; nil: it works
}

// read returns the next tick and the latest that came due, in µs; 0: there is none.
func (c *tickTimes) read() (next, due int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next, c.due
}

// interval returns the time between the latest tick and the next.
func (c *tickTimes) interval() time.Duration {
	next, due := c.read()
	if next == 0 || due == 0 {
		return math.MaxInt64
	}
	// Sub saturates; the difference in microseconds could overflow a Duration.
	return time.UnixMicro(next).Sub(time.UnixMicro(due))
}

// tried returns the latest tick that came due, which does not come due a second time; the zero
// time: none. If the wall clock was set back since by less than an interval, that is still so: a
// nightly run must not be repeated because of a second. Otherwise there is none: ticks that are in
// the future again do come due again, and the store refuses those that were claimed.
func (c *tickTimes) tried(now time.Time) time.Time {
	_, due := c.read()
	if at := time.UnixMicro(due); due != 0 && at.Sub(now) < c.interval() {
		return at
	}
	return time.Time{}
}

func (c *tickTimes) scheduleFault() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault == nil {
		return ""
	}
	return *c.fault
}

// set sets the next tick and, if due is not 0, the latest that came due.
func (c *tickTimes) set(due int64, next time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = 0
	if !next.IsZero() {
		c.next = next.UnixMicro()
	}
	if due != 0 {
		c.due = due
	}
}

func (c *tickTimes) setFault(fault string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = nil
	if fault != "" {
		c.fault = &fault
	}
}
