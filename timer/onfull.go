package timer

import (
	"math/rand/v2"
	"sync"
	"time"
)

// A FullPolicy is what happens to a tick that finds as many runs in progress as its timer may have.
type FullPolicy uint8

const (
	// FullSkip skips the tick (ReasonHostFull, ReasonFull, ReasonLimitFull).
	FullSkip FullPolicy = iota

	// FullWait lets the tick wait until a run ends, and then start, under the same limits: of
	// MaxPerHost, of MaxConcurrency, and of Limits. At most one tick of each timer waits: a later
	// one takes the place of the earlier, which is skipped as FullSkip does. A tick is also skipped
	// when it has waited for Config.MaxWait, when a pause or a blackout begins, when the host
	// drains, and when the timer is removed. A Trigger does not wait.
	//
	// A tick is claimed when its run starts, not while it waits: hosts wait for the same tick, and
	// it has at most MaxPerTick runs as ever. With schedule.After a tick waits for Limits only:
	// while a run of the timer itself goes on, nothing is due until the delay after its end.
	//
	// When a run of the timer ends on this host, the tick is tried at once. A host has to ask the
	// store to learn that a slot has become free elsewhere. It asks after pauses of half the time
	// that the tick has waited, at least StoreTimeout/4 and at most TTL/3 (5 s), each shortened at
	// random by up to half. So a run starts up to TTL/3 later than it could, and a tick that waits
	// for long costs each host at most one call per TTL/6; none while MaxPerHost runs go on there.
	FullWait
)

func (p FullPolicy) String() string {
	switch p {
	case FullSkip:
		return "skip"
	case FullWait:
		return "wait"
	default:
		return "unknown"
	}
}

// fullWaits has the timers of which a tick waits for a run to end (FullWait).
type fullWaits struct {
	registry           *registry
	maxWait            time.Duration // how long a tick may wait
	minPause, maxPause time.Duration // pauses between two tries

	// The gate's, set when the parts are connected: tries a tick that was taken out, in a goroutine
	// of its own.
	try func(*pending)
	// Likewise, of the triggers: offers them the place of a run that has ended. Nil: no store.
	offer func(*settings) bool

	// mu guards timers, and is held when entry.pending is written. docs/architecture.md has the
	// order of mutexes.
	mu     sync.Mutex
	timers map[*entry]bool
}

// A pending is the tick of a timer that waits.
type pending struct {
	tick
	why   Reason // as it was last refused
	err   error
	timer *time.Timer // when it is tried again, if no run ends before
	until time.Time   // in a line: when its wait ends
}

func newFullWaits(config Config, g *registry) *fullWaits {
	return &fullWaits{registry: g, maxWait: config.MaxWait, minPause: config.StoreTimeout / 4, maxPause: config.TTL / 3,
		timers: make(map[*entry]bool)}
}

// pause returns how long to wait for the next try of a tick that has waited for so long.
func (f *fullWaits) pause(waited time.Duration) time.Duration {
	pause := min(max(waited/2, f.minPause), f.maxPause)
	return min(pause-rand.N(pause/2+1), f.maxWait-waited)
}

// waitsFor reports whether a tick that is refused for a reason waits until a run ends. With
// a fixed delay it does not if the run is of its timer: the delay counts from the end of that.
func (s *settings) waitsFor(why Reason) bool {
	if s.timer.OnFull != FullWait {
		return false
	}
	if _, fixed := s.delay(); fixed {
		return why == ReasonLimitFull
	}
	return why == ReasonHostFull || why == ReasonFull || why == ReasonLimitFull
}

// enter lets a tick wait until a run ends, if its timer says so. It reports false if it does not
// wait here: also if a later one has come due, it has waited for too long, or its timer was
// updated.
func (f *fullWaits) enter(t tick, why Reason, err error) bool {
	s := t.s
	if !s.waitsFor(why) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if t.waitsSince.IsZero() {
		t.waitsSince = now
	}
	waited := now.Sub(t.waitsSince)
	if _, due := s.entry.ticks.read(); due != t.at || waited >= f.maxWait {
		return false
	}
	t.yielded = false // this wait may be long, so the blackouts have to be asked again
	w := &pending{tick: t, why: why, err: err}
	// Remove, Update, drain and runs that end look for it, without mu, after they have made
	// mayStart false or freed a place. So it is stored before that is looked at.
	before := s.entry.pending.Swap(w)
	if !f.registry.mayStart(s) {
		s.entry.pending.Store(before)
		return false
	}
	pause := f.pause(waited)
	if why == ReasonHostFull && s.placesTaken() < s.hostLimit() {
		pause = 0 // a run has ended since it was refused
	}
	w.timer = time.AfterFunc(pause, func() { f.retry(w) })
	f.timers[s.entry] = true
	return true
}

// retry tries a tick whose pause is over, unless it was taken out meanwhile.
func (f *fullWaits) retry(w *pending) {
	f.mu.Lock()
	mine := w.s.entry.pending.Load() == w && f.claim(w)
	f.mu.Unlock()
	if mine {
		f.tryNow(w)
	}
}

// claim takes out a tick that is to be tried now, for which Run waits until tryNow has returned. It
// reports false if nothing may start any more: then drain takes the tick out. Called with mu held.
func (f *fullWaits) claim(w *pending) bool {
	if !f.registry.join() {
		return false
	}
	f.takeOut(w.s.entry)
	return true
}

func (f *fullWaits) tryNow(w *pending) {
	defer f.registry.done()
	f.try(w)
}

// takeOut takes out the tick of a timer; nil: none waits. Called with mu held.
func (f *fullWaits) takeOut(e *entry) *pending {
	w := e.pending.Swap(nil)
	if w != nil {
		w.timer.Stop()
		delete(f.timers, e)
	}
	return w
}

// withdraw takes out the tick of a timer; nil: none waits.
func (f *fullWaits) withdraw(e *entry) *pending {
	if e.pending.Load() == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.takeOut(e)
}

// close takes out all ticks, when the host drains.
func (f *fullWaits) close() (left []tick) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for e := range f.timers {
		left = append(left, f.takeOut(e).tick)
	}
	return left
}

// runEnded tries the tick that has waited longest for a run like this one to end: only one place
// has become free. If that is the tick of another timer, which may wait for something else as well,
// the tick of the run's own timer is tried, too. If triggers wait for the place, it is offered to
// them instead, and the ticks are tried after their pause.
func (f *fullWaits) runEnded(s *settings) {
	if f.offer != nil && f.offer(s) || s.entry.pending.Load() == nil && len(s.limits()) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	own := s.entry.pending.Load()
	longest := f.longestFor(s, own)
	if longest != nil && f.claim(longest) {
		go f.tryNow(longest)
	}
	if own != nil && own != longest && f.claim(own) {
		go f.tryNow(own)
	}
}

// longestFor returns, of the ticks that a run with settings s may have been in the way of, the one
// that has waited longest; nil: there is none. Called with mu held.
func (f *fullWaits) longestFor(s *settings, own *pending) (longest *pending) {
	longest = own
	if len(s.limits()) == 0 {
		return longest
	}
	for e := range f.timers {
		w := e.pending.Load()
		if w.why == ReasonLimitFull && sharesLimit(w.s, s) &&
			(longest == nil || w.waitsSince.Before(longest.waitsSince)) {
			longest = w
		}
	}
	return longest
}
