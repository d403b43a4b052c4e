package timer

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/schedule"
)

// A timer with schedule.After is due a delay after its last run in the fleet has ended. The store
// knows when that run ended, and refuses claims that come too early. The gate refuses them too, for
// runs of this host. The planner only decides when to call the store: at the end of the delay that
// the store has reported, at the end of the delay after a run on this host, and otherwise from time
// to time. Therefore a tick of such a timer is a time at which this host calls the store. A part
// that learns a more accurate time calls moveNext, and the scheduling goroutine moves the tick.

const (
	// If a tick starts no run, the next tick follows after the delay, within these bounds, unless
	// the store says when.
	minRetryIn = time.Second
	maxRetryIn = time.Minute
)

// programStart is the zero of the times at which runs ended. It has a monotonic clock reading, so
// that changes of the wall clock do not matter.
var programStart = time.Now()

// fixedDelays has the timers with a fixed delay. registry.mu guards it.
type fixedDelays map[*entry]*fixedDelay

// A fixedDelay is the planner's state of such a timer. The next tick is in entry.ticks and may be
// moved. entry.planned is the time of the heap item, which may be earlier than the tick.
type fixedDelay struct {
	wait    time.Duration
	counted int64 // the latest tick that counts towards AlarmAfter, µs
}

// delay returns the fixed delay of a timer. ok is false if it has none.
func (s *settings) delay() (d time.Duration, ok bool) {
	after, ok := s.timer.Schedule.(schedule.FixedDelay)
	return after.Delay(), ok
}

// retryIn returns the time from a tick that started no run until the next tick.
func retryIn(delay time.Duration) time.Duration { return min(max(delay, minRetryIn), maxRetryIn) }

// planned records the timer in f if the timer has a fixed delay.
func (f fixedDelays) planned(s *settings) {
	wait, fixed := s.delay()
	if !fixed {
		return
	}
	if f[s.entry] == nil {
		f[s.entry] = new(fixedDelay)
	}
	f[s.entry].wait = wait
}

// isRetry reports whether less than the delay has passed since the latest tick that counts towards
// AlarmAfter. Such a tick does not count. Otherwise isRetry records the tick as the latest that
// counts.
func (f fixedDelays) isRetry(e *entry, tick int64) bool {
	d := f[e]
	if d == nil {
		return false
	}
	if since := tick - d.counted; since >= 0 && since < d.wait.Microseconds() {
		return true // since is negative if the clock was set back
	}
	d.counted = tick
	return false
}

// isDue reports whether an item of the heap is the next tick of its timer. If the tick was moved to
// a later time, or if a run or an attempt is in progress on this host, the item goes back into the
// heap. If the run ignores its context, the item does not go back, so that ticks count towards
// AlarmAfter.
func (f fixedDelays) isDue(it item, heap *tickHeap, now time.Time) bool {
	e, d := it.e, f[it.e]
	if d == nil {
		return true
	}
	next, _ := e.ticks.read()
	if next <= it.when && e.places.Load() > 0 && e.overdue.Load() == 0 {
		again := schedule.RoundUp(now.Add(retryIn(d.wait)))
		e.ticks.set(0, again)
		next = again.UnixMicro()
	}
	if next <= it.when {
		return true
	}
	e.planned = next
	heap.push(item{when: next, e: e})
	return false
}

// delayLeft returns the rest of a fixed delay since the last run on this host. It returns 0 if the
// delay is over, or if the timer has none. The last run may belong to an earlier timer with the
// same name.
func (s *settings) delayLeft() time.Duration {
	delay, fixed := s.delay()
	ended := s.entry.endedAt.Load()
	if !fixed || ended == 0 {
		return 0
	}
	return max(0, delay-(time.Since(programStart)-time.Duration(ended)))
}

// A move is a request to change the time of the next tick of a timer with a fixed delay.
type move struct {
	s  *settings
	at time.Time // monotonic
}

// moveNext moves the next tick of a timer with a fixed delay, but not before the end of the delay.
func (w *waiting) moveNext(s *settings, wait time.Duration) {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	w.moves = append(w.moves, move{s, time.Now().Add(wait)})
	w.bell.ring()
}

// moveTicks moves the next ticks of timers with a fixed delay. It ignores timers whose schedule has
// changed since. The caller holds the registry's mutex.
func (p *planner) moveTicks() {
	for _, m := range p.waiting.moves {
		if p.fixed[m.s.entry] != nil && m.s.stillScheduled() {
			p.move(m.s.entry, time.Until(m.at))
		}
	}
	p.waiting.moves = nil
}

// updated moves the first tick of an updated timer to the end of the delay since the last run on
// this host. The caller holds the registry's mutex.
func (f fixedDelays) updated(p *planner, e *entry) {
	if left := e.settings.Load().delayLeft(); f[e] != nil && left > 0 {
		p.move(e, left)
	}
}

// move moves the next tick of a timer with a fixed delay. The caller holds the registry's mutex.
func (p *planner) move(e *entry, wait time.Duration) {
	s := e.settings.Load()
	if p.stopped || s.removed() {
		return
	}
	when := schedule.RoundUp(p.now().Add(max(wait, s.delayLeft(), time.Millisecond)))
	e.ticks.set(0, when)
	if when.UnixMicro() < e.planned { // otherwise the item is pushed back when it is due
		p.plan(e, when.UnixMicro())
		p.bell.ring()
	}
}

// dueAfterDelay is like due, for a timer with a fixed delay. Its next tick is only a time to call
// the store if nothing else gives a better one. Times that have passed are therefore not missed
// ticks.
func (s *schedules) dueAfterDelay(set *settings, tick, now time.Time, delay time.Duration) (c dueTicks) {
	c.first, c.last, c.due = tick, tick, tick
	again := now.Add(retryIn(delay))
	if c.blackout = s.blackout(set, now); c.blackout != nil {
		again = later(now.Add(minRetryIn), s.blackoutEnds(set, now, again))
	}
	again = schedule.RoundUp(again)
	c.next = plan{tick: again, due: again}
	return c
}

// blackoutEnds returns when the blackout that contains t may end. If the blackout does not say, it
// returns otherwise.
func (s *schedules) blackoutEnds(set *settings, t, otherwise time.Time) time.Time {
	for _, list := range [...][]schedule.Blackout{set.timer.Blackouts, s.blackouts} {
		if until, _, err := schedule.BlackedOut(list, t); err == nil && !until.IsZero() {
			return until
		}
	}
	return otherwise
}

// An earlyError says that the delay since a run on this host is not over.
type earlyError struct{ left time.Duration }

func (e *earlyError) Error() string {
	return fmt.Sprintf("the delay since the last run here ended is not over, for another %v",
		e.left.Round(time.Millisecond))
}

// checkDelay returns every fault of a timer with a fixed delay.
func (t Timer) checkDelay(store dlock.DistributedLock) (errs []error) {
	after, fixed := t.Schedule.(schedule.FixedDelay)
	if !fixed {
		return nil
	}
	fault := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("timer %.60q: %s: "+format, append([]any{t.Name, field}, args...)...))
	}
	const one = "%d: After counts from the end of the only run, so one may be in progress at a time: use 1, or " +
		"another schedule"
	if t.MaxConcurrency != 0 && t.MaxConcurrency != 1 {
		fault("MaxConcurrency", one, t.MaxConcurrency)
	}
	if t.MaxPerTick != 0 && t.MaxPerTick != 1 {
		fault("MaxPerTick", one, t.MaxPerTick)
	}
	if t.CatchUp != (CatchUp{}) {
		fault("CatchUp", "with After with After a late run is not missed: it starts as soon as it can: take it out")
	}
	if t.RunOnStart != RunOnStartNever {
		fault("RunOnStart", "a timer with After starts at once anyway, unless it ran less than that ago: take it out")
	}
	if t.Delay != (Delay{}) {
		fault("Delay", "After has no instants that could be delayed: use a longer After")
	}
	if store == nil || t.LocalOnly {
		return errs
	}
	delayer := driver.CapabilitiesOf(store).Delayer
	if delayer == nil {
		fault("Schedule", "the store (%s) does not know when a run ended, which After needs: use redislock, sqllock "+
			"or memlock, or set LocalOnly", storeLabel(store))
	} else if err := guard.Call("store", func() error { return delayer.CheckDelay(after.Delay()) }); err != nil {
		fault("Schedule", "%w; or set LocalOnly", err)
	}
	return errs
}
