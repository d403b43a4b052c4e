package timer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/timer/control"
	"github.com/tickslot/tickslot/timer/internal/fleet"
)

// triggerWorkers is how many queues of triggers a host works on at the same time.
const triggerWorkers = 8

// triggers starts, on this host, the runs that a Control has triggered. When the store's overrides
// say that a timer was triggered, the host reads the timer's queue. It reads the queue again with
// each probe until the queue is empty.
//
// Before the run of a trigger starts, the host takes the trigger by a compare-and-set that is known
// to have succeeded. After the start it removes the trigger. Therefore no trigger starts two runs.
// If the host then has no room, it returns the trigger to the queue. If a host dies after it has
// taken a trigger, it may have started the run. Such a trigger is left to expire.
//
// Only after a host has taken a trigger can it learn that other hosts hold all slots. It then
// records in the queue when to try again. Other hosts wait until that time, unless a run has ended
// on them.
type triggers struct {
	log      *lineLog
	registry *registry
	queues   fleet.Queues
	base     func() context.Context
	holder   dlock.Holder
	taker    string // unique to this Scheduler
	// why returns why no run may start here, or "" if one may. start calls tryTrigger, and does not
	// count a second refusal of the same trigger.
	why   func(*settings) Reason
	start func(ctx context.Context, e *settings, t *triggering, again bool) error

	n       atomic.Int32 // len(waiting); written with mu held
	mu      sync.Mutex
	waiting map[string]*waitingTriggers // the timers whose queues may not be empty
	expired map[*entry]int              // how many triggers of the timer this host has reported
}

// waitingTriggers are the triggers of one timer, as this host last read them.
type waitingTriggers struct {
	timer string
	entry *entry // the timer's entry when it was last triggered
	again bool   // the timer was triggered after a worker last began
	// These fields determine whether ticks let the triggers go first: see triggerturns.go.
	wantsRoom bool      // at the last look the triggers waited only for room
	offeredAt time.Time // when the place of a run that ended here was last offered
	offered   bool      // a place was offered again after the worker began
	busy      bool      // a worker owns it and the fields below; triggers.mu also guards list and readAt
	readAt    time.Time
	list      []fleet.Pending

	read     bool            // the queue was read after the worker began
	version  int64           // the version that was last read; 0 if there was no queue
	mine     bool            // the queue has a trigger that this host took and did not start
	started  map[string]bool // by trigger ID: started here, and perhaps not yet removed
	late     []fleet.Trigger // expired triggers that this host may have removed
	reported map[string]bool // by trigger ID: the reason for the wait was logged; true: it was tried here, too

	retryAt time.Time // from the queue's RetryIn: no trigger is taken earlier, unless freed
	freed   bool      // since the last attempt, there was no room here or a run has ended
	begun   int       // the number of its runs that have started here
	places  int       // the places of the timer that were taken here at the last look
	faulty  bool      // a fault of the queue was logged
}

// look makes a worker read the queue of a timer at the next call of carryOut.
func (t *triggers) look(s *settings) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.waiting[s.timer.Name]
	if w == nil {
		w = &waitingTriggers{timer: s.timer.Name, started: make(map[string]bool), reported: make(map[string]bool)}
		t.waiting[s.timer.Name] = w
		t.n.Add(1)
	}
	w.entry, w.again = s.entry, true
}

// any reports whether any queue may not be empty.
func (t *triggers) any() bool { return t.n.Load() > 0 }

// carryOut works on all queues in the background. Run waits for this work.
func (t *triggers) carryOut() {
	t.mu.Lock()
	var list []*waitingTriggers
	for _, w := range t.waiting {
		if !w.busy {
			w.busy, w.again, w.read = true, false, false
			list = append(list, w)
		}
	}
	t.mu.Unlock()
	var next atomic.Int64
	for range min(triggerWorkers, len(list)) {
		if !t.registry.join() {
			return // draining: no run starts any more
		}
		go func() {
			defer t.registry.done()
			for i := next.Add(1); int(i) <= len(list); i = next.Add(1) {
				t.work(list[i-1])
			}
		}()
	}
}

// work starts the runs that may start from one queue. It reports whether a run has started.
func (t *triggers) work(w *waitingTriggers) (started bool) {
	for more := true; more; more = t.offeredAgain(w) {
		s, begun := t.registry.get(w.timer), w.begun
		if !t.canSkip(s, w) {
			for range 4 * fleet.MaxPendingTriggers { // bounded, because other hosts may always be faster
				if !t.step(s, w) {
					break
				}
			}
		}
		started = started || w.begun > begun
	}
	t.finish(w)
	return started
}

// finish ends the work on a queue, and drops the queue if it is empty.
func (t *triggers) finish(w *waitingTriggers) {
	s := t.registry.get(w.timer)
	t.mu.Lock()
	defer t.mu.Unlock()
	w.busy, w.offered = false, false
	if !w.again && w.read && (len(w.list) == 0 || s == nil && len(w.started) == 0 && len(w.late) == 0 && !w.mine) {
		delete(t.waiting, w.timer)
		t.n.Add(-1)
	}
}

// canSkip reports whether the triggers and their payloads need not be read. That is the case if no
// run may start here, no trigger has expired, and the queue has not changed.
func (t *triggers) canSkip(s *settings, w *waitingTriggers) bool {
	if s == nil || len(w.list) == 0 || len(w.started) > 0 || len(w.late) > 0 || w.mine || t.whyNot(s, w) == "" {
		return false
	}
	for _, trigger := range w.list {
		if trigger.ExpiresIn <= time.Since(w.readAt) {
			return false
		}
	}
	ctx, cancel := context.WithTimeout(t.base(), t.queues.Timeout)
	defer cancel()
	state, err := fleet.Inspect(ctx, t.queues.Store, []string{fleet.QueueLock(w.timer)})
	return err != nil || state[0].Err == nil && state[0].Version == w.version
}

// whyNot returns why this host may not take a trigger now, or "" if it may. It records whether room
// may have become free since this host's last attempt.
func (t *triggers) whyNot(s *settings, w *waitingTriggers) Reason {
	why, places := t.why(s), s.placesTaken()
	w.freed = w.freed || why != "" || places < w.places
	w.places = places
	if why == "" && !w.freed && time.Now().Before(w.retryAt) {
		return ReasonFull
	}
	return why
}

// step makes one change to a queue, or starts one run. It returns false if nothing is left to do
// now. s is nil if the timer was removed.
func (t *triggers) step(s *settings, w *waitingTriggers) (more bool) {
	queue, version, now, err := t.queues.Read(t.base(), w.timer)
	if err != nil {
		if guard.Is(err, dlock.ErrFault) && !w.faulty {
			w.faulty = true
			t.log.Warn("timer: the triggers of a timer cannot be read", "timer", w.timer, "err", err)
		}
		return false
	}
	// Another host may also have removed and reported them. It is better to report twice than
	// never.
	w.late = slices.DeleteFunc(w.late, func(trigger fleet.Trigger) bool { return queue.Has(trigger.ID) })
	t.report(w.timer, w.late)
	w.late = nil
	t.note(w, &queue, version, now)
	var late []fleet.Trigger
	gone := queue.TakeOut(func(trigger *fleet.Trigger) bool {
		if !w.started[trigger.ID] && trigger.Expired(now) {
			late = append(late, *trigger)
			return true
		}
		return w.started[trigger.ID]
	})
	if len(gone) > 0 {
		err := t.queues.Write(t.base(), w.timer, &queue, version)
		switch {
		case err == nil:
			t.report(w.timer, late)
		case !guard.Is(err, driver.ErrChanged):
			w.late = late // the next read shows whether they are gone
			return false
		}
		return true
	}
	trigger := queue.Next(t.taker)
	if trigger == nil {
		return false
	}
	why := ReasonDraining // the timer was removed
	if s != nil {
		why = t.whyNot(s, w)
	}
	if why != "" {
		t.noteRoom(w, why)
		if s != nil && s.current() { // otherwise the next look uses other settings
			t.tell(w, trigger, why, nil)
		}
		if w.mine { // an earlier release has failed
			t.release(w, why, 0)
		}
		return false
	}
	// Write even if this host has already taken the trigger. This changes the version, so that an
	// earlier write without an answer can no longer succeed. For example, that write may return the
	// trigger to the queue.
	trigger.Taker, trigger.Host, queue.Ran, queue.Retry = t.taker, t.holder, true, 0
	if err := t.queues.Write(t.base(), w.timer, &queue, version); err != nil {
		return guard.Is(err, driver.ErrChanged)
	}
	w.freed = false
	why, named, started := t.startRun(s, w, trigger)
	if !started {
		t.release(w, why, named)
	}
	return started // the next step removes the trigger
}

// startRun starts the run of a trigger that this host has taken. If no run starts, it returns the
// reason, if known, and the wait that the store has named (0: none).
func (t *triggers) startRun(s *settings, w *waitingTriggers, trigger *fleet.Trigger) (why Reason, named time.Duration,
	started bool) {
	ctx, cancel := context.WithTimeout(t.base(), 2*t.queues.Timeout)
	defer cancel()
	err := t.start(ctx, s, newTriggering(TriggerOptions{Payload: trigger.Payload, By: trigger.By}, nil),
		w.reported[trigger.ID])
	if err == nil {
		w.started[trigger.ID] = true
		w.begun++
		t.noteRoom(w, "")
		t.log.Info("timer: triggered", "timer", w.timer, "by", trigger.By.By, "note", trigger.By.Note,
			"payload_bytes", len(trigger.Payload))
		return "", 0, true
	}
	if no, refused := errors.AsType[*RefusedError](err); refused {
		why = no.Reason
		named, _ = rateAgain(refusal(no.Err), no.Err)
	}
	t.noteRoom(w, why)
	t.tell(w, trigger, why, err)
	w.reported[trigger.ID] = true
	return why, named, false
}

// release returns to the queue the triggers that this host has taken and whose run did not start
// here. why is the reason, if known. named is the wait that the store has named.
func (t *triggers) release(w *waitingTriggers, why Reason, named time.Duration) {
	err := t.queues.Change(t.base(), w.timer, func(queue *fleet.Queue, now int64) (done bool, err error) {
		done = true
		for i := range queue.Triggers {
			trigger := &queue.Triggers[i]
			if trigger.Taker != t.taker || w.started[trigger.ID] {
				continue
			}
			trigger.Taker, trigger.Host, done = "", dlock.Holder{}, false
			if why == ReasonFull || why == ReasonLimitFull || why == ReasonLimitRate {
				queue.DeferRetry(trigger, now, named)
			}
		}
		return done, nil
	}, nil)
	w.mine = err != nil // if it failed, the next look tries again
}

// note keeps the triggers that were read, for Status.
func (t *triggers) note(w *waitingTriggers, queue *fleet.Queue, version, now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.read, w.version, w.readAt, w.list = true, version, time.Now(), queue.Pending(now)
	w.retryAt = w.readAt.Add(queue.RetryIn(now))
	w.mine = slices.ContainsFunc(queue.Triggers, func(trigger fleet.Trigger) bool {
		return trigger.Taker == t.taker && !w.started[trigger.ID]
	})
	for _, ids := range []map[string]bool{w.started, w.reported} {
		maps.DeleteFunc(ids, func(id string, _ bool) bool { return !queue.Has(id) })
	}
}

// tell logs why a trigger waits, once per host.
func (t *triggers) tell(w *waitingTriggers, trigger *fleet.Trigger, why Reason, err error) {
	if _, was := w.reported[trigger.ID]; was {
		return
	}
	w.reported[trigger.ID] = false
	args := []any{"timer", w.timer, "by", trigger.By.By, "note", trigger.By.Note, "reason", string(why)}
	if err != nil {
		args = append(args, "err", err)
	}
	t.log.Info("timer: a trigger waits: this host may start nothing now", args...)
}

// report logs expired triggers that this host has removed.
func (t *triggers) report(timer string, late []fleet.Trigger) {
	if len(late) == 0 {
		return
	}
	s := t.registry.get(timer)
	t.mu.Lock()
	maps.DeleteFunc(t.expired, func(e *entry, _ int) bool { return e.settings.Load().removed() })
	if s != nil {
		t.expired[s.entry] += len(late)
	}
	t.mu.Unlock()
	fleet.LogExpired(t.log.Logger, timer, late)
}

// fill adds the triggers of a timer to its status.
func (t *triggers) fill(s *settings, status *TimerStatus) {
	t.mu.Lock()
	defer t.mu.Unlock()
	status.ExpiredTriggers = t.expired[s.entry]
	w := t.waiting[s.timer.Name]
	if w == nil {
		return
	}
	since := time.Since(w.readAt)
	for _, p := range w.list {
		p.Age += since
		p.ExpiresIn = max(0, p.ExpiresIn-since)
		status.Triggers = append(status.Triggers, control.PendingTrigger(p))
	}
}
