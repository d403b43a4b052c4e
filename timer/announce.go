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
	// announceDelay is how long after a registration the first schedule is announced: a tick that
	// is tried at once makes its schedule known by itself.
	announceDelay = 500 * time.Millisecond
	// announcePause is the pause between two announcements, on average: a host makes a hundred
	// calls a second at most, whatever the number of its timers.
	announcePause = 10 * time.Millisecond
	// announceAgain is after how long a schedule is announced again of which the host has claimed
	// no tick since: the store may have lost its data, forgotten the name, or met another schedule.
	announceAgain = 24 * time.Hour
)

// An announcer makes the store know schedules of which no tick was claimed yet, soon after their
// timers are registered. Otherwise a first tick that comes due while every host that has the timer
// restarts would not be missed: to the store the timer would be new. It makes one call at a time,
// for timers whose missed ticks run (CatchUpOnce) only, and none for one of which this host has
// claimed a tick.
type announcer struct {
	registry *registry
	session  *dlock.Session
	store    *storeWatch
	base     func() context.Context

	// mu guards the rest. docs/architecture.md has the order of mutexes.
	mu     sync.Mutex
	closed bool
	left   []*settings // to be announced, the first at the end
	next   *time.Timer // of the next step; nil: nothing was ever to be announced
	busy   bool        // a step is under way, and plans the next one
}

// add announces the schedules of timers that were registered or updated, the soonest due first.
func (a *announcer) add(list []*settings) {
	if a == nil || !a.registry.starting() {
		return // Run adds them
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

// after plans the next step, with jitter, because hosts start together. Called with mu held.
func (a *announcer) after(pause time.Duration) {
	pause = pause/2 + rand.N(pause)
	if a.next == nil {
		a.next = time.AfterFunc(pause, a.step)
	} else {
		a.next.Reset(pause)
	}
}

// step announces the next schedule, or looks which are to be announced again.
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

// lookAgain begins with all timers anew, or plans that for later.
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

// announce makes one call. It returns after what time to try again; 0: it need not.
func (a *announcer) announce(s *settings) (again time.Duration) {
	pause := a.store.ttl / 2
	if !a.store.serves(s) {
		return pause
	}
	tick := driver.KnownSince(s.id, time.Now())
	lease, err := a.session.Semaphore(s.entry.lockName, s.timer.slots()).TryAcquireTick(a.base(), tick)
	if lease != nil { // of a store that knows no missed ticks
		_ = lease.Release(a.base())
	}
	s.noteClaim(tick, err)
	_ = a.store.recordAcquire(s.entry.lockName, err)
	if why := reasonOf(err); why == ReasonStoreFault || why == ReasonStoreSetup {
		s.noteKnown() // not before the next round: no call makes it better
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

// close ends the announcements.
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

// unannounced reports whether the store may not know the schedule of a timer, and should.
func (s *settings) unannounced() bool {
	known := time.Duration(s.entry.knownAt.Load()) * time.Second
	return (known == 0 || time.Since(programStart)-known > announceAgain/2) && s.current() && s.claimsMissed()
}

// noteClaim notes whether the store knows the schedule of a timer, from its answer to a claim.
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
