package timer

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/schedule"
)

// A tick is a scheduled instant that has come due, the same on every host. A host may try it later:
// because of Delay, because the host was asleep, or because it lets other hosts go first. A tick
// without an instant stands for a Trigger.
type tick struct {
	s        *settings // the settings with which it is tried
	at       int64     // µs; 0: a Trigger
	missedAt int64     // µs, when it came due, if this host missed it; otherwise 0
	yielded  bool      // it has already yielded to other hosts
	onStart  bool      // it is the tick of RunOnStart
	ownStart bool      // it is the instant at which this host started, so it is not claimed
	// When it began to wait, for a run to end (FullWait) or for a place (MaxRuns); zero: it has not
	// waited.
	waitsSince time.Time
}

// anew returns a tick as it is tried after a wait: with the present settings of its timer. The
// blackouts have to be asked again, because the wait may have been long, or the blackouts may have
// been replaced.
func (t tick) anew() tick {
	t.s, t.yielded = t.s.entry.settings.Load(), false
	return t
}

// A plan is the next tick of a timer.
type plan struct {
	tick   time.Time // zero: nothing
	due    time.Time // when this host tries it, Delay included
	atOnce tick      // a tick to try when this host starts: of RunOnStart, or missed; zero: none
}

// dueTicks are the ticks of a timer that have come due.
type dueTicks struct {
	first, last time.Time     // ticks; the last one is tried
	missed      uint64        // how many ticks, from first to just before last
	due         time.Time     // when this host was to try the last tick
	late        time.Duration // how much later than that it is now
	blackout    error         // the blackout that the last tick falls into, or nil
	next        plan
	err         error // of the schedule
}

// schedules asks schedules and blackouts. They may be user code, which may call the Scheduler, so
// it is used without a mutex, and has no state.
type schedules struct {
	host      dlock.Holder
	blackouts []schedule.Blackout // of all timers
}

// due asks the schedule and the blackouts about a tick that should have been tried at due.
func (s *schedules) due(set *settings, tick, due, now time.Time) (c dueTicks) {
	if delay, fixed := set.delay(); fixed {
		return s.dueAfterDelay(set, tick, now, delay)
	}
	var next time.Time
	c.first = tick
	c.last, next, c.missed, c.err = schedule.Advance(set.timer.Schedule, tick, now.Add(-set.spread(s.host)))
	if !c.last.Equal(tick) {
		due = s.startsAt(set, c.last)
		if due.After(now) { // the last one is still delayed by its jitter, so the one before it is tried
			c.last, next, c.missed, c.err = schedule.Advance(set.timer.Schedule, tick, c.last.Add(-time.Microsecond))
			due = s.startsAt(set, c.last)
		}
	}
	c.due, c.late = due, now.Sub(due)
	c.blackout = s.blackout(set, due)
	if c.blackout == nil && c.late > lateGrace && c.late <= set.catchUpWindow() {
		c.blackout = s.blackout(set, now) // a missed tick would start now
	}
	c.next = s.planned(set, next)
	return c
}

// first asks the schedule for the first tick after a given one that this host has yet to try.
func (s *schedules) first(set *settings, now, after time.Time) (plan, error) {
	if set.timer.Schedule == nil {
		return plan{}, nil
	}
	if _, fixed := set.delay(); fixed { // due now; the store knows when the last run ended
		return s.planned(set, schedule.RoundUp(now.Round(0))), nil
	}
	next, err := schedule.Next(set.timer.Schedule, later(now.Add(-set.spread(s.host)), after))
	if err != nil {
		return plan{}, err
	}
	if late := s.delayed(set, now, next); late.After(after) {
		next = late
	}
	return s.planned(set, next), nil
}

// delayed returns the tick before next if its jitter still delays that tick, or the zero time.
func (s *schedules) delayed(set *settings, now, next time.Time) time.Time {
	if set.timer.Delay.Jitter == 0 || next.IsZero() {
		return time.Time{}
	}
	reached := now.Add(-set.spread(s.host))
	// jitterBound is the longest time that its jitter can delay a tick.
	jitterBound := float64(next.Sub(reached)) * set.timer.Delay.Jitter / (1 - set.timer.Delay.Jitter)
	last := schedule.Latest(set.timer.Schedule, reached, time.Duration(min(jitterBound, math.MaxInt64/2)))
	if last.IsZero() || !s.startsAt(set, last).After(now) {
		return time.Time{}
	}
	return last
}

// planned returns the plan for a tick.
func (s *schedules) planned(set *settings, tick time.Time) plan {
	if tick.IsZero() {
		return plan{}
	}
	return plan{tick: tick, due: s.startsAt(set, tick)}
}

// startsAt returns when this host tries a tick, Delay included.
func (s *schedules) startsAt(set *settings, tick time.Time) time.Time {
	return tick.Add(set.spread(s.host) + set.jitter(tick))
}

// askAgain asks a schedule that failed for the tick after the latest that came due, so that ticks
// that came due meanwhile are counted. If the schedule fails again, it asks for the first tick from
// now on.
func (s *schedules) askAgain(set *settings, due int64, now time.Time) (plan, error) {
	var after time.Time
	if due != 0 {
		after = time.UnixMicro(due)
		if next, err := schedule.Next(set.timer.Schedule, after); err == nil {
			return s.planned(set, next), nil
		}
	}
	next, err := s.first(set, now, after)
	if err == nil && due == 0 {
		next.atOnce = s.atOnce(set, now)
	}
	return next, err
}

// updated returns the first tick of a timer that was updated. begun says whether Run has planned
// the timer before; if not, it is planned like a timer that was there when Run started. interval is
// the time between the latest and the next tick of the old schedule.
func (s *schedules) updated(
	old, set *settings, now time.Time, interval time.Duration, begun bool,
) (plan, error) {
	if !begun {
		first, err := s.first(set, now, time.Time{})
		first.atOnce = s.atOnce(set, now)
		return first, err
	}
	ticks := &set.entry.ticks
	next, _ := ticks.read()
	if tick := time.UnixMicro(next); next != 0 && !tick.After(now) {
		// The tick has come due, and its delay is not over, or this host has not handled it yet.
		when := s.startsAt(set, tick)
		if was := s.startsAt(old, tick); was.After(when) { // the tick is not as late as it seems
			when = later(when, earlier(was, now))
		}
		return plan{tick: tick, due: when}, nil
	}
	if _, fixed := set.delay(); fixed && next != 0 && s.blackout(old, now) == nil {
		return s.planned(set, time.UnixMicro(next)), nil // the store, or a run that ended here, has set it
	}
	first, err := s.first(set, now, ticks.tried(now, interval))
	if err == nil && set.nth == old.nth {
		first.atOnce = s.lastMissed(set, now)
	}
	return first, err
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// usesUserCode reports whether a timer's schedule or blackouts may be user code. Such code may take
// a long time, and other timers must not wait for it: these items are dispatched last, one by one.
func (s *schedules) usesUserCode(set *settings) bool {
	_, ours := set.timer.Schedule.(schedule.Interval)
	if _, fixed := set.delay(); fixed {
		ours = true
	}
	return !ours || s.hasBlackouts(set)
}

func (s *schedules) hasBlackouts(set *settings) bool {
	return len(set.timer.Blackouts) > 0 || len(s.blackouts) > 0
}

// blackout returns an error if no run may start at t.
func (s *schedules) blackout(set *settings, t time.Time) error {
	for _, list := range [...][]schedule.Blackout{set.timer.Blackouts, s.blackouts} {
		until, by, err := schedule.BlackedOut(list, t)
		if err != nil {
			return &brokenBlackout{err} // the blackout may have been meant to prevent this start
		}
		if !until.IsZero() {
			return fmt.Errorf("%s, until %s at the earliest", schedule.Describe(by),
				until.UTC().Format(time.RFC3339Nano))
		}
	}
	return nil
}

// blackoutAgain returns an error if a tick that is tried again may not start.
func (s *schedules) blackoutAgain(t tick, now time.Time) error {
	if t.yielded {
		return nil // it came due a moment ago, and the blackouts were asked then
	}
	if t.missedAt != 0 {
		if err := s.blackout(t.s, time.UnixMicro(t.missedAt)); err != nil {
			return err
		}
	}
	return s.blackout(t.s, now)
}

// A brokenBlackout panicked, or returned an end that is not later.
type brokenBlackout struct{ err error }

func (b *brokenBlackout) Error() string {
	return fmt.Sprintf("nothing starts, because it does not say until when it lasts: %v", b.err)
}

const (
	// maxDelay bounds Delay.ByTimer and Delay.ByHost.
	maxDelay = 24 * time.Hour
	// maxJitter bounds Delay.Jitter, so that ticks keep their order.
	maxJitter = 0.5
)

// spread returns the fixed part of a timer's delay on this host.
func (s *settings) spread(host dlock.Holder) (d time.Duration) {
	if s.timer.Delay.ByTimer > 0 {
		d = time.Duration(hashed(s.timer.Name, "") % uint64(s.timer.Delay.ByTimer))
	}
	if s.timer.Delay.ByHost > 0 {
		d += time.Duration(hashed(s.timer.Name, host.Host) % uint64(s.timer.Delay.ByHost))
	}
	return d.Truncate(time.Microsecond)
}

// jitter returns the part of the delay that differs from tick to tick; it is the same on every
// host. It asks the schedule, so call it without a mutex.
func (s *settings) jitter(tick time.Time) time.Duration {
	if s.timer.Delay.Jitter == 0 {
		return 0
	}
	next, err := schedule.Next(s.timer.Schedule, tick)
	if err != nil || next.IsZero() {
		return 0
	}
	chance := rand.New(rand.NewPCG(hashed(s.timer.Name, ""), uint64(tick.UnixMicro()))).Float64()
	return time.Duration(chance * s.timer.Delay.Jitter * float64(next.Sub(tick))).Truncate(time.Microsecond)
}

// hashed returns a hash that is the same in every process. FNV alone would give names that differ
// only in their last letter hashes close to each other (2^40 apart, which is 18 minutes of a day),
// so the bits are mixed as in the last step of MurmurHash3.
func hashed(a, b string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(a))
	h.Write([]byte{0})
	h.Write([]byte(b))
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
