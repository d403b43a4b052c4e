package timer

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
)

const (
	// announceDelay is the time from a registration until the first schedule is announced. A tick
	// that is claimed earlier makes the announcement unnecessary.
	announceDelay = 500 * time.Millisecond
	// announcePause is the average pause between two announcements. A host makes at most about a
	// hundred calls per second, however many timers it has.
	announcePause = 10 * time.Millisecond
	// announceAgain is how often a schedule is announced again if the host has claimed none of its
	// ticks since. The store may have lost its data, expired the name, or received another
	// schedule.
	announceAgain = 24 * time.Hour
)

// An announcer tells the store the schedules of newly registered timers before their first tick is
// claimed. Without an announcement, the timer would be new to the store. If its first tick came due
// while every host that has the timer was restarting, the tick would not count as missed. An
// announcer makes one call at a time. It announces only timers whose missed ticks run
// (CatchUpOnce), and only until this host has claimed a tick of the timer.
type announcer struct {
	registry *registry
	session  *dlock.Session
	store    *storeWatch
	base     func() context.Context

	// mu guards the fields below. docs/architecture.md defines the lock order.
	mu     sync.Mutex
	closed bool
	left   []*settings // still to announce, in reverse order
	next   *time.Timer // runs the next step; nil if nothing was ever announced
	busy   bool        // a step is in progress and will schedule the next step
}

// add queues the schedules of timers that were registered or updated, in the order in which they
// are due.
func (a *announcer) add(list []*settings) {
	if a == nil || !a.registry.starting() {
		return // Run adds them when it starts
	}
	var some []item
	for _, s := range list {
		if s.unannounced() {
			next, _ := s.entry.ticks.read()
			some = append(some, item{when: next, e: s.entry})
		}
	}
	slices.SortFunc(some, func(x, y item) int { return int(min(max(y.when-x.when, -1), 1)) })
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(some) == 0 || a.closed {
		return
	}
	more := make([]*settings, 0, len(some)+len(a.left))
	for _, it := range some {
		more = append(more, it.e.settings.Load())
	}
	wasIdle := len(a.left) == 0
	a.left = append(more, a.left...)
	if wasIdle && !a.busy {
		a.after(announceDelay)
	}
}

// after schedules the next step, with jitter, because hosts often start together. The caller holds
// mu.
func (a *announcer) after(pause time.Duration) {
	pause = pause/2 + rand.N(pause)
	if a.next == nil {
		a.next = time.AfterFunc(pause, a.step)
	} else {
		a.next.Reset(pause)
	}
}

// step announces the next schedule, or starts another round if the queue is empty.
func (a *announcer) step() {
	if !a.registry.join() {
		return
	}
	defer a.registry.done()
	a.mu.Lock()
	var s *settings
	for len(a.left) > 0 && s == nil {
		last := len(a.left) - 1
		if a.left[last].unannounced() {
			s = a.left[last]
		}
		a.left[last] = nil
		a.left = a.left[:last]
	}
	a.busy = s != nil
	if s == nil {
		a.left = nil
		a.mu.Unlock()
		a.lookAgain()
		return
	}
	a.mu.Unlock()
	pause, again := announcePause, a.announce(s)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy = false
	if again > 0 {
		pause = again
		a.left = slices.Insert(a.left, 0, s)
	}
	if !a.closed {
		a.after(pause)
	}
}

// lookAgain queues all timers again, or schedules that for later.
func (a *announcer) lookAgain() {
	all := a.registry.registered()
	if slices.ContainsFunc(all, (*settings).unannounced) {
		a.add(all)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.left) == 0 && !a.closed && slices.ContainsFunc(all, (*settings).claimsMissed) {
		a.after(announceAgain)
	}
}

// announce makes one call. It returns how long to wait before the next attempt, or 0 if no attempt
// is needed.
func (a *announcer) announce(s *settings) (again time.Duration) {
	pause := a.store.ttl / 2
	if !a.store.serves(s) {
		return pause
	}
	tick := driver.KnownSince(s.id, time.Now())
	lease, err := a.session.Semaphore(s.entry.lockName, s.timer.slots()).TryAcquireTick(a.base(), tick)
	if lease != nil { // the store does not track missed ticks
		_ = lease.Release(a.base())
	}
	s.noteClaim(tick, err)
	_ = a.store.recordAcquire(s.entry.lockName, err)
	if why := reasonOf(err); why == ReasonStoreFault || why == ReasonStoreSetup {
		s.noteKnown() // wait for the next round, because another call would not help
	}
	a.store.log.flush()
	if no := refusal(err); no != nil && no.Reason == driver.ReasonQuarantine {
		return max(pause, min(no.ExpiresIn, announceAgain))
	}
	if !s.unannounced() {
		return 0
	}
	return pause
}

// close stops the announcements.
func (a *announcer) close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed, a.left = true, nil
	if a.next != nil {
		a.next.Stop()
	}
}

// unannounced reports whether to announce a timer's schedule, because the store may not know it.
func (s *settings) unannounced() bool {
	known := time.Duration(s.entry.knownAt.Load()) * time.Second
	return (known == 0 || time.Since(programStart)-known > announceAgain/2) && s.current() && s.claimsMissed()
}

// noteClaim records whether the store knows a timer's schedule, according to its answer to a claim.
func (s *settings) noteClaim(t driver.Tick, err error) {
	no := refusal(err)
	if err == nil || no != nil && !t.MissedAt.IsZero() && no.Reason != driver.ReasonQuarantine &&
		no.Reason != driver.ReasonTickAhead {
		s.noteKnown()
	}
}

func (s *settings) noteKnown() {
	if s.current() {
		s.entry.knownAt.Store(int32(time.Since(programStart)/time.Second) + 1)
	}
}
