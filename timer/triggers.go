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

// triggerWorkers is how many queues of triggers a host works on at once.
const triggerWorkers = 8

// triggers start the runs that a Control has triggered, on this host. A host looks at the queue of
// a timer when the store's overrides say that somebody has triggered it, and then with each probe
// until the queue is empty.
//
// A trigger is taken, by a compare-and-set that is known to have been made, before its run starts,
// and removed afterwards. So no trigger starts two runs. A host that finds no room after all gives
// it back. One that dies after it has taken a trigger leaves it to expire, because it may have
// started the run.
//
// Only after a host has taken a trigger can it learn that all slots are taken elsewhere. It then
// notes in the queue until when no host need try again. Other hosts obey, unless a run has ended on
// them.
type triggers struct {
	log      *lineLog
	registry *registry
	queues   fleet.Queues
	base     func() context.Context
	holder   dlock.Holder
	taker    string // of this Scheduler alone
	// why returns why nothing may start here; "": it may. start calls tryTrigger, and does not
	// count the refusal of a trigger a second time.
	why   func(*settings) Reason
	start func(ctx context.Context, e *settings, t *triggering, again bool) error

	n       atomic.Int32 // len(waiting); written with mu held
	mu      sync.Mutex
	waiting map[string]*waitingTriggers // by timer: those whose queue may not be empty
	expired map[*entry]int              // how many triggers of it this host has reported
}

// waitingTriggers are the triggers of one timer, as this host last read them.
type waitingTriggers struct {
	timer string
	entry *entry // of that name when somebody last triggered the timer
	again bool   // somebody has triggered the timer since a worker last began
	// These say whether ticks let it go first: see triggerturns.go.
	wantsRoom bool      // at the last look only room was missing
	offeredAt time.Time // when it was last offered the place of a run that ended here
	offered   bool      // once more, since the worker began
	busy      bool      // a worker has it, and with it what follows; triggers.mu guards list and readAt, too
	readAt    time.Time
	list      []fleet.Pending

	read     bool            // the queue was read since the worker began
	version  int64           // that was read last; 0: there was no queue
	mine     bool            // the queue that was read has one that this host took and did not start
	started  map[string]bool // by trigger ID: started here, and perhaps not removed yet
	late     []fleet.Trigger // had expired, and this host may have removed them
	reported map[string]bool // by trigger ID: why it waits was logged; true: it was tried here, too

	retryAt time.Time // nothing is taken before, unless freed; as it was read
	freed   bool      // since this host last tried, there was no room here, or a run has ended
	begun   int       // runs of it that have started here
	places  int       // of the timer that were taken here at the last look
	faulty  bool      // that was logged
}

// look makes a worker look at the queue of a timer with the next call of carryOut.
func (q *triggers) look(s *settings) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.waiting[s.timer.Name]
	if w == nil {
		w = &waitingTriggers{timer: s.timer.Name, started: make(map[string]bool), reported: make(map[string]bool)}
		q.waiting[s.timer.Name] = w
		q.n.Add(1)
	}
	w.entry, w.again = s.entry, true
}

// any reports whether a queue may not be empty.
func (q *triggers) any() bool { return q.n.Load() > 0 }

// carryOut works on all queues in the background. Run waits for it.
func (q *triggers) carryOut() {
	q.mu.Lock()
	var list []*waitingTriggers
	for _, w := range q.waiting {
		if !w.busy {
			w.busy, w.again, w.read = true, false, false
			list = append(list, w)
		}
	}
	q.mu.Unlock()
	var next atomic.Int64
	for range min(triggerWorkers, len(list)) {
		if !q.registry.join() {
			return // draining: nothing starts any more
		}
		go func() {
			defer q.registry.done()
			for i := next.Add(1); int(i) <= len(list); i = next.Add(1) {
				q.work(list[i-1])
			}
		}()
	}
}

// work starts what may start of one queue. It reports whether a run has started.
func (q *triggers) work(w *waitingTriggers) (started bool) {
	for more := true; more; more = q.offeredAgain(w) {
		s, begun := q.registry.get(w.timer), w.begun
		if !q.canSkip(s, w) {
			for range 4 * fleet.MaxPendingTriggers { // so that hosts which are always faster do not keep it forever
				if !q.step(s, w) {
					break
				}
			}
		}
		started = started || w.begun > begun
	}
	q.finish(w)
	return started
}

// finish ends the work on a queue, and forgets one that is empty.
func (q *triggers) finish(w *waitingTriggers) {
	s := q.registry.get(w.timer)
	q.mu.Lock()
	defer q.mu.Unlock()
	w.busy, w.offered = false, false
	if !w.again && w.read && (len(w.list) == 0 || s == nil && len(w.started) == 0 && len(w.late) == 0 && !w.mine) {
		delete(q.waiting, w.timer)
		q.n.Add(-1)
	}
}

// canSkip reports whether the triggers need not be read, with their payloads: nothing may start
// here, none of them has expired, and nobody has changed them.
func (q *triggers) canSkip(s *settings, w *waitingTriggers) bool {
	if s == nil || len(w.list) == 0 || len(w.started) > 0 || len(w.late) > 0 || w.mine || q.whyNot(s, w) == "" {
		return false
	}
	for _, t := range w.list {
		if t.ExpiresIn <= time.Since(w.readAt) {
			return false
		}
	}
	ctx, cancel := context.WithTimeout(q.base(), q.queues.Timeout)
	defer cancel()
	state, err := fleet.Inspect(ctx, q.queues.Store, []string{fleet.QueueLock(w.timer)})
	return err != nil || state[0].Err == nil && state[0].Version == w.version
}

// whyNot returns why this host takes no trigger now; "": it may. It notes whether room may have
// been freed since this host last tried.
func (q *triggers) whyNot(s *settings, w *waitingTriggers) Reason {
	why, places := q.why(s), s.placesTaken()
	w.freed = w.freed || why != "" || places < w.places
	w.places = places
	if why == "" && !w.freed && time.Now().Before(w.retryAt) {
		return ReasonFull
	}
	return why
}

// step makes one change to a queue, or starts one run. It returns false if there is nothing more to
// do now. s is nil if the timer was removed.
func (q *triggers) step(s *settings, w *waitingTriggers) (more bool) {
	queue, version, now, err := q.queues.Read(q.base(), w.timer)
	if err != nil {
		if guard.Is(err, dlock.ErrFault) && !w.faulty {
			w.faulty = true
			q.log.Warn("timer: the triggers of a timer cannot be read", "timer", w.timer, "err", err)
		}
		return false
	}
	// Another host may have removed and reported them: better twice than never.
	w.late = slices.DeleteFunc(w.late, func(t fleet.Trigger) bool { return queue.Has(t.ID) })
	q.report(w.timer, w.late)
	w.late = nil
	q.note(w, &queue, version, now)
	var late []fleet.Trigger
	gone := queue.TakeOut(func(t *fleet.Trigger) bool {
		if !w.started[t.ID] && t.Expired(now) {
			late = append(late, *t)
			return true
		}
		return w.started[t.ID]
	})
	if len(gone) > 0 {
		err := q.queues.Write(q.base(), w.timer, &queue, version)
		switch {
		case err == nil:
			q.report(w.timer, late)
		case !guard.Is(err, driver.ErrChanged):
			w.late = late // the next look shows whether they are gone
			return false
		}
		return true
	}
	t := queue.Next(q.taker)
	if t == nil {
		return false
	}
	why := ReasonDraining // the timer was removed
	if s != nil {
		why = q.whyNot(s, w)
	}
	if why != "" {
		q.noteRoom(w, why)
		if s != nil && s.current() { // else the next look is with others
			q.tell(w, t, why, nil)
		}
		if w.mine { // it could not be given back before
			q.release(w, why, 0)
		}
		return false
	}
	// Written also if this host has it already: this changes the version, so that an earlier write
	// that got no answer, such as one that gives it back, cannot be made any more.
	t.Taker, t.Host, queue.Ran, queue.Retry = q.taker, q.holder, true, 0
	if err := q.queues.Write(q.base(), w.timer, &queue, version); err != nil {
		return guard.Is(err, driver.ErrChanged)
	}
	w.freed = false
	why, named, started := q.startRun(s, w, t)
	if !started {
		q.release(w, why, named)
	}
	return started // and removes it
}

// startRun starts the run of a trigger that this host has taken, or returns why not, as far as that
// is known, and after how long the store allows it; 0: it has named no time.
func (q *triggers) startRun(s *settings, w *waitingTriggers, t *fleet.Trigger) (why Reason, named time.Duration,
	started bool) {
	ctx, cancel := context.WithTimeout(q.base(), 2*q.queues.Timeout)
	defer cancel()
	err := q.start(ctx, s, newTriggering(TriggerOptions{Payload: t.Payload, By: t.By}, nil), w.reported[t.ID])
	if err == nil {
		w.started[t.ID] = true
		w.begun++
		q.noteRoom(w, "")
		q.log.Info("timer: triggered", "timer", w.timer, "by", t.By.By, "note", t.By.Note,
			"payload_bytes", len(t.Payload))
		return "", 0, true
	}
	if no, refused := errors.AsType[*RefusedError](err); refused {
		why = no.Reason
		named, _ = rateAgain(refusal(no.Err), no.Err)
	}
	q.noteRoom(w, why)
	q.tell(w, t, why, err)
	w.reported[t.ID] = true
	return why, named, false
}

// release lets other hosts take what this host has taken and whose run did not start here. why is
// the reason, if it is known, and named the time that the store has named.
func (q *triggers) release(w *waitingTriggers, why Reason, named time.Duration) {
	err := q.queues.Change(q.base(), w.timer, func(queue *fleet.Queue, now int64) (done bool, err error) {
		done = true
		for i := range queue.Triggers {
			t := &queue.Triggers[i]
			if t.Taker != q.taker || w.started[t.ID] {
				continue
			}
			t.Taker, t.Host, done = "", dlock.Holder{}, false
			if why == ReasonFull || why == ReasonLimitFull || why == ReasonLimitRate {
				queue.DeferRetry(t, now, named)
			}
		}
		return done, nil
	}, nil)
	w.mine = err != nil // then it is tried again
}

// note keeps what was read, for Status.
func (q *triggers) note(w *waitingTriggers, queue *fleet.Queue, version, now int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.read, w.version, w.readAt, w.list = true, version, time.Now(), queue.Pending(now)
	w.retryAt = w.readAt.Add(queue.RetryIn(now))
	w.mine = slices.ContainsFunc(queue.Triggers, func(t fleet.Trigger) bool {
		return t.Taker == q.taker && !w.started[t.ID]
	})
	for _, ids := range []map[string]bool{w.started, w.reported} {
		maps.DeleteFunc(ids, func(id string, _ bool) bool { return !queue.Has(id) })
	}
}

// tell logs why a trigger waits, once on each host.
func (q *triggers) tell(w *waitingTriggers, t *fleet.Trigger, why Reason, err error) {
	if _, was := w.reported[t.ID]; was {
		return
	}
	w.reported[t.ID] = false
	args := []any{"timer", w.timer, "by", t.By.By, "note", t.By.Note, "reason", string(why)}
	if err != nil {
		args = append(args, "err", err)
	}
	q.log.Info("timer: a trigger waits: nothing may start here now", args...)
}

// report logs triggers that have expired, which this host has removed.
func (q *triggers) report(timer string, late []fleet.Trigger) {
	if len(late) == 0 {
		return
	}
	s := q.registry.get(timer)
	q.mu.Lock()
	maps.DeleteFunc(q.expired, func(e *entry, _ int) bool { return e.settings.Load().removed() })
	if s != nil {
		q.expired[s.entry] += len(late)
	}
	q.mu.Unlock()
	fleet.LogExpired(q.log.Logger, timer, late)
}

// fill adds the triggers of a timer to its status.
func (q *triggers) fill(s *settings, t *TimerStatus) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.ExpiredTriggers = q.expired[s.entry]
	w := q.waiting[s.timer.Name]
	if w == nil {
		return
	}
	since := time.Since(w.readAt)
	for _, p := range w.list {
		p.Age += since
		p.ExpiresIn = max(0, p.ExpiresIn-since)
		t.Triggers = append(t.Triggers, control.PendingTrigger(p))
	}
}
