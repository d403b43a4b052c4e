package timer

import (
	"cmp"
	"context"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/schedule"
)

// previousWithin is how far back PreviousTick looks.
const previousWithin = 10 * 366 * 24 * time.Hour

// PreviousTick returns the tick before this one in the timer's schedule, whether or not it ran. It
// returns the zero time if the run was triggered, if there was no tick in the ten years before, or
// with schedule.After. It computes the tick from the schedule, so the result is the same on every
// host.
func (r *Run) PreviousTick() (tick time.Time) {
	switch {
	case r == nil || r.tick == 0:
		return time.Time{}
	case r.given != nil:
		return r.given.PreviousTick
	case r.settings.timer.Schedule == nil:
		return time.Time{}
	}
	if _, fixed := r.settings.delay(); fixed {
		return time.Time{}
	}
	before := r.Tick().Add(-time.Microsecond)
	if tick = schedule.Latest(r.settings.timer.Schedule, before, previousWithin); tick.IsZero() {
		return tick
	}
	return tick.UTC()
}

// LastSuccessAt returns when a run of the timer last ended with OutcomeOK on any host, as far as
// this host knows, or the zero time if this host knows of none. The store reports that time when it
// grants the slot. A run with a slot therefore knows the successes on other hosts before it began.
// Some stores (database locks) do not report it.
func (r *Run) LastSuccessAt() time.Time {
	switch {
	case r == nil:
		return time.Time{}
	case r.given != nil:
		return r.given.LastSuccessAt
	}
	return r.settings.entry.lastSuccess()
}

// CaughtUp reports whether the run makes up for a missed tick: see CatchUp. It returns false for a
// run that is on time or was triggered.
func (r *Run) CaughtUp() bool { return r != nil && r.caughtUp }

// OnStart reports whether Timer.RunOnStart started the run.
func (r *Run) OnStart() bool { return r != nil && r.onStart }

// TriggeredBy returns who triggered the run. ok is false if the run has a Tick, or if
// Scheduler.Trigger was called without a By.
func (r *Run) TriggeredBy() (by driver.Cause, ok bool) {
	if r == nil || r.trigger == nil {
		return by, false
	}
	return r.trigger.by, r.trigger.by != driver.Cause{}
}

// Holder returns Config.Holder, which identifies this host to operators.
func (r *Run) Holder() dlock.Holder {
	if r == nil {
		return dlock.Holder{}
	}
	return r.host.holder
}

// A RunSpec describes the Run that ContextWithRun creates. The zero value is the first attempt of a
// run that was triggered and holds slot 0.
type RunSpec struct {
	Timer         string
	Tick          time.Time // zero: the run was triggered
	PreviousTick  time.Time // used only with a Tick
	LastSuccessAt time.Time
	CaughtUp      bool
	OnStart       bool
	TriggeredBy   driver.Cause // zero: unknown
	Payload       []byte       // with or without a Tick
	Slot          int          // -1: the run has no slot and is Degraded
	Fence         dlock.Fence
	Degraded      bool
	Attempt       int // 0: the first attempt
	Holder        dlock.Holder
	MaxRunTime    time.Duration // after which the context ends; 0 or NoLimit: never
}

// ContextWithRun returns a context with a Run, for unit tests of a handler. RunFromContext gives
// the Run to the handler. The context ends when ctx ends, with the same cause. Until then the Run
// is Valid, unless it is Degraded. To simulate the loss of a lease, cancel ctx with a
// *dlock.LostError (context.WithCancelCause). The Run holds nothing in a store.
func ContextWithRun(ctx context.Context, spec RunSpec) context.Context {
	maxRunTime := timeOf(cmp.Or(spec.MaxRunTime, NoLimit))
	host := newRunHost(spec.Holder)
	host.base = ctx
	r := &Run{
		settings:  &settings{timer: Timer{Name: spec.Timer, MaxRunTime: maxRunTime}, entry: &entry{}},
		host:      &host,
		startedAt: time.Now(), given: &spec, caughtUp: spec.CaughtUp, onStart: spec.OnStart, local: true,
		place: int32(spec.Slot), firstSlot: int32(spec.Slot), number: int64(spec.Fence),
	}
	if !spec.Tick.IsZero() {
		r.tick = spec.Tick.UnixMicro()
	}
	r.trigger = newTriggering(TriggerOptions{Payload: spec.Payload, By: spec.TriggeredBy}, nil)
	r.degraded.Store(spec.Degraded || spec.Slot < 0)
	r.attempt.Store(int32(max(spec.Attempt, 1)))
	r.ctx.run = r
	return &r.ctx
}
