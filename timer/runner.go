package timer

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// A runner carries out runs: it calls the handler with its context, retries it, enforces
// MaxRunTime, and keeps the slot until the handler has returned. It asks the store watch whether
// the store serves, and reports to the ledger.
type runner struct {
	log      *lineLog
	events   *events
	registry *registry
	limits   *limits
	waits    *fullWaits
	ledger   *ledger
	store    *storeWatch  // nil: no store
	started  atomic.Int64 // runs without a fence
	ended    func(*state) // tells that a run has ended, of a timer that may have a fixed delay
	runHost

	reacquisitions rateLimit

	gaveUp atomic.Bool // Run no longer waits for the runs that are left
}

// A runHost is what all runs of a host have in common.
type runHost struct {
	holder   dlock.Holder
	idPrefix string // of runs without a slot in the store, see Run.ID
	// The parent of all runs' contexts: it has the values of Run's context, and is cancelled when
	// draining takes too long. Set when Run begins.
	base context.Context
}

func newRunHost(h dlock.Holder) runHost { return runHost{holder: h, idPrefix: h.String() + "-"} }

// startRun returns a started run, which the caller carries out. The run takes over the caller's
// place. The zero dueTick: it was triggered.
func (n *runner) startRun(e *entry, t dueTick, by *triggering, lease *dlock.Lease, degraded bool) *Run {
	r := n.newRun(e, t, lease == nil && !degraded)
	r.trigger = by
	n.begin(e, r, lease)
	n.log.flush()
	return r
}

// A start is a run to be started without the store. The caller has taken a place for it.
type start struct {
	e    *entry
	tick dueTick
}

// runAll starts runs, and carries out each in a goroutine. The scheduling goroutine has to start
// only one.
func (n *runner) runAll(starts []start) {
	last := len(starts) - 1
	for _, s := range starts[:last] {
		go n.carryOut(n.startRun(s.e, s.tick, nil, nil, false))
	}
	n.carryOut(n.startRun(starts[last].e, starts[last].tick, nil, nil, false))
}

func (n *runner) newRun(e *entry, t dueTick, local bool) *Run {
	r := &Run{entry: e, host: &n.runHost, tick: t.at, caughtUp: t.missedAt != 0, onStart: t.onStart,
		startedAt: time.Now(), local: local}
	r.ctx.run = r
	r.attempt.Store(1)
	return r
}

// carryOut calls the handler and cleans up after it.
func (n *runner) carryOut(r *Run) {
	e := r.entry
	// The clean-up is deferred: a handler may call runtime.Goexit, as t.FailNow does.
	err, panicked := errGoexit, false
	defer func() {
		cause := r.ctx.cause()
		outcome := outcomeOf(cause, err, panicked)
		r.ctx.end()
		n.finish(e, r, outcome, unmarked(err))
		if r.trigger != nil {
			r.trigger.handle.end(outcome, cause, unmarked(err))
		}
	}()
	for retry := true; retry; retry = n.again(e, r, err) {
		err, panicked = errGoexit, false
		err, panicked = call(&r.ctx, e.timer.Run)
	}
}

// call calls the handler, and returns a panic as an error.
func call(ctx context.Context, handler func(context.Context) error) (err error, panicked bool) {
	defer func() {
		if p := recover(); p != nil {
			err, panicked = &PanicError{Value: p, Stack: debug.Stack()}, true
		}
	}()
	return handler(ctx), false
}

// begin records that a run has started.
func (n *runner) begin(e *entry, r *Run, lease *dlock.Lease) {
	d := e.state
	d.mu.Lock()
	defer d.mu.Unlock()
	d.place(r)
	n.number(r, lease)
	r.maxRunTimer = time.AfterFunc(time.Until(r.endsAt()), func() { n.outOfTime(e, r) })
	switch {
	case lease != nil:
		n.hold(e, r, lease)
	case !r.local:
		r.degraded.Store(true)
		n.store.views.beginDegraded(e)
		n.store.startedWithout()
	}
	n.ledger.began(&e.state.record, r)
}

// number gives a run what its ID is made of.
func (n *runner) number(r *Run, lease *dlock.Lease) {
	if lease != nil && lease.Fence() != 0 {
		r.firstSlot, r.number = int32(lease.Slot()), int64(lease.Fence())
	} else {
		r.firstSlot, r.number = -1, n.started.Add(1)
	}
	if r.trigger != nil {
		r.trigger.handle.timer, r.trigger.handle.id = r.Timer(), r.ID()
	}
}

// finish releases the slot of a run, records the outcome, and gives back its place.
func (n *runner) finish(e *entry, r *Run, outcome Outcome, err error) {
	took := time.Since(r.startedAt)
	logged := n.events.logsEnd(outcome)
	d := e.state
	d.mu.Lock()
	abandoned := n.gaveUp.Load()
	r.over = true // it gets no slot any more
	d.endedAt.Store(int64(time.Since(programStart)))
	if r.unwatch != nil {
		r.unwatch()
	}
	r.maxRunTimer.Stop()
	if r.Degraded() {
		n.store.views.endDegraded(e)
	}
	lease := r.lease.Load()
	_, fixed := e.latest().delay() // as Update may have set it since, or a timer that took its name
	fixed = fixed || e.removed()
	if logged || lease != nil || fixed {
		d.mu.Unlock()
		if lease != nil && !abandoned { // once Run no longer waits for it, the slot is left to expire
			if outcome == OutcomeOK {
				lease.MarkSucceeded()
			}
			n.release(e, lease)
		}
		if fixed {
			n.ended(d)
		}
		if logged {
			n.events.logEnd(r, outcome, took, err)
		}
		d.mu.Lock()
	}
	d.runs[r.place] = nil
	n.ledger.ended(&d.record, r, outcome, took, r.late, err)
	if n.store != nil {
		n.store.views.slotFree(e)
	}
	n.countReleased(r)
	n.limits.leave(e)
	n.registry.leave(e)
	n.waits.runEnded(e)
	d.mu.Unlock()
	n.log.flush()
}

// countReleased counts, once, that a run no longer holds its slot. Called with state.mu held.
func (n *runner) countReleased(r *Run) {
	if !r.holding {
		return
	}
	r.holding = false
	n.store.metrics.held(time.Since(r.lease.Load().AcquiredAt()))
}

// lost is called when the lease of a run ends.
func (n *runner) lost(e *entry, r *Run, lease *dlock.Lease) {
	err := lease.Err()
	lost, ok := errors.AsType[*dlock.LostError](err)
	if !ok {
		return // released: the handler has returned
	}
	lostAt := r.now()
	goOn := lost.Silent && e.timer.OnStoreDown == StoreDownRunLocal && reasonOf(lost.Err) == ReasonStoreDown &&
		!n.store.notSetUp(e) // its last answer may have been that it is not set up right
	switch { // before waiting for a mutex
	case lost.RevokedBy != nil:
		n.cancel(r, &CanceledError{By: *lost.RevokedBy, Err: lost})
	case !goOn:
		r.ctx.lose(err)
	}
	defer n.log.flush()
	e.state.mu.Lock()
	defer e.state.mu.Unlock()
	if goOn && !r.over && !r.Degraded() {
		n.store.views.wentDown(e)
		r.degraded.Store(true)
		n.store.views.beginDegraded(e)
	}
	n.countReleased(r)
	if lost.RevokedBy != nil {
		return
	}
	n.ledger.count(&e.state.record, func(t *tally) { t.leasesLost++ })
	n.events.leaseLost(r, lease, lostAt, goOn, lost)
}

// outOfTime is called at MaxRunTime, and at 1.5 × MaxRunTime.
func (n *runner) outOfTime(e *entry, r *Run) {
	defer n.log.flush()
	e.state.mu.Lock()
	defer e.state.mu.Unlock()
	if r.over {
		return
	}
	if r.late {
		n.overlong(e, r)
		return
	}
	if cause := r.ctx.cause(); cause != nil && !errors.Is(cause, ErrMaxRunTime) {
		return // it ended earlier, which was logged
	}
	if l := r.lease.Load(); l != nil {
		l.StopRenewing()
	}
	n.log.later(slog.LevelWarn,
		"timer: a run reached its MaxRunTime: its context has ended and its slot is no longer renewed",
		n.events.runInfo(r).line("max_run_time", e.timer.MaxRunTime)...)
	r.late = true
	if r.tick != 0 {
		n.ledger.countOverdue(&e.state.record)
	}
	r.maxRunTimer.Reset(e.timer.MaxRunTime / 2)
}

// overlong is called with state.mu held.
func (n *runner) overlong(e *entry, r *Run) {
	n.log.later(slog.LevelError,
		"timer: a run ignores its context: it goes on beyond 1.5 × MaxRunTime and keeps its place on this host "+
			"until it returns",
		n.events.runInfo(r).line("running_for", time.Since(r.startedAt).Round(time.Millisecond))...)
	n.ledger.count(&e.state.record, func(t *tally) { t.overlongHolds++ })
}

// isOver reports whether the handler of a run has returned.
func (n *runner) isOver(r *Run) bool {
	d := r.entry.state
	d.mu.Lock()
	defer d.mu.Unlock()
	return r.over
}

// counts returns how many runs of a timer there are on this host, and how many of them are past
// MaxRunTime and ignore their context.
func (n *runner) counts(e *entry) (runs, overdue int) {
	e.state.mu.Lock()
	defer e.state.mu.Unlock()
	return e.state.count((*Run).any), e.state.count((*Run).overdue)
}

// giveUp returns the names of the timers whose runs have not ended, once per run. Their slots are
// left to expire.
func (n *runner) giveUp() (stuck []string) {
	n.gaveUp.Store(true)
	for _, e := range n.registry.all() {
		runs, _ := n.counts(e)
		for range runs {
			stuck = append(stuck, e.timer.Name)
		}
		n.giveUpWaits(e)
	}
	slices.Sort(stuck)
	return stuck
}

// giveUpWaits ends the waits for the results of runs that have not ended.
func (n *runner) giveUpWaits(e *entry) {
	e.state.mu.Lock()
	defer e.state.mu.Unlock()
	for _, r := range e.state.runs {
		if r != nil && r.trigger != nil {
			r.trigger.handle.end(OutcomeDraining, ErrDraining, nil)
		}
	}
}

// release logs an error at Debug only: a lost lease was logged when it was lost, and a release that
// was not answered is repeated by the session.
func (n *runner) release(e *entry, lease *dlock.Lease) {
	if err := lease.Release(n.base); err != nil {
		n.log.Debug("timer: the slot was not released", "timer", e.timer.Name, "slot", lease.Slot(), "err", err)
	}
}

// place gives a run the lowest free place on this host. Called with state.mu held.
func (d *state) place(r *Run) {
	r.place = int32(slices.Index(d.runs, nil))
	if r.place < 0 {
		r.place = int32(len(d.runs))
		d.runs = append(d.runs, nil)
	}
	d.runs[r.place] = r
}

// overdue reports whether a run goes on past MaxRunTime and ignores its context.
func (d *state) overdue() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count((*Run).overdue) > 0
}

// count counts the runs for which holds is true. Called with state.mu held.
func (d *state) count(holds func(*Run) bool) (n int) {
	for _, r := range d.runs {
		if r != nil && holds(r) {
			n++
		}
	}
	return n
}
