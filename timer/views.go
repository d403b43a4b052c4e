package timer

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/mask"
)

// views are this host's information about single timers from the store's answers, except overrides:
// the limits of other hosts, whether all slots are full, faults, and whether the store answers.
type views struct {
	log        *lineLog
	ledger     *ledger
	faultLines rateLimit

	degraded atomic.Int32 // runs that continue without the store
}

// A view is this host's information about one timer from the store's answers. entry.mu guards it.
type view struct {
	declared int           // the number of slots on other hosts; 0 if the same as on this host
	heardOf  time.Duration // when the store last reported that number, since programStart
	holder   dlock.Holder  // of a slot, as the store last reported
	overlong dlock.Holder  // whose slot the store last reported as held for too long
	full     fullAnswer
	fault    string // the fault that the store last found in the timer's keys; "" if none
	down     bool   // the store did not answer for this timer, and has not answered since
	degraded int32  // runs that continue without the store
}

// reset drops information that may be outdated, for a timer that was updated or has taken the name
// of a removed timer.
func (v *views) reset(s *settings) {
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	s.entry.view.full, s.entry.view.declared = fullAnswer{}, 0
}

// granted updates a view from the answer that granted a slot.
func (v *views) granted(s *settings, info driver.Info) {
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	w := &s.entry.view
	w.down, w.fault, w.full = false, "", fullAnswer{}
	v.compareSlots(s, info.DeclaredSlots)
	s.entry.record.deadman.noteSuccessAge(info.SuccessAge, s.entry.ticks.interval())
}

// refused updates a view from a refusal.
func (v *views) refused(t tick, no *dlock.NotAcquiredError) {
	s := t.s
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	w := &s.entry.view
	w.down, w.fault = false, ""
	v.compareSlots(s, no.Info.DeclaredSlots)
	s.entry.record.deadman.noteSuccessAge(no.Info.SuccessAge, s.entry.ticks.interval())
	if no.Info.SuccessAge == 0 || t.at != 0 && s.mayEndInTime(no) {
		s.entry.record.deadman.uncount()
	}
	// The slot of a limit may belong to another timer.
	if no.Reason != dlock.ReasonLimitFull && no.Reason != dlock.ReasonLimitRate {
		w.holder = no.Holder
	}
	v.remember(s, no)
	v.warnHeldLong(s, no)
}

// recordDown records that the store did not serve a timer, and reports whether the timer continues
// without the store. It continues only if the store does not answer. A fault that the store reports
// is reported to every host, so all of them would run the tick. why is the reason of the error.
func (v *views) recordDown(s *settings, why Reason, err error) (degraded bool) {
	fault := ""
	if why == ReasonStoreFault {
		fault = mask.Text(fmt.Sprint(err)) // before the mutex is locked, because Error is the store's code
	}
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	w := &s.entry.view
	switch why {
	case ReasonStoreSetup:
		w.down = false
		return false
	case ReasonStoreFault:
		w.down = false
		if w.fault == "" {
			v.log.laterLimited(&v.faultLines, slog.LevelWarn,
				"timer: does not run: the store found something wrong", "timer", s.timer.Name, "err", err)
		}
		w.fault = fault
		return false
	}
	degraded = s.timer.OnStoreDown == StoreDownRunLocal
	if degraded && !w.down {
		v.log.later(slog.LevelDebug,
			"timer: runs without the store: up to MaxPerHost runs on each host, none of them valid",
			"timer", s.timer.Name, "max_per_host", limitText(s.timer.MaxPerHost), "err", err)
	}
	w.down = true
	return degraded
}

// upAgain records that the store answers for timers again.
func (v *views) upAgain(list ...*settings) {
	for _, s := range list {
		s.entry.mu.Lock()
		s.entry.view.down = false
		s.entry.mu.Unlock()
	}
}

// wentDown records that a run of a timer continues after its lease, because the store did not
// answer. The caller holds entry.mu.
func (v *views) wentDown(s *settings) {
	s.entry.view.down = true
}

// beginDegraded adds one to the number of runs that continue without the store. endDegraded
// subtracts one. The caller holds entry.mu.
func (v *views) beginDegraded(s *settings) { v.countDegraded(s, 1) }
func (v *views) endDegraded(s *settings)   { v.countDegraded(s, -1) }

func (v *views) countDegraded(s *settings, n int32) {
	s.entry.view.degraded += n
	for _, l := range s.limits() {
		l.degraded.Add(n)
	}
	v.degraded.Add(n)
}

// degradedRuns returns how many runs continue without the store.
func (v *views) degradedRuns() int { return int(v.degraded.Load()) }

// fallback reports whether runs of a timer start without the store.
func (v *views) fallback(s *settings) bool {
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	return s.entry.view.fallback(s)
}

// fallback is like views.fallback. A paused timer starts no runs, with or without the store. The
// caller holds entry.mu.
func (v *view) fallback(s *settings) bool {
	starts := v.down && !s.local && !s.entry.override.inForce()
	return s.timer.OnStoreDown == StoreDownRunLocal && (starts || v.degraded > 0)
}

// fill adds a timer's view to its status. The caller holds entry.mu.
func (v *views) fill(s *settings, t *TimerStatus) {
	w := &s.entry.view
	t.Fallback, t.LimitElsewhere, t.StoreFault = w.fallback(s), w.declared, w.fault
}

// faultOf returns the fault that the store last found in a timer's keys, or "" if there is none.
func (v *views) faultOf(s *settings) string {
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	return s.entry.view.fault
}

// lastHolder returns the holder of a timer's slot that the store reported last.
func (v *views) lastHolder(s *settings) dlock.Holder {
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	return s.entry.view.holder
}

// elsewhere returns the number of slots on other hosts, or 0 if it is the same as on this host, as
// far as this host knows.
func (v *views) elsewhere(s *settings) int {
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	return s.entry.view.declared
}

// warnHeldLong logs, once per holder, that a slot is held for longer than a run may take. The
// caller holds entry.mu.
func (v *views) warnHeldLong(s *settings, no *dlock.NotAcquiredError) {
	w := &s.entry.view
	if no.Reason != dlock.ReasonFull || no.HeldFor-no.HeldFor/3 <= s.timer.MaxRunTime || w.overlong == no.Holder {
		return
	}
	w.overlong = no.Holder
	v.log.later(slog.LevelWarn,
		"timer: a slot has been held for longer than 1.5 × MaxRunTime: is MaxRunTime longer there?",
		"timer", s.timer.Name, "holder", no.Holder.String(), "held_for", no.HeldFor.Round(time.Millisecond),
		"max_run_time", s.timer.MaxRunTime)
	v.ledger.tally(&s.entry.record).count(func(t *tally) { t.overlongHolds++ })
}

// disagreementWindow is how long hosts count as disagreeing after the last answer that showed a
// different number. An answer has the number of the latest grant, which may be this host's own.
const disagreementWindow = time.Minute

// compareSlots compares the number of slots in an answer with this host's number. The caller holds
// entry.mu.
func (v *views) compareSlots(s *settings, slots int) {
	w, now := &s.entry.view, time.Since(programStart)
	switch agrees := slots == 0 || slots == s.timer.slots(); {
	case agrees && (w.declared == 0 || now-w.heardOf < disagreementWindow):
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
			"timer: hosts disagree about MaxConcurrency: the larger number is in force",
			"timer", s.timer.Name, "here", s.timer.slots(), "elsewhere", slots)
	}
}

// If a timer is due more often than every shortInterval, the host caches the store's "full" answer
// for at most fullFor. Further calls would almost certainly be refused, too, and would only load
// the store.
const (
	fullFor       = time.Second
	shortInterval = 10 * time.Second
)

// A fullAnswer is a cached refusal because all slots are held, and the time until which it is
// cached. The zero value means that there is none.
type fullAnswer struct {
	no    *dlock.NotAcquiredError
	until time.Duration // since programStart
	limit int           // the MaxConcurrency in effect; the answer does not apply to another value
}

// remember caches a "full" answer if a slot has been held for longer than an interval, because such
// a run has probably not ended by the next tick. If it has ended, that tick is skipped although a
// slot is free. The cache never causes an additional run. The caller holds entry.mu.
func (v *views) remember(s *settings, no *dlock.NotAcquiredError) {
	if interval := s.entry.ticks.interval(); no.Reason == dlock.ReasonFull && interval < shortInterval &&
		no.HeldFor >= interval {
		s.entry.view.full = fullAnswer{no, time.Since(programStart) + min(no.ExpiresIn, fullFor), s.limit()}
	}
}

// stillFull returns the cached "full" answer for a timer, or nil if there is none.
func (v *views) stillFull(s *settings) *dlock.NotAcquiredError {
	s.entry.mu.Lock()
	defer s.entry.mu.Unlock()
	full := &s.entry.view.full
	if full.no == nil || full.limit != s.limit() || time.Since(programStart) >= full.until {
		return nil
	}
	return full.no
}

// slotFree drops the cached "full" answer for a timer. The caller holds entry.mu.
func (v *views) slotFree(s *settings) {
	s.entry.view.full = fullAnswer{}
}
