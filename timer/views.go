package timer

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// views are what the store's answers told of single timers, apart from their overrides: the limits
// of other hosts, that every slot is held, faults, that the store did not answer.
type views struct {
	log    *lineLog
	ledger *ledger
	faults few

	degraded atomic.Int32 // runs that go on without the store

	// mu guards the view of every timer. While it is held, only the mutexes of ledger, log and
	// clocks are taken.
	mu sync.Mutex
}

// A view is what the store told of a timer. A timer that takes the name of one that was removed,
// and of which runs go on, takes over its view. Guarded by views.mu.
type view struct {
	declared int          // slots that other hosts declare, if not ours
	heardOf  time.Time    // when they last did
	holder   dlock.Holder // of a slot, as the store last reported
	overlong dlock.Holder // whose slot was last reported as held for too long
	full     fullAnswer
	fault    string // what the store last found wrong with the timer; "": nothing
	down     bool   // the store did not answer for this timer, and has not answered since
	degraded int32  // runs that go on without the store
}

// startOver forgets what was told to a timer that was removed, and may be wrong for the one that
// has taken its name.
func (v *views) startOver(e *entry) {
	v.mu.Lock()
	defer v.mu.Unlock()
	e.state.view.full, e.state.view.declared = fullAnswer{}, 0
}

// granted takes in what came with a slot.
func (v *views) granted(e *entry, info dlock.Info) {
	v.mu.Lock()
	defer v.mu.Unlock()
	w := &e.state.view
	w.down, w.fault, w.full = false, "", fullAnswer{}
	v.declared(e, info.DeclaredSlots)
	v.ledger.heardOfSuccess(&e.state.record, info.SinceSuccess, e.clock.interval())
}

// refused takes in what came with a refusal.
func (v *views) refused(e *entry, t dueTick, no *dlock.NotAcquiredError) {
	v.mu.Lock()
	defer v.mu.Unlock()
	w := &e.state.view
	w.down, w.fault = false, ""
	v.declared(e, no.Info.DeclaredSlots)
	v.ledger.heardOfSuccess(&e.state.record, no.Info.SinceSuccess, e.clock.interval())
	if no.Info.SinceSuccess == 0 || t.at != 0 && e.mayEndInTime(no) {
		v.ledger.discount(&e.state.record)
	}
	w.holder = no.Holder
	v.remember(e, no)
	v.warnHeldLong(e, no)
}

// down notes that the store serves a timer not, and reports whether the timer goes on without it:
// only a store that does not answer is a reason to. One that says what is wrong does so to every
// host, and all of them would run.
func (v *views) down(e *entry, err error) (degraded bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	w := &e.state.view
	switch reasonOf(err) {
	case ReasonStoreSetup:
		w.down = false
		return false
	case ReasonStoreFault:
		w.down = false
		if w.fault == "" {
			v.log.laterFew(&v.faults, slog.LevelWarn, "timer: does not run, because the store found something wrong",
				"timer", e.timer.Name, "err", err)
		}
		w.fault = fmt.Sprint(err)
		return false
	}
	degraded = e.timer.OnStoreDown == StoreDownRunLocal
	if degraded && !w.down {
		v.log.later(slog.LevelDebug,
			"timer: runs without the store: up to MaxPerHost runs on each host, none of them valid",
			"timer", e.timer.Name, "max_per_host", limitText(e.timer.MaxPerHost), "err", err)
	}
	w.down = true
	return degraded
}

// upAgain ends the fallback of timers.
func (v *views) upAgain(entries ...*entry) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, e := range entries {
		e.state.view.down = false
	}
}

// wentDown notes that the store did not answer a timer for so long that the lease of a run ended.
func (v *views) wentDown(e *entry) {
	v.mu.Lock()
	defer v.mu.Unlock()
	e.state.view.down = true
}

// beginDegraded counts a run that goes on without the store, endDegraded one less.
func (v *views) beginDegraded(e *entry) { v.countDegraded(e, 1) }
func (v *views) endDegraded(e *entry)   { v.countDegraded(e, -1) }

func (v *views) countDegraded(e *entry, n int32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	e.state.view.degraded += n
	v.degraded.Add(n)
}

// degradedRuns is how many runs go on without the store.
func (v *views) degradedRuns() int { return int(v.degraded.Load()) }

// fallback reports whether a timer runs, or would run, without the store.
func (v *views) fallback(e *entry) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	w := &e.state.view
	return e.timer.OnStoreDown == StoreDownRunLocal && (w.down || w.degraded > 0)
}

// fill fills in what Status tells of a view.
func (v *views) fill(e *entry, t *TimerStatus) {
	t.Degraded = v.fallback(e)
	v.mu.Lock()
	defer v.mu.Unlock()
	w := &e.state.view
	t.LimitElsewhere, t.StoreFault = w.declared, w.fault
}

// fault is what the store last found wrong with a timer; "": nothing.
func (v *views) fault(e *entry) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return e.state.view.fault
}

// lastHolder is who was last said to hold a slot of a timer.
func (v *views) lastHolder(e *entry) dlock.Holder {
	v.mu.Lock()
	defer v.mu.Unlock()
	return e.state.view.holder
}

// elsewhere is how many slots other hosts declare; 0: as many as this one, as far as it knows.
func (v *views) elsewhere(e *entry) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return e.state.view.declared
}

// warnHeldLong says once of each holder that it holds a slot for longer than any run should take.
// Called with mu held.
func (v *views) warnHeldLong(e *entry, no *dlock.NotAcquiredError) {
	w := &e.state.view
	if no.Reason != dlock.ReasonFull || no.HeldFor-no.HeldFor/3 <= e.timer.MaxRunTime || w.overlong == no.Holder {
		return
	}
	w.overlong = no.Holder
	v.log.later(slog.LevelWarn,
		"timer: a slot has been held for longer than 1.5 × MaxRunTime: is MaxRunTime longer there?",
		"timer", e.timer.Name, "holder", no.Holder.String(), "since", no.HeldFor.Round(time.Millisecond),
		"max_run_time", e.timer.MaxRunTime)
	v.ledger.count(&e.state.record, func(t *tally) { t.overlongHolds++ })
}

// disagreement is how long hosts are taken to disagree after the last sign of it: the answers tell
// what the latest grant declared, which is as often our own.
const disagreement = time.Minute

// declared compares the number of slots with what other hosts say. Called with mu held.
func (v *views) declared(e *entry, slots int) {
	w, now := &e.state.view, time.Now()
	switch agrees := slots == 0 || slots == e.timer.slots(); {
	case agrees && (w.declared == 0 || now.Sub(w.heardOf) < disagreement):
		return
	case agrees:
		w.declared = 0
	default:
		w.heardOf = now
		if slots == w.declared {
			return
		}
		w.declared = slots
		v.log.later(slog.LevelWarn,
			"timer: hosts disagree about MaxConcurrency; together they keep to the larger number",
			"timer", e.timer.Name, "here", e.timer.slots(), "elsewhere", slots)
	}
}
