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

// A tick is a scheduled instant that is due. It is the same on every host. A host may try it later
// because of Delay, because the host was suspended, or because it lets other hosts go first. A tick
// without a time stands for a Trigger.
type tick struct {
	s        *settings // the settings with which it is tried
	at       int64     // µs; 0 for a Trigger
	missedAt int64     // µs, when the tick was due, if this host missed it; otherwise 0
	yielded  bool      // it has already yielded to other hosts
	onStart  bool      // the tick of RunOnStart
	ownStart bool      // the time at which this host started, so the tick is not claimed
	// When the tick began to wait for a run to end (FullWait) or for a place (MaxRuns). Zero: it
	// has not waited.
	waitsSince time.Time
}

// anew returns the tick for another attempt after a wait, with the current settings of its timer.
// The blackouts have to be called again, because the wait may have been long, or the blackouts may
// have been replaced.
func (t tick) anew() tick {
	t.s, t.yielded = t.s.entry.settings.Load(), false
	return t
}

// A plan is the next tick of a timer.
type plan struct {
	tick   time.Time // zero if there is none
	due    time.Time // when this host tries the tick, including Delay
	atOnce tick      // a tick to try when this host starts, from RunOnStart or missed; zero if none
}

// dueTicks are the ticks of a timer that are due.
type dueTicks struct {
	first, last time.Time     // the due ticks; only the last one is tried
	missed      uint64        // the number of ticks from first to just before last
	due         time.Time     // when this host should have tried the last tick
	late        time.Duration // the time since due
	blackout    error         // the blackout that contains the last tick, or nil
	next        plan
	err         error // the error of the schedule
}

// schedules calls schedules and blackouts. They may be user code that calls the Scheduler.
// Therefore schedules has no state and must be used without holding a mutex.
type schedules struct {
	host      dlock.Holder
	blackouts []schedule.Blackout // the blackouts of all timers
}

// due calls the schedule and the blackouts for a tick that should have been tried at due.
func (s *schedules) due(set *settings, tick, due, now time.Time) (c dueTicks) {
	if delay, fixed := set.delay(); fixed {
		return s.dueAfterDelay(set, tick, now, delay)
	}
	var next time.Time
	c.first = tick
	c.last, next, c.missed, c.err = schedule.Advance(set.timer.Schedule, tick, now.Add(-set.spread(s.host)))
	if !c.last.Equal(tick) {
		due = s.startsAt(set, c.last)
		if due.After(now) { // its jitter still delays the last tick, so the tick before it is tried
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

// first returns the plan for the first tick after a given time that this host has yet to try.
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
	// jitterBound is the maximum time by which its jitter can delay a tick.
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

// startsAt returns when this host tries a tick, including Delay.
func (s *schedules) startsAt(set *settings, tick time.Time) time.Time {
	return tick.Add(set.spread(s.host) + set.jitter(tick))
}

// askAgain calls a schedule that failed for the tick after the latest due tick, so that ticks that
// were due in the meantime are counted. If the schedule fails again, askAgain calls it for the
// first tick from now on.
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
// the timer before. If not, the timer is planned like one that existed when Run started. interval
// is the time between the latest and the next tick of the old schedule.
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
		// The tick is due, but its delay is not over, or this host has not handled it yet.
		when := s.startsAt(set, tick)
		if was := s.startsAt(old, tick); was.After(when) { // the tick is less late than it seems
			when = later(when, earlier(was, now))
		}
		return plan{tick: tick, due: when}, nil
	}
	if _, fixed := set.delay(); fixed && next != 0 && s.blackout(old, now) == nil {
		return s.planned(set, time.UnixMicro(next)), nil // the store, or a run that ended on this host, has set it
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

// usesUserCode reports whether a timer's schedule or blackouts may be user code. Such code may be
// slow, and other timers must not wait for it. Therefore these items are dispatched last, one by
// one.
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

// blackoutAgain returns an error if a tick may not start when it is tried again.
func (s *schedules) blackoutAgain(t tick, now time.Time) error {
	if t.yielded {
		return nil // the tick was due just now, so the blackouts were already called
	}
	if t.missedAt != 0 {
		if err := s.blackout(t.s, time.UnixMicro(t.missedAt)); err != nil {
			return err
		}
	}
	return s.blackout(t.s, now)
}

// A brokenBlackout is the error of a blackout that panicked or returned an end that is not later.
type brokenBlackout struct{ err error }

func (b *brokenBlackout) Error() string {
	return fmt.Sprintf("nothing starts, because it does not say until when it lasts: %v", b.err)
}

const (
	// maxDelay bounds Delay.ByTimer and Delay.ByHost.
	maxDelay = 24 * time.Hour
	// maxJitter bounds Delay.Jitter, so that ticks remain in order.
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

// jitter returns the part of the delay that varies from tick to tick. It is the same on every host.
// It calls the schedule, so the caller must hold no mutex.
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

// hashed returns a hash that is the same in every process. FNV alone would give similar hashes to
// names that differ only in the last letter (2^40 apart, which is 18 minutes of a day). Therefore
// the bits are mixed as in the last step of MurmurHash3.
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
