package timer

import (
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// An entry is one registered timer.
type entry struct {
	timer    Timer
	lockName string
	next     int64       // µs; 0: no further tick
	due      int64       // µs, the latest tick that came due
	places   int         // that are taken; the registry's, as state.places
	gone     atomic.Bool // it was removed; set by the registry
	open     bool        // the code leaves MaxPerHost open
	id       int64       // of the schedule
	state    *state

	waits          dueTick       // for which the timer is in the queue; zero: none
	scheduleFault  string        // the schedule failed
	askPause       time.Duration // until it is asked again
	later          int32         // ticks in the heap that are tried later than they were due
	blackoutFailed bool          // its blackouts did not say until when, the last time
}

// state is what this host knows of a timer. A timer that takes the name of one that was removed,
// and of which runs go on, takes its state over.
type state struct {
	record record // the ledger's
	runs   []*Run // each at its place on this host; nil: nobody has it
	view   storeView

	storeFault string // what the store last found wrong with the timer; "": nothing

	places    int32 // attempts and runs on this host of all timers that had the name since it was last without any
	degraded  int32 // runs that go on without the store
	storeDown bool  // the store did not answer this timer, and nobody since
}

// storeView is what the store told of a timer.
type storeView struct {
	declared  int          // slots that other hosts declare, if not ours
	heardOf   time.Time    // when they last did
	holder    dlock.Holder // who was last said to hold a slot
	overlong  dlock.Holder // who was last said to hold a slot for too long
	full      fullAnswer
	overrides overrides
}

func newEntry(t Timer) *entry {
	e := &entry{timer: t.withDefaults(), lockName: t.lockName(), open: t.MaxPerHost == 0, state: &state{}}
	e.id = scheduleID(e.timer.Schedule)
	return e
}
