package timer

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/timer/internal/fleet"
)

// The place of a run that ends is first offered to triggers of its timer, and of timers that share
// a limit with it. Otherwise a timer whose ticks take each place as soon as it is free could keep
// triggers waiting until they expire, because a host that only checks from time to time misses the
// moments at which a place is free. On every host that knows of such a trigger, competing ticks
// wait. On the host on which the run has ended, they wait while that host starts the trigger. On
// all other hosts, they wait for a short random time, because the run may have ended elsewhere.

// offerTime is the maximum time that ticks wait for a trigger to which a place was offered. An
// offer costs up to four calls, so at least half of offerTime passes between two offers to one
// timer.
func (t *triggers) offerTime() time.Duration { return t.queues.Timeout }

// noteRoom records whether a trigger waits only for room. why is the reason why it did not start,
// or "" if it has started.
func (t *triggers) noteRoom(w *waitingTriggers, why Reason) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.wantsRoom = why == ReasonFull || why == ReasonLimitFull || why == ReasonHostFull
}

// waitsFor reports whether triggers wait for something that a run with settings s takes. The caller
// holds mu.
func (t *triggers) waitsFor(w *waitingTriggers, s *settings) bool {
	untaken := func(pending fleet.Pending) bool { return pending.TakenBy == dlock.Holder{} }
	if !w.wantsRoom || !slices.ContainsFunc(w.list, untaken) {
		return false
	}
	other := w.entry.settings.Load()
	return !other.removed() && (w.entry == s.entry || sharesLimit(other, s))
}

func sharesLimit(a, b *settings) bool {
	return slices.ContainsFunc(a.limits(), func(l *sharedLimit) bool { return slices.Contains(b.limits(), l) })
}

// runEnded offers the place of a run that has ended here to the triggers that wait for it, the
// oldest first. It reports whether there are any.
func (t *triggers) runEnded(s *settings) (offered bool) {
	if t == nil || t.n.Load() == 0 {
		return false
	}
	t.mu.Lock()
	var list []*waitingTriggers
	for _, w := range t.waiting {
		if !t.waitsFor(w, s) || time.Since(w.offeredAt) < t.offerTime()/2 {
			continue
		}
		offered = true
		w.offeredAt = time.Now()
		if w.offered = w.busy; !w.busy {
			w.busy, w.again, w.read, w.freed = true, false, false, true
			list = append(list, w)
		}
	}
	since := func(w *waitingTriggers) time.Time { return w.readAt.Add(-w.list[0].Age) }
	slices.SortFunc(list, func(a, b *waitingTriggers) int { return since(a).Compare(since(b)) })
	t.mu.Unlock()
	if len(list) == 0 {
		return offered
	}
	if !t.registry.join() {
		return false // draining: no run starts any more
	}
	go func() {
		defer t.registry.done()
		started := false
		for _, w := range list {
			if started {
				t.finish(w) // only one place was free
			} else {
				started = t.work(w)
			}
		}
	}()
	return true
}

// offeredAgain reports whether a place has become free while a worker was busy with the queue.
func (t *triggers) offeredAgain(w *waitingTriggers) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	again := w.offered
	w.offered, w.freed = false, w.freed || again
	return again
}

// goFirst returns how long a tick waits to let triggers go first, or 0 if it does not wait. yielded
// means that the tick has already waited once. It then waits only while a trigger is being started
// here.
func (t *triggers) goFirst(s *settings, yielded bool) (wait time.Duration) {
	if t == nil || t.n.Load() == 0 {
		return 0
	}
	interval := s.entry.ticks.interval()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.waiting {
		switch left := t.offerTime() - time.Since(w.offeredAt); {
		case !t.waitsFor(w, s):
		case left > 0 && w.busy:
			return max(min(left, t.offerTime()/16), time.Millisecond)
		case !yielded: // wait less than an interval, so that no later tick overtakes it
			wait = min(t.offerTime()/2, interval/4)
			wait -= rand.N(wait/2 + 1)
		}
	}
	return wait
}
