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

// DefaultAlarmAfter is after how many ticks without a successful run anywhere TimersSucceed says
// so, unless the timer says otherwise.
const DefaultAlarmAfter = 5

// The dead-man's check: a timer that nobody runs, or that fails everywhere, makes no noise by
// itself. Every host counts the ticks that came due since a run succeeded. The store is told of a
// success with the release, and tells it with its next answer.

// A deadman is how long a timer has had no successful run that this host knows of. A tick whose run
// goes on, or that found the slots held by runs, counts only when these are past their MaxRunTime.
// It is a part of the ledger's record.
type deadman struct {
	ticks   int32     // that came due since the latest success
	later   int32     // ticks on which the store's next answer decides; not in ticks
	success time.Time // the latest, here or elsewhere; zero: none known
	reason  Reason    // of the latest tick that started nothing here; "": it started a run
}

// succeeded takes in a success, here or elsewhere.
func (d *deadman) succeeded(at time.Time) {
	d.ticks, d.success, d.later = 0, at, 0
}

// count counts a tick. Counts stay at their ends: a timer that is due every millisecond gets there
// within a month.
func (d *deadman) count() { d.ticks = plus(d.ticks, 1) }

func plus(a, b int32) int32 { return int32(min(int64(a)+int64(b), math.MaxInt32)) }

// discount takes back that a tick was counted: its run may still succeed, or other hosts got it and
// count it.
func (d *deadman) discount() { d.ticks = max(0, d.ticks-1) }

// putOff waits with a tick for the store's next answer, which tells whether there was a success.
func (d *deadman) putOff() {
	d.discount()
	d.later = plus(d.later, 1)
}

// heard takes in what the store's answer told of a success, which is that long ago; 0: of none.
func (d *deadman) heard(age, interval time.Duration) {
	// It takes a moment until an answer is here: one that seems a little later is the one that we
	// know of.
	if age == 0 || !d.success.IsZero() && time.Since(d.success)-age <= min(interval/2, time.Second) {
		d.settle(age != 0)
		return
	}
	d.succeeded(time.Now().Add(-age))
}

// settle counts the ticks that were put off, if the store tells of successes.
func (d *deadman) settle(tells bool) {
	if tells {
		d.ticks = plus(d.ticks, d.later)
	}
	d.later = 0
}

// mayEndInTime reports whether what holds a slot is a run within its MaxRunTime, as far as the
// store tells: a tick that finds it so does not count towards AlarmAfter.
func (e *entry) mayEndInTime(no *dlock.NotAcquiredError) bool {
	return no.Reason == dlock.ReasonFull && no.Holder != (dlock.Holder{}) && no.HeldFor <= e.timer.MaxRunTime
}

// says returns what there is to complain about, or nil.
func (d *deadman) says(t Timer, failed Outcome, holder dlock.Holder) error {
	if t.AlarmAfter == unlimited || int(d.ticks) < t.AlarmAfter {
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
	case ReasonHostFull:
		return "the runs on this host do not end"
	case ReasonTickTaken, ReasonTickLate:
		return "other hosts claim its ticks, and no run of theirs succeeds"
	case ReasonPaused:
		return "it is paused"
	default:
		return fmt.Sprintf("nobody claims its ticks; here they are skipped: %s", d.reason)
	}
}

// TimersSucceed returns which timers have had no successful run on any host for AlarmAfter ticks,
// and why as far as this host can tell: the dead-man's check. It also returns which have a schedule
// that failed, and which were removed while runs of them ignore their context. It reads memory
// only.
func (s *Scheduler) TimersSucceed() error {
	var errs []error
	for _, e := range s.registry.all() {
		if e.gone.Load() { // nobody expects a run of it any more, but to end
			if _, n := s.runner.counts(e); n > 0 {
				errs = append(errs,
					fmt.Errorf("timer %q was removed, but runs of it go on past MaxRunTime and ignore their context: %d",
						e.timer.Name, n))
			}
			continue
		}
		if fault := e.clock.scheduleFault(); fault != "" {
			errs = append(errs, fmt.Errorf("timer %q is not due: its schedule failed: %s", e.timer.Name, fault))
		}
		var holder dlock.Holder
		if s.store != nil {
			holder = s.store.views.lastHolder(e)
		}
		s.ledger.read(&e.state.record, func(r *record) {
			if err := r.deadman.says(e.timer, Outcome(verdicts[r.last.verdict]), holder); err != nil {
				errs = append(errs, err)
			}
		})
	}
	return sorted(errs)
}

func sorted(errs []error) error {
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}
