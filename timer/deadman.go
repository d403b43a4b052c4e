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

// A silence is how long a timer has had no successful run that this host knows of. A tick whose run
// goes on, or that found the slots held by runs, counts only when these are past their MaxRunTime.
type silence struct {
	ticks   int32     // that came due since
	open    int32     // ticks for which the store was not asked, because it had just said that it is full; not in ticks
	success time.Time // the latest, here or elsewhere; zero: none known
	reason  Reason    // of the latest tick that started nothing here; "": it started a run
}

// succeeded takes in a success, here or elsewhere.
func (q *silence) succeeded(at time.Time) {
	q.ticks, q.success, q.open = 0, at, 0
}

// came counts a tick. Counts stay at their ends: a timer that is due every millisecond gets there
// within a month.
func (q *silence) came() { q.ticks = plus(q.ticks, 1) }

func plus(a, b int32) int32 { return int32(min(int64(a)+int64(b), math.MaxInt32)) }

// unknown leaves out a tick that the store refused without telling of successes: it cannot tell, or
// knows of none. Then the hosts that did get the tick have to know.
func (q *silence) unknown() { q.ticks = max(0, q.ticks-1) }

// unasked puts a tick off: whether there was a success meanwhile, the store's next answer tells,
// for which settled is called.
func (q *silence) unasked() {
	q.unknown()
	q.open = plus(q.open, 1)
}

// mayEndInTime reports whether what holds a slot is a run within its MaxRunTime, as far as the
// store tells: a tick that finds it so is no silence.
func (e *entry) mayEndInTime(no *dlock.NotAcquiredError) bool {
	return no.Reason == dlock.ReasonFull && no.Holder != (dlock.Holder{}) && no.HeldFor <= e.timer.MaxRunTime
}

func (q *silence) settled(told bool) {
	if told {
		q.ticks = plus(q.ticks, q.open)
	}
	q.open = 0
}

// heardOfSuccess takes in what the store's answer told of a success anywhere, which is that long
// ago. Called with mu held.
func (s *Scheduler) heardOfSuccess(e *entry, age time.Duration) {
	q := &e.state.silence
	// It takes a moment until an answer is here: one that seems a little later is the one that we
	// know of.
	if age == 0 || !q.success.IsZero() && time.Since(q.success)-age <= min(e.interval()/2, time.Second) {
		q.settled(age != 0)
		return
	}
	q.succeeded(time.Now().Add(-age))
}

// says returns what there is to complain about, or nil.
func (q *silence) says(t Timer, failed Outcome, holder dlock.Holder) error {
	if t.AlarmAfter == unlimited || int(q.ticks) < t.AlarmAfter {
		return nil
	}
	last := "ever, as far as this host knows"
	if !q.success.IsZero() {
		last = "since " + q.success.UTC().Format(time.RFC3339)
	}
	return fmt.Errorf("timer %q: %d ticks without a successful run anywhere %s: %s", t.Name, q.ticks, last, q.why(failed, holder))
}

func (q *silence) why(failed Outcome, holder dlock.Holder) string {
	switch q.reason {
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
		return fmt.Sprintf("nobody claims its ticks; here they are skipped: %s", q.reason)
	}
}

// TimersSucceed returns which timers have had no successful run on any host for AlarmAfter ticks,
// and why as far as this host can tell: the dead-man's check. It also returns which have a schedule
// that failed, and which were removed while runs of them ignore their context. It reads memory
// only.
func (s *Scheduler) TimersSucceed() error {
	s.lock()
	defer s.unlock()
	var errs []error
	for e := range s.all() {
		if e.gone { // nobody expects a run of it any more, but to end
			if n := e.state.count((*Run).overdue); n > 0 {
				errs = append(errs, fmt.Errorf("timer %q was removed, but runs of it go on past MaxRunTime and ignore their context: %d", e.timer.Name, n))
			}
			continue
		}
		if fault := e.state.scheduleFault; fault != "" {
			errs = append(errs, fmt.Errorf("timer %q is not due: its schedule failed: %s", e.timer.Name, fault))
		}
		if err := e.state.silence.says(e.timer, Outcome(verdicts[e.state.last.verdict]), e.state.view.holder); err != nil {
			errs = append(errs, err)
		}
	}
	return sorted(errs)
}

func sorted(errs []error) error {
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// interval is how far the latest tick and the next are apart.
func (e *entry) interval() time.Duration {
	if e.next == 0 || e.due == 0 {
		return math.MaxInt64
	}
	return time.UnixMicro(e.next).Sub(time.UnixMicro(e.due)) // which has an end, while microseconds may be thousands of years
}
