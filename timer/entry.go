package timer

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// An entry is one registered timer.
type entry struct {
	timer    Timer
	lockName string
	clock    clock
	places   int         // that are taken; the registry's, as state.places
	gone     atomic.Bool // it was removed; set by the registry
	open     bool        // the code leaves MaxPerHost open
	local    bool        // its limits are not in the store
	id       int64       // of the schedule
	state    *state

	waits          dueTick       // for which the timer is in the queue; zero: none
	askPause       time.Duration // the planner's: until a schedule that failed is asked again; 0: it works
	later          int32         // the planner's: ticks in the heap that are tried later than they were due
	blackoutFailed bool          // the gate's: its blackouts did not say until when, the last time
}

// state is what this host knows of a timer. A timer that takes the name of one that was removed,
// and of which runs go on, takes its state over.
type state struct {
	record   record   // the ledger's
	runs     []*Run   // each at its place on this host; nil: nobody has it
	view     view     // of views
	override override // of overrides

	places int32 // attempts and runs on this host of all timers that had the name since it was last without any
}

func newEntry(t Timer, hasStore bool) *entry {
	e := &entry{timer: t.withDefaults(), lockName: t.lockName(), open: t.MaxPerHost == 0, local: t.LocalOnly ||
		!hasStore, state: &state{}}
	e.id = scheduleID(e.timer.Schedule)
	return e
}

// A clock says when a timer comes due. The planner sets it, and every part may read it.
type clock struct {
	mu    sync.Mutex
	next  int64  // µs; 0: no further tick
	due   int64  // µs, the latest tick that came due; 0: none
	fault string // why its schedule failed; "": it works
}

// read returns the next tick and the latest that came due, in µs; 0: there is none.
func (c *clock) read() (next, due int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next, c.due
}

// interval is how far the latest tick and the next are apart.
func (c *clock) interval() time.Duration {
	next, due := c.read()
	if next == 0 || due == 0 {
		return math.MaxInt64
	}
	// Which has an end, while microseconds may be thousands of years.
	return time.UnixMicro(next).Sub(time.UnixMicro(due))
}

func (c *clock) scheduleFault() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fault
}

// set sets when the timer is due next, and which tick came due, if that is not 0.
func (c *clock) set(due int64, next time.Time) {
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

func (c *clock) setFault(fault string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = fault
}
