package timer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// historyLen is how many ticks of a timer a host remembers.
const historyLen = 16

// A history is what became of the latest ticks of a timer on this host. It grows with use.
type history struct {
	decisions []decision
	oldest    int
}

// A decision is what became of one tick, or of several that were missed together.
type decision struct {
	tick    int64  // µs
	through int64  // µs, the last of several; 0: one tick
	reason  Reason // "": it ran
	why     error
	run     *Run
	result  *RunResult
}

func (h *history) add(c decision) {
	if len(h.decisions) < historyLen {
		h.decisions = append(h.decisions, c)
		return
	}
	h.decisions[h.oldest] = c
	h.oldest = (h.oldest + 1) % historyLen
}

// find returns the latest decision about a tick, or nil.
func (h *history) find(tick int64) *decision {
	for i := len(h.decisions) - 1; i >= 0; i-- {
		d := &h.decisions[(h.oldest+i)%len(h.decisions)]
		if d.tick == tick || d.tick < tick && tick <= d.through {
			return d
		}
	}
	return nil
}

// latest returns the latest decision, or nil.
func (h *history) latest() *decision {
	if len(h.decisions) == 0 {
		return nil
	}
	return &h.decisions[(h.oldest+len(h.decisions)-1)%len(h.decisions)]
}

// An Explanation is why a tick ran, or did not, as this host and the store know it.
type Explanation struct {
	Timer string
	Tick  time.Time
	Host  dlock.Holder // whose explanation it is

	Known  bool       // this host remembers the tick: the fields below, up to Text, are true
	Reason Reason     // the door that stopped it here; "": it ran here
	Err    error      // what the store said, if it was the store: a *dlock.NotAcquiredError names holder, pause, and times
	Slot   int        // it ran here: in which slot
	Result *RunResult // it ran here, and has ended

	// What the store knows; zero if it was not asked, does not tell, or did not answer.
	Claimed time.Time    // the latest tick that any host claimed
	Claimer dlock.Holder // and the host that did so last
	Paused  *dlock.Pause // now

	Text string // all of it in words
}

func (x Explanation) String() string { return x.Text }

// Explain tells why a tick of a timer ran, or did not: from this host's memory of its last 16 ticks and, with one call, from the store, which knows who
// claimed the latest tick and what is ordered now. The zero time means the latest tick on this host. It returns ErrUnknown for a timer that is
// not registered here. A store that does not answer makes it know less, not fail.
func (s *Scheduler) Explain(ctx context.Context, timer string, tick time.Time) (Explanation, error) {
	s.lock()
	e := s.entries[timer]
	if e == nil {
		s.unlock()
		return Explanation{}, fmt.Errorf("%w: %q", ErrUnknown, timer)
	}
	x := Explanation{Timer: timer, Host: s.config.Holder, Slot: -1}
	at := ceilMicro(tick).UnixMicro()
	var found *decision
	if d := e.detail; d != nil {
		found = d.history.find(at)
		if tick.IsZero() {
			found = d.history.latest()
		}
	}
	switch {
	case found == nil:
		x.Tick = ceilMicro(tick).UTC()
	case tick.IsZero():
		x.Tick = time.UnixMicro(max(found.tick, found.through)).UTC()
	default:
		x.Tick = time.UnixMicro(at).UTC()
	}
	if found != nil {
		x.Known, x.Reason, x.Err, x.Result = true, found.reason, found.why, found.result
		if found.run != nil {
			x.Slot = found.run.Slot()
		}
	}
	next, schedule, shared := e.next, e.timer.Schedule, s.shared(e)
	s.unlock()
	if shared {
		s.askStore(ctx, &x)
	}
	x.Text = x.words(schedule, next, s.now())
	return x, nil
}

// askStore adds what the store knows.
func (s *Scheduler) askStore(ctx context.Context, x *Explanation) {
	o, err := s.Control().Orders(ctx, x.Timer)
	if err != nil {
		return
	}
	x.Claimed, x.Claimer, x.Paused = o.Tick, o.Holder, o.Pause
	if !o.Tick.IsZero() {
		x.Claimed = o.Tick.UTC()
	}
}

func (x *Explanation) words(schedule Schedule, next int64, now time.Time) string {
	at := x.Tick.Format(time.RFC3339Nano)
	text := fmt.Sprintf("%s at %s: ", x.Timer, at)
	switch {
	case x.Known:
		text += x.here()
	case x.Tick.IsZero():
		return fmt.Sprintf("%s: no tick has come due on this host yet", x.Timer)
	case !isTick(schedule, x.Tick):
		return text + "not a tick of its schedule"
	case next != 0 && x.Tick.UnixMicro() >= next && x.Tick.After(now):
		return text + fmt.Sprintf("not due yet, for another %v", x.Tick.Sub(now).Round(time.Millisecond))
	default:
		text += "this host does not remember it (it keeps the last 16 ticks since it was started)"
	}
	switch {
	case x.Known && x.Reason == "":
	case x.Claimed.Equal(x.Tick) && x.Claimer == x.Host:
		text += "; the store has it that this host claimed it last"
	case x.Claimed.Equal(x.Tick):
		text += fmt.Sprintf("; it was claimed last by %s", x.Claimer)
	case x.Claimed.After(x.Tick):
		text += fmt.Sprintf("; the latest tick that was claimed is %s, by %s", x.Claimed.Format(time.RFC3339Nano), x.Claimer)
	case !x.Claimed.IsZero():
		text += fmt.Sprintf("; no host claimed it: the latest that was claimed is %s, by %s", x.Claimed.Format(time.RFC3339Nano), x.Claimer)
	}
	if x.Paused != nil && x.Reason != Paused {
		text += fmt.Sprintf("; paused now %s, for another %v", x.Paused.Order, x.Paused.For.Round(time.Second))
	}
	return text
}

// here says what became of the tick on this host.
func (x *Explanation) here() string {
	no, refused := errors.AsType[*dlock.NotAcquiredError](x.Err)
	switch {
	case x.Reason == "" && x.Result == nil:
		return fmt.Sprintf("runs here, on %s, in slot %d", x.Host, x.Slot)
	case x.Reason == "" && x.Result.Err != nil:
		return fmt.Sprintf("ran here, on %s, in slot %d, from %s for %v: %s: %v", x.Host, x.Slot,
			x.Result.Started.UTC().Format(time.RFC3339Nano), x.Result.Took.Round(time.Millisecond), x.Result.Outcome, x.Result.Err)
	case x.Reason == "":
		return fmt.Sprintf("ran here, on %s, in slot %d, from %s for %v: %s", x.Host, x.Slot,
			x.Result.Started.UTC().Format(time.RFC3339Nano), x.Result.Took.Round(time.Millisecond), x.Result.Outcome)
	case refused:
		return fmt.Sprintf("did not run here, on %s: %s: %v", x.Host, x.Reason, no)
	case x.Err != nil:
		return fmt.Sprintf("did not run here, on %s: %s: %v", x.Host, x.Reason, x.Err)
	default:
		return fmt.Sprintf("did not run here, on %s: %s", x.Host, x.Reason)
	}
}

// isTick asks the schedule.
func isTick(schedule Schedule, t time.Time) bool {
	if schedule == nil {
		return false
	}
	next, err := nextTick(schedule, t.Add(-time.Microsecond))
	return err == nil && next.Equal(t)
}
