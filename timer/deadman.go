package timer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// defaultAlarmAfter is the default of Timer.AlarmAfter.
const defaultAlarmAfter = 5

// The dead-man's check finds timers that no host runs or that fail on all hosts. Every host counts
// the ticks that were due since the last successful run. A host reports a success to the store when
// it releases the slot. The store passes the success on to the other hosts with its next answers.

// A deadman counts the ticks of a timer since the latest successful run that this host knows of. A
// tick may come due while its own run is in progress, or while runs hold all slots. Such a tick
// counts only after these runs have exceeded their MaxRunTime. The deadman is part of the ledger's
// record.
type deadman struct {
	ticks     int32     // the ticks that were due since the latest success
	postponed int16     // ticks that await the store's next answer; not included in ticks
	counted   bool      // ticks includes the latest due tick
	success   time.Time // the latest success on any host; zero if none is known
	reason    Reason    // why the latest tick started no run here; "" if it started one
}

// succeeded records a success on this or another host.
func (d *deadman) succeeded(at time.Time) {
	d.ticks, d.success, d.postponed, d.counted = 0, at, 0, false
}

// due counts a tick that is due, or that has waited and is tried again.
func (d *deadman) due() {
	if !d.counted {
		d.count()
	}
	d.counted = true
}

// count adds one to ticks. The counter saturates: a timer that is due every millisecond reaches the
// maximum within a month.
func (d *deadman) count() { d.ticks = plus(d.ticks, 1) }

func plus(a, b int32) int32 { return int32(min(int64(a)+int64(b), math.MaxInt32)) }

// uncount undoes the count of the latest due tick, at most once. The run of that tick may still
// succeed, or another host has claimed the tick and counts it. A tick that waits is refused many
// times, so uncount may be called many times.
func (d *deadman) uncount() {
	if d.counted {
		d.ticks = max(0, d.ticks-1)
	}
	d.counted = false
}

// postpone defers the decision about a tick until the store's next answer, which includes the
// latest success.
func (d *deadman) postpone() {
	if d.counted {
		d.postponed = int16(min(int(d.postponed)+1, math.MaxInt16))
	}
	d.uncount()
}

// noteSuccessAge records the age of the latest success from an answer of the store. 0 means that
// the answer has no success.
func (d *deadman) noteSuccessAge(age, interval time.Duration) {
	// The age is slightly inaccurate, because the answer took time to arrive. A success that seems
	// only slightly later than the known one is therefore the same success.
	if age == 0 || !d.success.IsZero() && time.Since(d.success)-age <= min(interval/2, time.Second) {
		d.countPostponed(age != 0)
		return
	}
	d.succeeded(time.Now().Add(-age))
}

// countPostponed counts the postponed ticks, if the store reports successes.
func (d *deadman) countPostponed(tells bool) {
	if tells {
		d.ticks = plus(d.ticks, int32(d.postponed))
	}
	d.postponed = 0
}

// mayEndInTime reports whether a run within its MaxRunTime holds a slot, as far as the store
// reports. If so, the refused tick does not count towards AlarmAfter.
func (s *settings) mayEndInTime(no *dlock.NotAcquiredError) bool {
	return no.Reason == dlock.ReasonFull && no.Holder != (dlock.Holder{}) && no.HeldFor <= s.timer.MaxRunTime
}

// alarmed reports whether AlarmAfter ticks were due without a success.
func (d *deadman) alarmed(t Timer) bool {
	return t.AlarmAfter != unlimited && int(d.ticks) >= t.AlarmAfter
}

// check returns an error if alarmed.
func (d *deadman) check(t Timer, failed Outcome, holder dlock.Holder) error {
	if !d.alarmed(t) {
		return nil
	}
	last := "ever, as far as this host knows"
	if !d.success.IsZero() {
		last = "since " + d.success.UTC().Format(time.RFC3339)
	}
	return fmt.Errorf("timer %q: %d ticks without a successful run anywhere %s: %s", t.Name, d.ticks, last,
		d.why(failed, holder))
}

func (d *deadman) why(failed Outcome, holder dlock.Holder) string {
	switch d.reason {
	case "":
		if failed != "" && failed != OutcomeOK {
			return fmt.Sprintf("runs end with %q", string(failed))
		}
		return "runs have not ended"
	case ReasonFull:
		if holder != (dlock.Holder{}) {
			return fmt.Sprintf("every slot is held, the one that ends first by %s", holder)
		}
		return "every slot is held"
	case ReasonLimitFull:
		return "a limit that it shares with other timers is full"
	case ReasonLimitRate:
		return "a limit that it shares with other timers has reached its rate"
	case ReasonMaxRuns:
		return "MaxRuns runs of other timers are in progress on this host"
	case ReasonHostFull:
		return "its runs on this host do not end"
	case ReasonTickTaken, ReasonTickLate:
		return "other hosts claim its ticks, but none of their runs succeeds"
	case ReasonTickEarly:
		return "no run succeeds, and the delay since the last is not over"
	case ReasonPaused:
		return "it is paused"
	default:
		return fmt.Sprintf("no host claims its ticks; this host skips them: %s", d.reason)
	}
}

// TimersSucceed is the dead-man's check. It returns an error that names the timers without a
// successful run on any host for AlarmAfter ticks, and the reason as far as this host knows it. The
// error also names timers whose schedule failed, and removed timers whose runs ignore their
// context. TimersSucceed only reads memory.
func (s *Scheduler) TimersSucceed() error {
	var errs []error
	for _, set := range s.registry.all() {
		if set.removed() { // no new run is due, but its remaining runs should end
			if _, n := s.runner.counts(set); n > 0 {
				errs = append(errs,
					fmt.Errorf("timer %q was removed, but %d of its runs are past MaxRunTime and ignore their "+
						"context",
						set.timer.Name, n))
			}
			continue
		}
		if fault := set.entry.ticks.scheduleFault(); fault != "" {
			errs = append(errs, fmt.Errorf("timer %q is not due: its schedule failed: %s", set.timer.Name, fault))
		}
		var holder dlock.Holder
		if s.store != nil {
			holder = s.store.views.lastHolder(set)
		}
		set.entry.mu.Lock()
		r := &set.entry.record
		err := r.deadman.check(set.timer, Outcome(verdicts[r.last.verdict]), holder)
		set.entry.mu.Unlock()
		if err != nil {
			errs = append(errs, err)
		}
	}
	return sorted(errs)
}

func sorted(errs []error) error {
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}
