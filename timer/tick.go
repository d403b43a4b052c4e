package timer

import (
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// A tick is its scheduled instant, the same on every host. When a host comes to it is another matter: SpreadStart and Jitter
// delay it, a host may have been asleep, or stand back for others.

const (
	// lateGrace is how late a host may come to a tick before that counts as missed. It is what a step of the wall clock or a
	// suspended machine costs (maxSleep).
	lateGrace = maxSleep
	// DefaultMissedWindow is how old a missed tick may be that RunOnce still runs.
	DefaultMissedWindow = time.Hour
	// maxSpread bounds SpreadStart and SpreadHosts.
	maxSpread = 24 * time.Hour
	// maxJitter bounds Jitter, so that ticks keep their order.
	maxJitter = 0.5
)

// A MissedPolicy is what a host does about ticks that it comes to more than ten seconds late, or that came due while no host was there.
type MissedPolicy uint8

const (
	// MissedDefault is RunOnce for calendars (Cron, Daily, At, and Except of these), and SkipMissed for all other schedules.
	MissedDefault MissedPolicy = iota
	// SkipMissed counts them and goes on with the next.
	SkipMissed
	// RunOnce runs the latest of them, once in the fleet, if it is no older than MissedWindow. The store decides: it must know that an
	// earlier tick was claimed and this one was not. So it needs a store and a MaxPerTick; without them a host makes up for what it slept
	// through, and one that starts for nothing. A host that slept while others did not, and one that starts in a fleet that was there, find
	// that the tick was claimed. If the latest fell into a pause or a blackout, nothing was missed.
	//
	// The store knows claims and nothing else. So a host that starts runs also what nobody claimed because every slot was held, or
	// because the store was down, even if hosts ran it without the store. And stores forget a timer that has asked for nothing for 7
	// days: a tick that is more than that after the one before is never made up for.
	RunOnce
)

// A SpreadPolicy is which hosts get a tick first.
type SpreadPolicy uint8

const (
	// FirstCome gives a tick to whoever asks first: often the same host, whose clock is a little ahead.
	FirstCome SpreadPolicy = iota
	// LeastRecent has a host that ran one of the latest ticks stand back for some milliseconds, the longer the more recently it ran, so
	// that those go first whose turn it is. It evens out the runs where clocks agree within milliseconds; it promises nothing.
	LeastRecent
)

// standBackStep is how much longer a host stands back than the one that ran a tick earlier, maxStandBack the most.
const (
	standBackStep = 4 * time.Millisecond
	maxStandBack  = 100 * time.Millisecond
)

// A dueTick is a tick on its way through the doors.
type dueTick struct {
	at     int64 // µs
	missed bool  // it came due while this host was not there
	stood  bool  // this host has stood back for others
}

// abandoned is why a tick is skipped that waited when nothing more was to start.
func (t dueTick) abandoned() Reason {
	if t.missed || t.stood {
		return Draining
	}
	return Quarantine
}

// overtaken is why a tick is skipped that waited, and that a later one has overtaken.
func (t dueTick) overtaken() Reason {
	if t.missed || t.stood {
		return Missed
	}
	return Quarantine
}

// A plan is what comes next of a timer.
type plan struct {
	tick   time.Time // zero: nothing
	due    time.Time // when this host comes to it
	missed time.Time // a tick that came due before this host was there, to be run if nobody had it; zero: none
}

// A coming is what has come due of a timer.
type coming struct {
	first, last time.Time     // ticks; the latest is tried
	missed      uint64        // from first to last, without it
	late        time.Duration // how late this host is to the last
	dark        error         // the blackout it falls into, or nil
	next        plan
	err         error // of the schedule
}

// comeDue asks the schedule and the blackouts about a tick that was to be tried at due. Called without mu.
func (s *Scheduler) comeDue(e *entry, tick, due, now time.Time) (c coming) {
	var next time.Time
	c.first = tick
	c.last, next, c.missed, c.err = advance(e.timer.Schedule, tick, now.Add(-e.spread(s.config.Holder)))
	if !c.last.Equal(tick) {
		due = s.comes(e, c.last)
		if due.After(now) { // its jitter still delays the last, so the one before it is tried
			c.last, next, c.missed, c.err = advance(e.timer.Schedule, tick, c.last.Add(-time.Microsecond))
			due = s.comes(e, c.last)
		}
	}
	c.late = now.Sub(due)
	c.dark = s.blackout(e, due)
	if c.dark == nil && c.late > lateGrace && c.late <= e.missedWindow() {
		c.dark = s.blackout(e, now) // what is made up for starts now
	}
	c.next = s.planned(e, next)
	return c
}

// darkAgain says why a tick that is tried later than it was due may not start, or nil. Called without mu.
func (s *Scheduler) darkAgain(e *entry, t dueTick, now time.Time) error {
	if t.stood {
		return nil // it is only just due, and was asked about then
	}
	if t.missed {
		if dark := s.blackout(e, s.comes(e, time.UnixMicro(t.at))); dark != nil {
			return dark
		}
	}
	return s.blackout(e, now)
}

// first asks the schedule for the first tick, of those after a given one, to which this host has yet to come. Called without mu.
func (s *Scheduler) first(e *entry, now, after time.Time) (plan, error) {
	if e.timer.Schedule == nil {
		return plan{}, nil
	}
	next, err := nextTick(e.timer.Schedule, later(now.Add(-e.spread(s.config.Holder)), after))
	if err != nil {
		return plan{}, err
	}
	if late := s.delayed(e, now, next); late.After(after) {
		next = late
	}
	return s.planned(e, next), nil
}

// delayed returns the tick before next if its jitter still delays it, or the zero time.
func (s *Scheduler) delayed(e *entry, now, next time.Time) time.Time {
	if e.timer.Jitter == 0 || next.IsZero() {
		return time.Time{}
	}
	reached := now.Add(-e.spread(s.config.Holder))
	most := float64(next.Sub(reached)) * e.timer.Jitter / (1 - e.timer.Jitter) // how long ago it can have been
	last := lastTick(e.timer.Schedule, reached, time.Duration(most))
	if last.IsZero() || !s.comes(e, last).After(now) {
		return time.Time{}
	}
	return last
}

// lastMissed returns the tick that is to be made up for if no host had it, as far as this host can know before it has asked the
// store; the zero time: none. Called without mu.
func (s *Scheduler) lastMissed(e *entry, now time.Time) time.Time {
	window := e.missedWindow()
	if e.timer.Schedule == nil || window == 0 || s.session == nil || e.timer.LocalOnly || e.timer.MaxPerTick == NoLimit {
		return time.Time{}
	}
	reached := now.Add(-e.spread(s.config.Holder))
	last := lastTick(e.timer.Schedule, reached, window)
	if last.IsZero() || !s.comes(e, last).After(now) {
		return last
	}
	before := last.Add(-time.Microsecond) // its jitter still delays the last
	if window -= reached.Sub(before); window <= 0 {
		return time.Time{}
	}
	return lastTick(e.timer.Schedule, before, window)
}

// planned adds when this host comes to a tick. Called without mu.
func (s *Scheduler) planned(e *entry, tick time.Time) plan {
	if tick.IsZero() {
		return plan{}
	}
	return plan{tick: tick, due: s.comes(e, tick)}
}

// comes is when this host comes to a tick. Called without mu.
func (s *Scheduler) comes(e *entry, tick time.Time) time.Time {
	return tick.Add(e.spread(s.config.Holder) + e.jitter(tick))
}

// take takes in what comes next. Called with mu held.
func (s *Scheduler) take(e *entry, p plan, err error) {
	e.next = 0
	if e.gone {
		return
	}
	if err != nil {
		e.more().fault = err.Error()
		s.say(slog.LevelError, "timer: the schedule failed, the timer is not due any more", "timer", e.timer.Name, "err", err)
		return
	}
	if !p.tick.IsZero() {
		e.next = p.tick.UnixMicro()
	}
	if s.phase == created { // Run begins with asking all schedules
		return
	}
	if e.next != 0 {
		s.heap.push(item{when: p.due.UnixMicro(), e: e})
	}
	if !p.missed.IsZero() && e.due == 0 { // also one that was the last
		e.due = p.missed.UnixMicro()
		e.more().ticks++
		s.heap.push(item{when: s.now().UnixMicro(), again: dueTick{at: e.due, missed: true}, e: e})
	}
}

// missedWindow is how old a tick may be that is still made up for; 0: none is.
func (e *entry) missedWindow() time.Duration {
	switch e.timer.OnMissed {
	case RunOnce:
		return e.timer.MissedWindow
	default:
		return 0
	}
}

// lastTick returns the latest tick up to now that is no older than window; the zero time if there is none.
func lastTick(sched Schedule, now time.Time, window time.Duration) (last time.Time) {
	for back := time.Second; ; back *= 4 {
		back = min(back, window)
		next, err := nextTick(sched, now.Add(-back-time.Microsecond))
		for n := 0; err == nil && !next.IsZero() && !next.After(now) && n < maxMissed; n++ {
			last = next
			next, err = nextTick(sched, last)
		}
		if !last.IsZero() || back == window || err != nil {
			return last
		}
	}
}

// spread is the fixed part of a timer's delay on this host.
func (e *entry) spread(host dlock.Holder) (d time.Duration) {
	if e.timer.SpreadStart > 0 {
		d = time.Duration(hashed(e.timer.Name, "") % uint64(e.timer.SpreadStart))
	}
	if e.timer.SpreadHosts > 0 {
		d += time.Duration(hashed(e.timer.Name, host.Host) % uint64(e.timer.SpreadHosts))
	}
	return d.Truncate(time.Microsecond)
}

// jitter is the part of the delay that differs from tick to tick; it is the same on every host. Called without mu.
func (e *entry) jitter(tick time.Time) time.Duration {
	if e.timer.Jitter == 0 {
		return 0
	}
	next, err := nextTick(e.timer.Schedule, tick)
	if err != nil || next.IsZero() {
		return 0
	}
	chance := rand.New(rand.NewPCG(hashed(e.timer.Name, ""), uint64(tick.UnixMicro()))).Float64()
	return time.Duration(chance * e.timer.Jitter * float64(next.Sub(tick))).Truncate(time.Microsecond)
}

// hashed is the same in every process. FNV alone leaves names that differ in their last letter close to each other (by 2^40, which is 18 minutes
// of a day), so its bits are mixed, as MurmurHash3 does in the end.
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

// remembered is how long a "full" of the store is remembered at most, and for timers of which period: asking every time would cost
// the store more than it tells.
const (
	remembered    = time.Second
	highFrequency = 10 * time.Second
)

// remember keeps a "full" in mind, if a slot has been held for longer than an interval: such a run will hardly have ended at the next tick, a short one
// will. A slot may become free earlier all the same, so a tick may be skipped that would have got one; only a no is ever remembered. Called with mu held.
func (s *Scheduler) remember(e *entry, no *dlock.NotAcquiredError) {
	if interval := e.interval(); no.Reason == dlock.Full && interval < highFrequency && no.Since >= interval {
		e.more().fullUntil = time.Now().Add(min(no.Ends, remembered))
	}
}

// stillFull reports whether the store has just said that every slot is held. Called with mu held.
func (s *Scheduler) stillFull(e *entry) bool {
	d := e.detail
	return !d.fullUntil.IsZero() && time.Now().Before(d.fullUntil)
}

// standBack has a tick wait a little if this host ran one of the latest, and reports whether it does. Called with mu held.
func (s *Scheduler) standBack(e *entry, t dueTick) bool {
	if e.timer.Spread != LeastRecent || t.stood || !s.shared(e) || s.breaker.open {
		return false
	}
	d := e.more()
	if d.ranLast == 0 {
		return false
	}
	rank := s.hosts - int(min(d.ticks-d.ranLast, uint64(s.hosts))) // 0: it has been this host's turn for long
	if rank <= 0 {
		return false
	}
	step := min(standBackStep, min(maxStandBack, e.interval()/4)/time.Duration(s.hosts))
	t.stood = true
	s.heap.push(item{when: s.now().Add(time.Duration(rank) * step).UnixMicro(), again: t, e: e})
	s.poke()
	return true
}

// A brokenBlackout panicked, or returned an end that is not later.
type brokenBlackout struct{ err error }

func (b *brokenBlackout) Error() string {
	return fmt.Sprintf("nothing starts, because it does not say until when it lasts: %v", b.err)
}

// darkness takes in what the blackouts said about a tick. One that is meant is no silence that anybody has to be told of; one that is
// broken is, and is said once. Called with mu held.
func (s *Scheduler) darkness(e *entry, dark error) {
	d := e.more()
	_, broken := dark.(*brokenBlackout)
	if dark != nil && !broken {
		d.silence.unknown()
	}
	if broken && !d.darkBroken {
		s.say(slog.LevelError, "timer: a blackout failed: as long as it does, nothing of the timer starts by its schedule", "timer", e.timer.Name, "err", dark)
	}
	d.darkBroken = broken
}

// blackout says why nothing may start at t, or nil. Called without mu.
func (s *Scheduler) blackout(e *entry, t time.Time) error {
	for _, list := range [...][]Blackout{e.timer.Blackouts, s.config.Blackouts} {
		until, by, err := blackedOut(list, t)
		if err != nil {
			return &brokenBlackout{err} // nothing starts that it may have been meant to prevent
		}
		if !until.IsZero() {
			return fmt.Errorf("%s, until %s at the earliest", describe(by), until.UTC().Format(time.RFC3339Nano))
		}
	}
	return nil
}
