package timer

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/notify"
)

// events sends what happens to the log and to the user's hooks. Any part may use it while holding
// any mutex. It runs no user code, because lines wait for flush, and hooks have their own
// goroutine. The exception is logEnd.
type events struct {
	log   *lineLog
	hooks Hooks
	queue notify.Queue

	losses, endings rateLimit

	createdAt  time.Time
	toldOfDrop atomic.Int64 // when dropped events were last logged, since createdAt; 0 if never
	over       atomic.Bool  // Run has ended
}

func newEvents(config Config, log *lineLog) *events {
	v := &events{log: log, hooks: config.Hooks, createdAt: time.Now()}
	panics := new(rateLimit)
	v.queue.Panicked = func(hook string, value any, stack []byte) {
		log.laterLimited(panics, slog.LevelError, "timer: a hook panicked", "hook", hook, "panic", value,
			"stack", string(stack))
		log.flush()
	}
	return v
}

// send queues the call of a hook.
func send[T any](v *events, name string, hook func(T), info T) {
	if v.queue.Put(name, func() { hook(info) }) || v.over.Load() {
		return
	}
	last, now := v.toldOfDrop.Load(), int64(time.Since(v.createdAt))
	if (last == 0 || now-last >= int64(logInterval)) && v.toldOfDrop.CompareAndSwap(last, now) {
		v.tellOfDrop()
	}
}

func (e *events) tellOfDrop() {
	e.log.later(slog.LevelWarn, "timer: hooks are too slow: events were dropped",
		"dropped", e.queue.Dropped())
}

// close delivers the queued events. It returns the name of a hook that does not return, or "" if
// there is none.
func (e *events) close() (stuck string) {
	before := e.queue.Dropped()
	e.over.Store(true)
	stuck = e.queue.Close(HookGrace)
	if e.queue.Dropped() > before {
		e.tellOfDrop()
	}
	e.log.flush()
	return stuck
}

// info returns the run as it is shown to hooks and in Status.
func (r *Run) info() RunInfo {
	by, _ := r.TriggeredBy()
	return RunInfo{ID: r.ID(), Timer: r.Timer(), Tick: r.Tick(), CaughtUp: r.caughtUp, OnStart: r.onStart,
		TriggeredBy: by, PayloadLen: len(r.Payload()), Slot: r.Slot(), Fence: r.Fence(), Holder: r.host.holder,
		StartedAt: r.startedAt, Attempt: r.Attempt(), Degraded: r.Degraded(), Valid: r.Valid(),
		Overdue: time.Since(r.startedAt) > r.settings.timer.MaxRunTime}
}

// line returns the attributes that begin every line about a run, followed by more. The package
// documentation lists them.
func (r RunInfo) line(more ...any) []any {
	args := make([]any, 0, 12+len(more))
	args = append(args, "timer", r.Timer)
	if !r.Tick.IsZero() {
		args = append(args, "tick", r.Tick)
	}
	if r.TriggeredBy != (driver.Cause{}) {
		args = append(args, "by", r.TriggeredBy.By, "note", r.TriggeredBy.Note)
	}
	if r.PayloadLen > 0 {
		args = append(args, "payload_bytes", r.PayloadLen)
	}
	args = append(args, "slot", r.Slot, "fence", int64(r.Fence), "holder", r.Holder.String(), "attempt", r.Attempt)
	if r.OnStart {
		args = append(args, "on_start", true)
	}
	return append(args, more...)
}

// storeCalled copies the slices of a call, because the session reuses them before the hook is
// called.
func (e *events) storeCalled(c dlock.StoreCall) {
	c.Grants, c.Results = slices.Clone(c.Grants), slices.Clone(c.Results)
	send(e, "StoreCalled", e.hooks.StoreCalled, c)
}

func (e *events) runStarted(r *Run) {
	if e.hooks.RunStarted != nil {
		send(e, "RunStarted", e.hooks.RunStarted, r.info())
	}
	if e.log.debugs() {
		e.log.later(slog.LevelDebug, "timer: run started", r.info().line()...)
	}
}

// attemptFailed reports a failed attempt that will be retried.
func (e *events) attemptFailed(r *Run, at time.Time, wait time.Duration, err error) {
	if e.hooks.AttemptFailed != nil {
		send(e, "AttemptFailed", e.hooks.AttemptFailed,
			AttemptInfo{RunInfo: r.info(), FailedAt: at, Err: unmarked(err), RetryIn: wait})
	}
	args := r.info().line("of", r.settings.timer.Retry.MaxAttempts, "retry_in", wait, "err", err)
	if p := guard.Panicked(err); p != nil {
		args = append(args, "stack", string(p.Stack)) // the run's last line has only the last attempt's stack
	}
	e.log.later(slog.LevelInfo, "timer: an attempt failed: the run will be retried", args...)
}

// runEnded calls the hook. The caller has already called logEnd, without holding a mutex.
func (e *events) runEnded(r *Run, outcome Outcome, took time.Duration, err error) {
	if e.hooks.RunEnded != nil {
		send(e, "RunEnded", e.hooks.RunEnded, RunResult{RunInfo: r.info(), Outcome: outcome, Took: took, Err: err})
	}
}

// logsEnd reports whether the end of a run is logged.
func (e *events) logsEnd(outcome Outcome) bool { return outcome != OutcomeOK || e.log.debugs() }

// logEnd logs the end of a run immediately. The caller holds no mutex.
func (e *events) logEnd(r *Run, outcome Outcome, took time.Duration, err error) {
	args := r.info().line("outcome", string(outcome), "took", took)
	if err != nil {
		args = append(args, "err", err)
	}
	switch outcome {
	case OutcomeOK:
		e.log.Debug("timer: run ended", args...)
	case OutcomeLeaseLost: // already logged when the lease was lost, unless too many were lost
		e.log.laterLimited(&e.endings, slog.LevelInfo, "timer: run ended", args...)
		e.log.flush()
	case OutcomeTimedOut, OutcomeCanceled, OutcomeDraining: // already logged when the context ended
		e.log.Info("timer: run ended", args...)
	case OutcomePanicked:
		e.log.Error("timer: run panicked", append(args, "stack", string(err.(*PanicError).Stack))...)
	default:
		e.log.Error("timer: run failed", args...)
	}
}

// ticksSkipped reports a tick that started no run. If n > 1, it reports n ticks that this host
// missed, and tick (µs) is the first of them.
func (e *events) ticksSkipped(s *settings, tick int64, n uint64, reason Reason, err error) {
	hook, debugs := e.hooks.TickSkipped, e.log.debugs()
	if hook == nil && !debugs {
		return
	}
	info := SkipInfo{Timer: s.timer.Name, Tick: time.UnixMicro(tick).UTC(), Ticks: n, Reason: reason, Err: err}
	if no, ok := err.(*dlock.NotAcquiredError); ok && no != nil {
		info.Holder = no.Holder
	}
	if hook != nil {
		send(e, "TickSkipped", hook, info)
	}
	if debugs {
		e.log.later(slog.LevelDebug, "timer: tick skipped", info.line()...)
	}
}

func (s SkipInfo) line() []any {
	args := []any{"timer", s.Timer, "tick", s.Tick, "reason", string(s.Reason)}
	if s.Ticks > 1 {
		args = append(args, "ticks", s.Ticks)
	}
	if s.Holder != (dlock.Holder{}) {
		args = append(args, "holder", s.Holder.String())
	}
	if s.Err != nil {
		args = append(args, "err", s.Err)
	}
	return args
}

// leaseLost reports that a run has lost a lease. The caller holds entry.mu, so that the run cannot
// end in the meantime.
func (e *events) leaseLost(r *Run, lease *dlock.Lease, at time.Time, goesOn bool, lost *dlock.LostError) {
	info := LossInfo{RunInfo: r.info(), LostAt: at, GoesOn: goesOn, Err: lost}
	info.Slot, info.Fence = lease.Slot(), lease.Fence() // the run may have another lease by now
	if e.hooks.LeaseLost != nil && !r.over {
		send(e, "LeaseLost", e.hooks.LeaseLost, info)
	}
	tell := &rateLimit{} // a loss that the store reports is always logged
	if lost.Silent {
		tell = &e.losses
	}
	e.log.laterLimited(tell, slog.LevelWarn, "timer: lease lost", info.line("goes_on", goesOn, "err", lost)...)
}

// storeChanged reports that the breaker of the store, or of one of its servers, has opened or
// closed. It does not log the change. The storeWatch does, because it knows the effect on the
// timers.
func (e *events) storeChanged(c change, store, server string, b *breaker) {
	info := StoreInfo{Store: store, Server: server}
	switch {
	case c.opened && e.hooks.StoreDown != nil:
		info.NotSetUp, info.Err = b.setupErr != nil, b.err
		send(e, "StoreDown", e.hooks.StoreDown, info)
	case c.closed && e.hooks.StoreUp != nil:
		info.DownFor = c.lasted
		send(e, "StoreUp", e.hooks.StoreUp, info)
	}
}
