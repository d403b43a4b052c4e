package timer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/mask"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer/control"
)

// historyLen is how many ticks of a timer a host keeps.
const historyLen = 16

// A history has the outcomes of the latest ticks of a timer on this host. It grows up to
// historyLen.
type history struct {
	decisions []decision
	errs      *[historyLen]error // parallel to decisions; nil until a decision has an error
	oldest    int
}

// A decision is the outcome of one tick, or of several ticks that were missed together. A process
// may keep millions of decisions. Therefore the struct is small and has no pointers for the garbage
// collector to follow.
type decision struct {
	tick int64 // µs; 0 if the run was triggered
	when int64 // ns; when the decision was made, or when its run began
	// The duration of a run that has ended. For several missed ticks, the time until just before
	// the next tick.
	extent   time.Duration
	slot     int32 // the slot of a run that has ended
	attempts int16
	cause    cause
	verdict  verdict
}

// A cause says what started the run of a decision.
type cause uint8

const (
	causeNone    cause = iota // no run started
	causeUsual                // the schedule, or a Trigger
	causeOnStart              // RunOnStart
)

func causeOf(r *Run) cause {
	if r.onStart {
		return causeOnStart
	}
	return causeUsual
}

func (d *decision) ran() bool { return d.cause != causeNone }

// A verdict is a Reason or an Outcome. 0 means that the run is in progress, or that the reason is
// defined only by the store and is in its error.
type verdict uint8

var verdicts = [...]string{1: string(OutcomeOK), string(OutcomeFailed), string(OutcomePanicked),
	string(OutcomeTimedOut), string(OutcomeLeaseLost), string(OutcomeCanceled), // OutcomeDraining equals ReasonDraining
	string(ReasonMissed), string(ReasonBlackout), string(ReasonHostFull), string(ReasonFull), string(ReasonTickTaken),
	string(ReasonTickFirst), string(ReasonTickLate), string(ReasonTickAhead),
	string(ReasonQuarantine), string(ReasonPaused), string(ReasonStoreDown), string(ReasonStoreSetup),
	string(ReasonStoreFault), string(ReasonStoreBusy), string(ReasonRejoining), string(ReasonDraining),
	string(ReasonTickHeld), string(ReasonLimitFull), string(ReasonMaxRuns), string(ReasonTickEarly),
	string(ReasonLimitRate)}

func verdictOf[T Reason | Outcome](v T) verdict {
	return verdict(max(0, slices.Index(verdicts[:], string(v))))
}

func (v verdict) reason(err error) Reason {
	if v == 0 {
		return reasonOf(err)
	}
	return Reason(verdicts[v])
}

// isOf reports whether the decision belongs to the run.
func (d *decision) isOf(r *Run) bool {
	return d.ran() && d.verdict == 0 && d.tick == r.tick && d.when == r.startedAt.UnixNano()
}

// through returns the last instant that the decision covers, in µs.
func (d *decision) through() int64 {
	if d.ran() {
		return d.tick
	}
	return d.tick + d.extent.Microseconds()
}

// result returns how the run ended, or nil if it has not ended or there was no run.
func (d *decision) result(timer string, h dlock.Holder, err error) *RunResult {
	if !d.ran() || d.verdict == 0 {
		return nil
	}
	r := &RunResult{
		RunInfo: RunInfo{Timer: timer, OnStart: d.cause == causeOnStart, Slot: int(d.slot), Holder: h,
			StartedAt: time.Unix(0, d.when), Attempt: int(d.attempts)},
		Outcome: Outcome(verdicts[d.verdict]), Took: d.extent, Err: err,
	}
	if d.tick != 0 {
		r.Tick = time.UnixMicro(d.tick).UTC()
	}
	return r
}

func (h *history) add(c decision, err error) {
	if len(h.decisions) < historyLen {
		h.decisions = append(h.decisions, decision{})
	} else {
		h.oldest = (h.oldest + 1) % historyLen
	}
	h.set(h.at(len(h.decisions)-1), c, err)
}

// at returns the index of the i-th oldest decision.
func (h *history) at(i int) int { return (h.oldest + i) % len(h.decisions) }

func (h *history) set(i int, c decision, err error) {
	h.decisions[i] = c
	if err != nil && h.errs == nil {
		h.errs = new([historyLen]error)
	}
	if h.errs != nil {
		h.errs[i] = err
	}
}

// find returns the index of the latest decision about a tick, or -1 if there is none.
func (h *history) find(tick int64) int {
	for n := len(h.decisions) - 1; n >= 0; n-- {
		i := h.at(n)
		if d := &h.decisions[i]; d.tick <= tick && tick <= d.through() {
			return i
		}
	}
	return -1
}

// get returns a decision and its error, or nil if there is none.
func (h *history) get(i int) (*decision, error) {
	if i < 0 {
		return nil, nil
	}
	if h.errs == nil {
		return &h.decisions[i], nil
	}
	return &h.decisions[i], h.errs[i]
}

// decidedAt returns when a decision was made.
func decidedAt(c *decision) time.Time {
	if c == nil {
		return time.Time{}
	}
	return time.Unix(0, c.when)
}

// An Explanation says why a tick ran or did not run, as far as this host and the store know.
type Explanation struct {
	Timer string
	Tick  time.Time
	Host  dlock.Holder // the host that made the explanation

	Known  bool   // this host has kept the tick: the fields below, up to Text, are set
	Reason Reason // why the tick did not run here; "" if it ran here
	// Err is the store's answer, if the store decided. A *dlock.NotAcquiredError has the holder,
	// the pause, and times.
	Err  error
	Slot int        // the slot of the run, if it ran here; else -1
	Run  *RunResult // the result of the run, if it ran here and has ended

	// These fields come from the store. They are zero if the store was not called, does not know,
	// or did not answer.
	LastTick  time.Time     // the latest tick that any host claimed
	ClaimedBy dlock.Holder  // the host that claimed LastTick last
	Pause     *driver.Pause // the current pause

	// LastTickAhead means that LastTick was claimed while the store's clock was ahead, and is still
	// in the store's future. Such a claim is ignored and does not prevent any tick from running.
	LastTickAhead bool

	Text string // the explanation in words
}

func (e Explanation) String() string { return e.Text }

// Explain says why a tick of a timer ran or did not run. It uses this host's record of the last 16
// ticks. With one call it also asks the store, which knows the overrides and which host claimed the
// latest tick. The zero time means the latest tick on this host. Explain returns ErrNoTimer for a
// timer that is not registered on this host. If the store does not answer, the explanation is less
// complete, but Explain returns no error.
func (s *Scheduler) Explain(ctx context.Context, timer string, tick time.Time) (Explanation, error) {
	set := s.registry.get(timer)
	if set == nil {
		return Explanation{}, fmt.Errorf("%w: %q", ErrNoTimer, timer)
	}
	x := Explanation{Timer: timer, Host: s.config.Holder, Slot: -1}
	x.Tick = schedule.RoundUp(tick).UTC()
	next, due := set.entry.ticks.read()
	if tick.IsZero() && due != 0 {
		x.Tick = time.UnixMicro(due).UTC()
	}
	var found *decision
	var why error
	if !x.Tick.IsZero() {
		found, x.Slot, why = decided(set, x.Tick.UnixMicro())
	}
	w := wording{next: next, said: decidedAt(found), due: due, window: set.catchUpWindow(), shared: set.shared(),
		timer: set.timer, perHost: set.hostLimit(), maxRuns: s.config.MaxRuns}
	switch {
	case found == nil:
	case !found.ran():
		x.Known, x.Reason, x.Err = true, found.verdict.reason(why), why
	default:
		x.Known, x.Run, w.onStart = true, found.result(timer, x.Host, why), found.cause == causeOnStart
	}
	several := found != nil && found.through() != found.tick
	if !x.Tick.IsZero() && (found == nil || several) { // without a mutex, because isTick calls the schedule
		w.isTick = isTick(set.timer.Schedule, x.Tick)
		if _, fixed := set.delay(); fixed { // a fixed delay has no other ticks that are known
			w.isTick = x.Tick.UnixMicro() == next || x.Tick.UnixMicro() == due
		}
		x.Known = x.Known && w.isTick // an instant between two missed ticks is not a tick
		if w.isTick {
			w.left = s.planner.schedules.startsAt(set, x.Tick).Sub(s.planner.now())
		}
	}
	if !x.Known {
		x.Reason = ""
	}
	if w.shared {
		x.inspect(ctx, s.Control())
	}
	x.Text = x.words(w)
	return x, nil
}

// decided returns what this host decided about a tick, and the slot in which its run is or was. It
// returns nil if this host knows of no decision.
func decided(s *settings, tick int64) (found *decision, slot int, why error) {
	e := s.entry
	e.mu.Lock() // so that no run of the timer begins or ends in the meantime
	defer e.mu.Unlock()
	if c, err := e.record.history.get(e.record.history.find(tick)); c != nil {
		copied := *c
		found, why = &copied, err
	}
	if found == nil || !found.ran() {
		return found, -1, why
	}
	slot = int(found.slot)
	for _, r := range e.runs {
		if r != nil && found.isOf(r) {
			slot = r.Slot()
		}
	}
	return found, slot, why
}

// inspect adds the information from the store.
func (e *Explanation) inspect(ctx context.Context, c *control.Control) {
	o, err := c.Inspect(ctx, e.Timer)
	if err != nil {
		return
	}
	e.LastTick, e.ClaimedBy, e.LastTickAhead, e.Pause = o.LastTick, o.ClaimedBy, o.LastTickAhead, o.Pause
	if !o.LastTick.IsZero() {
		e.LastTick = o.LastTick.UTC()
	}
}

// A wording has the values that the text of an Explanation needs in addition to the Explanation.
type wording struct {
	timer   Timer
	next    int64 // µs
	due     int64 // the latest due tick, µs
	said    time.Time
	left    time.Duration
	window  time.Duration
	perHost int
	maxRuns int
	isTick  bool
	shared  bool
	onStart bool // RunOnStart started the run
}

func (e *Explanation) words(w wording) string {
	text := fmt.Sprintf("%s at %s: ", e.Timer, e.Tick.Format(time.RFC3339Nano))
	switch at := e.Tick.UnixMicro(); {
	case e.Known:
		text += e.here(w)
	case e.Tick.IsZero():
		return fmt.Sprintf("%s: no tick has come due on this host yet", e.Timer)
	case !w.isTick && at != w.due: // with RunOnStartEachHost, due is the time of the start
		return text + "not a tick of its schedule"
	case w.next != 0 && at >= w.next && w.left > 0:
		return text + fmt.Sprintf("not due yet on %s, for another %v", e.Host, w.left.Round(time.Millisecond))
	case at == w.due:
		text += fmt.Sprintf("being tried on %s, or waiting to be", e.Host)
	default:
		text += fmt.Sprintf("%s does not remember it (it keeps the last %d since it was started)", e.Host, historyLen)
	}
	switch {
	case e.LastTickAhead:
		text += fmt.Sprintf("; the store's clock was ahead: the latest tick that was claimed, %s, is in its future "+
			"and is ignored", e.LastTick.Format(time.RFC3339Nano))
	case e.Known && e.Reason == "":
	case e.LastTick.Equal(e.Tick) && e.ClaimedBy == e.Host:
		text += "; according to the store, this host claimed it last"
	case e.LastTick.Equal(e.Tick):
		text += fmt.Sprintf("; it was claimed last by %s", e.ClaimedBy)
	case e.LastTick.After(e.Tick):
		text += fmt.Sprintf("; the latest tick that was claimed is %s, by %s", e.LastTick.Format(time.RFC3339Nano),
			e.ClaimedBy)
	case !e.LastTick.IsZero():
		text += fmt.Sprintf("; no host claimed it: the latest that was claimed is %s, by %s",
			e.LastTick.Format(time.RFC3339Nano), e.ClaimedBy)
	}
	if e.Pause != nil && e.Reason != ReasonPaused {
		text += fmt.Sprintf("; paused now %s, for another %v", e.Pause.Cause, e.Pause.For.Round(time.Second))
	}
	return text
}

// here describes the outcome of the tick on this host.
func (e *Explanation) here(w wording) string {
	if e.Reason != "" {
		return fmt.Sprintf("did not run here, on %s: %s: %s", e.Host, e.Reason, e.why(w))
	}
	slot := "without a slot of the store's" // the run started and ended during an outage
	if e.Slot >= 0 {
		slot = fmt.Sprintf("in slot %d", e.Slot)
	}
	if w.onStart {
		slot += ", because of RunOnStart"
	}
	if e.Run == nil {
		return fmt.Sprintf("runs here, on %s, %s", e.Host, slot)
	}
	text := fmt.Sprintf("ran here, on %s, %s, from %s for %v: %s", e.Host, slot,
		e.Run.StartedAt.UTC().Format(time.RFC3339Nano), e.Run.Took.Round(time.Millisecond), e.Run.Outcome)
	if e.Run.Attempt > 1 {
		text += fmt.Sprintf(" after %d attempts", e.Run.Attempt)
	}
	if e.Run.Err != nil {
		text += ": " + mask.Text(fmt.Sprint(e.Run.Err))
	}
	return text
}

// why explains the reason to people, including the store's answer if the store refused the tick.
func (e *Explanation) why(w wording) string {
	if no, refused := errors.AsType[*dlock.NotAcquiredError](e.Err); refused {
		text := no.Error()
		switch {
		case (no.Reason == dlock.ReasonFull || no.Reason == dlock.ReasonLimitFull) && no.Holder != (dlock.Holder{}):
			text += ": since " + w.said.Add(-no.HeldFor).UTC().Format(time.RFC3339Nano)
		case (no.Reason == dlock.ReasonPaused || no.Reason == dlock.ReasonLimitRate) && no.ExpiresIn > 0:
			text += ": until " + w.said.Add(no.ExpiresIn).UTC().Format(time.RFC3339Nano)
		}
		return text
	}
	if _, failed := errors.AsType[*dlock.StoreError](e.Err); e.Reason == ReasonStoreDown && e.Err != nil && !failed {
		// The breaker was open, so the error belongs to another call.
		return "the store did not answer: " + mask.Text(fmt.Sprint(e.Err))
	}
	if e.Err != nil {
		return mask.Text(e.Err.Error())
	}
	switch e.Reason {
	case ReasonMissed:
		if w.window == 0 {
			return "this host came to it late, or a later one was due already, and CatchUp says to skip it"
		}
		return fmt.Sprintf("this host came to it late, and a later one was due already, or it was older than "+
			"CatchUp.Window (%v)",
			w.window)
	case ReasonHostFull:
		return fmt.Sprintf("MaxPerHost (%d) runs were active", w.perHost)
	case ReasonMaxRuns:
		return fmt.Sprintf("MaxRuns (%d) runs of all timers were active, until the next tick came due or for MaxWait",
			w.maxRuns)
	case ReasonStoreDown:
		return "the store did not answer"
	case ReasonStoreBusy:
		return fmt.Sprintf("%d calls to the store were under way on this host until the next tick came due: it "+
			"answered slowly, or too much was due at once",
			maxInFlight)
	case ReasonQuarantine:
		return "the store had restarted and granted nothing yet, and the next tick was due, or the host was " +
			"shutting down"
	case ReasonRejoining:
		return "the store was back, and a run that had continued here without it held no slot yet"
	case ReasonDraining:
		return "the host was shutting down, or the timer was removed"
	default:
		return "no more is known"
	}
}

// isTick reports whether t is a tick of the schedule.
func isTick(s schedule.Schedule, t time.Time) bool {
	if s == nil {
		return false
	}
	next, err := schedule.Next(s, t.Add(-time.Microsecond))
	return err == nil && next.Equal(t)
}

// Decisions returns this host's decisions about the latest ticks of the timer, up to 16, newest
// first. Each is Known. Its Text has only the reason, or how the run went. Decisions reads this
// host's current state, not the snapshot. It does not include the decisions of other hosts: see
// Scheduler.Explain.
func (t TimerStatus) Decisions() []Explanation {
	if t.host == nil {
		return nil
	}
	s := t.settings
	w := wording{timer: s.timer, window: s.catchUpWindow(), perHost: s.hostLimit(), maxRuns: t.host.config.MaxRuns}
	found, errs, slots := remembered(s)
	list := make([]Explanation, 0, len(found))
	for i, d := range found {
		x := Explanation{Timer: t.Name, Tick: time.UnixMicro(d.tick).UTC(), Host: t.host.config.Holder, Known: true,
			Slot: -1}
		w.said, w.onStart = decidedAt(&d), d.cause == causeOnStart
		if d.ran() {
			x.Slot, x.Run = slots[i], d.result(t.Name, x.Host, errs[i])
		} else {
			x.Reason, x.Err = d.verdict.reason(errs[i]), errs[i]
		}
		x.Text = x.brief(w)
		if !d.ran() && d.extent > 0 {
			x.Text += ", and so were those until " + time.UnixMicro(d.through()).UTC().Format(time.RFC3339)
		}
		list = append(list, x)
	}
	return list
}

// brief returns the text of why or here. It omits the values that are shown next to the text: the
// timer, the tick, the host and the reason.
func (e *Explanation) brief(w wording) string {
	if e.Reason != "" {
		return strings.TrimPrefix(e.why(w), w.timer.lockName()+": not acquired: ")
	}
	text := e.here(w)
	for _, what := range []string{"ran", "runs"} {
		text = strings.TrimPrefix(text, fmt.Sprintf("%s here, on %s, ", what, e.Host))
	}
	return text
}

// remembered returns the decisions that this host has kept about a timer, newest first, with their
// errors and the slots of the runs.
func remembered(s *settings) (found []decision, errs []error, slots []int) {
	e := s.entry
	e.mu.Lock() // so that no run of the timer begins or ends in the meantime
	defer e.mu.Unlock()
	r := &e.record
	for n := len(r.history.decisions) - 1; n >= 0; n-- {
		c, err := r.history.get(r.history.at(n))
		found, errs, slots = append(found, *c), append(errs, err), append(slots, int(c.slot))
	}
	for i := range found {
		for _, r := range e.runs {
			if r != nil && found[i].isOf(r) {
				slots[i] = r.Slot()
			}
		}
	}
	return found, errs, slots
}
