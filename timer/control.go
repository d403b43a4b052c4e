package timer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/mask"
)

// ErrNoControl is returned by a Control whose store keeps no overrides: there is no store, or it is
// one that cannot keep them, such as nativelock.
var ErrNoControl = errors.New("timer: no control: the store keeps no overrides (redislock, sqllock with a table, " +
	"and memlock do)")

// A Control changes timers in the whole fleet at run time, through the store: it pauses them,
// overrides their MaxConcurrency, triggers them and cancels runs. Hosts follow with their next
// tick, or when they next renew their leases (every Config.TTL/3). The caller need not reach the
// hosts. A host that was stopped meanwhile is bound, too: when it goes on, the store refuses its
// starts. The store keeps a pause or a limit until it is changed, unless the store loses its data.
// Each call takes a dlock.Origin, which says who makes the change and why, in at most 256 bytes
// each. LocalOnly timers are not affected.
//
// A timer that no host is known to run can be changed, too, because it may be deployed later. Its
// name may also be misspelt, so such a change is logged as a warning: see Known.
//
// After an error the change may or may not be in force: call again. All calls except Trigger are
// idempotent.
type Control struct {
	caps       dlock.Capabilities
	timeout    time.Duration
	log        *slog.Logger
	registered func(timer string) bool // on this host; nil: it runs no timers
	localOnly  func(timer string) bool // on this host; nil: it runs no timers
}

// coldTimeout bounds a call of NewControl to the store. Nothing has called the store before, so the
// first call connects, which takes longer than the StoreTimeout of a scheduler.
const coldTimeout = 5 * time.Second

// NewControl returns a Control for the fleet that shares a store, for programs that run no timers
// themselves. It logs to slog.Default(). A call to the store may take 5 s; one of Scheduler.Control
// may take Config.StoreTimeout.
func NewControl(store dlock.DistributedLock) *Control {
	return &Control{caps: dlock.CapabilitiesOf(store), timeout: coldTimeout,
		log: slog.New(guarded{mask.Logger(nil).Handler()})}
}

// Control returns a Control for the fleet that shares this scheduler's store.
func (s *Scheduler) Control() *Control {
	return &Control{
		caps: dlock.CapabilitiesOf(s.config.Lock), timeout: s.config.StoreTimeout, log: s.log.Logger,
		registered: func(timer string) bool { return s.registry.get(timer) != nil },
		localOnly: func(timer string) bool {
			set := s.registry.get(timer)
			return set != nil && set.timer.LocalOnly
		},
	}
}

// Pause keeps a timer from starting on any host until the given time, at most ten years ahead. Runs
// in progress continue. Ticks that come due during the pause are skipped (ReasonPaused) and do not
// count as missed. A second pause replaces the first. The duration of the pause is computed with
// this host's clock and measured by the store's.
func (c *Control) Pause(ctx context.Context, timer string, until time.Time, by dlock.Origin) error {
	left := time.Until(until)
	if left <= 0 {
		return fmt.Errorf("timer %q: a pause until %s is over: choose a later time", timer, until.Format(time.RFC3339))
	}
	return c.update(ctx, timer, dlock.Update{Pause: &dlock.Pause{Origin: by, For: left}})
}

// Resume ends a pause. It has no effect on a timer that is not paused.
func (c *Control) Resume(ctx context.Context, timer string, by dlock.Origin) error {
	return c.update(ctx, timer, dlock.Update{Resume: &by})
}

// SetMaxConcurrency overrides the timer's MaxConcurrency with n on all hosts, from their next tick
// (within a heartbeat on a host that is at its old limit). n is 1 to 10,000, or 0: nothing starts.
// A MaxPerHost that is not set follows n; one that is set does not change. MaxPerTick never
// changes: more runs may overlap, but no tick runs more often. If n is lower, runs in progress
// continue, and no further run starts until fewer than n are running. As with a Pause, ticks that
// come due while n is 0 do not count as missed.
func (c *Control) SetMaxConcurrency(ctx context.Context, timer string, n int, by dlock.Origin) error {
	if n < 0 || n > maxLimit {
		return fmt.Errorf("timer %q: MaxConcurrency %d: use 0 to %d", timer, n, maxLimit)
	}
	return c.update(ctx, timer, dlock.Update{Limit: &dlock.LimitOverride{Origin: by, Slots: n}})
}

// ResetMaxConcurrency removes the override: Timer.MaxConcurrency applies again.
func (c *Control) ResetMaxConcurrency(ctx context.Context, timer string, by dlock.Origin) error {
	return c.update(ctx, timer, dlock.Update{ResetLimit: &by})
}

// Trigger makes one host run the timer, at most once, as soon as there is room: usually within a
// heartbeat. If there is no room (because of MaxConcurrency, MaxPerHost, MaxRuns, Limits or a
// pause), Scheduler.Trigger refuses; this trigger waits. The store keeps it, with its payload,
// until a host has started the run, or TriggerOptions.ExpiresIn has passed. Up to
// MaxPendingTriggers of a timer wait, and are run in their order; a further one is refused with
// ErrTooManyTriggers. One that expires is logged as a warning by one of the hosts that run the
// timer, and counted in its TimerStatus.ExpiredTriggers. If a later Trigger of the timer finds it
// first, the Control logs it, and nothing counts it.
//
// When a run ends, its place is offered to triggers of that timer, and of timers with which it
// shares a limit, before any tick of that host gets it, the oldest first. Ticks of such timers on
// other hosts wait a moment meanwhile: at most half a StoreTimeout, and a quarter of the time to
// their next tick. So a trigger starts within a TTL, in which all hosts learn of it, and the time
// of the longest run that is in its way, or as many of these as triggers wait before it: also if
// ticks keep the timer or the limit busy all the time. That is so if the hosts whose runs are in
// the way have registered the timer, and nothing but such runs is. A host that asks in the same few
// milliseconds may be faster: then it is the end of the next run. For places that become free
// elsewhere one host asks after half the time that the trigger has waited, at least 5 s and at most
// a minute.
//
// A host takes a trigger before it starts the run. If it dies in between, nobody else runs it, and
// its expiry is reported. At most once holds as long as the store keeps its data: a failover of
// Redis that loses the latest writes may lose a trigger, or repeat it.
//
// Trigger refuses a timer that is LocalOnly on this host: no host would look for its triggers.
// After an error that matches ErrTooManyTriggers or ErrPayloadTooLong, or says that the timer is
// not triggered, the store keeps nothing. After any other error the timer may or may not run.
func (c *Control) Trigger(ctx context.Context, timer string, options TriggerOptions) error {
	err := options.check()
	if (options.By == dlock.Origin{}) {
		err = errors.Join(err, options.By.Validate())
	}
	if d := options.ExpiresIn; d != 0 && (d < minTriggerExpiry || d > MaxTriggerExpiry) {
		err = errors.Join(err, fmt.Errorf("ExpiresIn %v: use 0 for the default (%v), or %v to %v", d,
			DefaultTriggerExpiry, minTriggerExpiry, MaxTriggerExpiry))
	}
	if err == nil {
		err = dlock.CheckName(Timer{Name: timer}.lockName())
	}
	if err == nil && c.localOnly != nil && c.localOnly(timer) {
		err = errors.New("it is LocalOnly, so no host looks for what the store keeps: use Scheduler.Trigger")
	}
	if err != nil {
		return fmt.Errorf("timer %q: not triggered: %w", timer, err)
	}
	queues, err := c.queues()
	if err != nil {
		return err
	}
	id := newTriggerID()
	expired, err := queues.push(ctx, timer, id, options)
	reportExpired(c.log.Warn, timer, expired)
	if err != nil {
		return fmt.Errorf("timer %q: %w", timer, err)
	}
	err = c.update(ctx, timer, dlock.Update{Trigger: &options.By})
	if err == nil {
		return nil
	}
	if gone, failed := queues.withdraw(context.WithoutCancel(ctx), timer, id); gone && failed == nil {
		return fmt.Errorf("timer %q: not triggered, because hosts could not be told: %w", timer, err)
	}
	return err
}

// Triggers returns the triggers of a timer that the store keeps, oldest first. They do not show in
// Inspect.
func (c *Control) Triggers(ctx context.Context, timer string) ([]PendingTrigger, error) {
	queues, err := c.queues()
	if err != nil {
		return nil, err
	}
	q, _, now, err := queues.read(ctx, timer)
	if err != nil {
		return nil, fmt.Errorf("timer %q: %w", timer, err)
	}
	return q.pending(now), nil
}

func (c *Control) queues() (queueStore, error) {
	ctl, err := c.controller()
	return queueStore{ctl, c.timeout}, err
}

// CancelRun cancels a run on any host, at most once; see Scheduler.CancelRun, which cancels one on
// its own host at once. id is its Run.ID. The host of the run learns of it with its next heartbeat,
// within Config.TTL/3, and logs who canceled the run. The run is not Valid from then on; the cause
// of its context is a *CanceledError, and matches dlock.ErrLost, too. The slot becomes free when
// the handler has returned or when the lease ends, never before: a host that is dead or stopped
// keeps it no longer than without this call.
//
// A host that cannot reach the store does not hear of it. It ends the run when it no longer trusts
// the lease, within the TTL, or goes on without the store if StoreDownRunLocal says so.
//
// CancelRun returns ErrNoRun if the run has ended, and also for one that began without a slot in
// the store, or lost it in an outage: CancelSlot or Scheduler.CancelRun may find it.
func (c *Control) CancelRun(ctx context.Context, timer, id string, by dlock.Origin) error {
	slot, fence, ok := parseRunID(id)
	if !ok {
		if _, err := c.controller(); err != nil {
			return err
		}
		return fmt.Errorf("timer %q: run %q: %w in a slot that it began with: cancel it by its slot or on its host",
			timer, id, ErrNoRun)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return c.revoke(ctx, timer, slot, fence, by)
}

// CancelSlot is CancelRun for the run that holds a slot now. It returns ErrNoRun if none does.
func (c *Control) CancelSlot(ctx context.Context, timer string, slot int, by dlock.Origin) error {
	if _, err := c.controller(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*c.timeout)
	defer cancel()
	held, err := c.held(ctx, timer)
	if err != nil {
		return err
	}
	for _, h := range held {
		if h.Slot == slot {
			return c.revoke(ctx, timer, slot, h.Fence, by)
		}
	}
	return fmt.Errorf("timer %q: slot %d: %w", timer, slot, ErrNoRun)
}

func (c *Control) revoke(ctx context.Context, timer string, slot int, fence dlock.Fence, by dlock.Origin) error {
	ctl, err := c.controller()
	if err != nil {
		return err
	}
	err = guard(func() error { return ctl.Revoke(ctx, Timer{Name: timer}.lockName(), slot, fence, by) })
	if matches(err, dlock.ErrNotHeld) {
		err = ErrNoRun
	}
	if err != nil {
		return fmt.Errorf("timer %q: slot %d: %w", timer, slot, err)
	}
	return nil
}

// Inspect returns the overrides of a timer, and the latest of its ticks that was claimed.
func (c *Control) Inspect(ctx context.Context, timer string) (dlock.ControlState, error) {
	ctl, err := c.controller()
	if err != nil {
		return dlock.ControlState{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	list, err := inspect(ctx, ctl, []string{Timer{Name: timer}.lockName()})
	if err == nil {
		err = list[0].Err
	}
	if err != nil {
		return dlock.ControlState{}, fmt.Errorf("timer %q: %w", timer, err)
	}
	list[0].Name = timer
	return list[0], nil
}

// InspectAll is Inspect for several timers, with one call to the store (on a Redis Cluster one per
// node). The states are in the order of the arguments. If a timer's state is not known, its
// ControlState.Err says why.
func (c *Control) InspectAll(ctx context.Context, timers ...string) ([]dlock.ControlState, error) {
	ctl, err := c.controller()
	if err != nil {
		return nil, err
	}
	list, locks, at := make([]dlock.ControlState, len(timers)), []string(nil), []int(nil)
	for i, name := range timers {
		list[i].Name = name
		lock := Timer{Name: name}.lockName()
		if list[i].Err = dlock.CheckName(lock); list[i].Err == nil {
			locks, at = append(locks, lock), append(at, i)
		}
	}
	if len(locks) == 0 {
		return list, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	states, err := inspect(ctx, ctl, locks)
	if err != nil {
		return nil, fmt.Errorf("%d timers: %w", len(timers), err)
	}
	for k, state := range states {
		state.Name = timers[at[k]]
		list[at[k]] = state
	}
	return list, nil
}

// Known reports whether a host is known to run a timer of that name: it is registered on this one,
// if the Control is a Scheduler's; or the store knows that a host has claimed a tick of it or was
// triggered, or holds a slot. So false may also mean that it has not run yet, or that it has no
// limit for which it would call the store. Known makes up to three calls to the store.
func (c *Control) Known(ctx context.Context, timer string) (bool, error) {
	if c.registered != nil && c.registered(timer) {
		return true, nil
	}
	ctl, err := c.controller()
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*c.timeout)
	defer cancel()
	states, err := inspect(ctx, ctl, []string{Timer{Name: timer}.lockName()})
	if err == nil {
		err = states[0].Err
	}
	if err != nil {
		return false, fmt.Errorf("timer %q: %w", timer, err)
	}
	if !states[0].LastTick.IsZero() {
		return true, nil
	}
	if held, err := c.held(ctx, timer); len(held) > 0 || err != nil {
		return len(held) > 0, err
	}
	triggers, _, _, err := queueStore{ctl, c.timeout}.read(ctx, timer)
	if err != nil {
		return false, fmt.Errorf("timer %q: %w", timer, err)
	}
	return triggers.Ran, nil
}

// held returns the leases of a timer's slots.
func (c *Control) held(ctx context.Context, timer string) (list []dlock.LeaseInfo, err error) {
	lister := c.caps.Lister
	if lister == nil {
		return nil, ErrNoControl
	}
	err = guard(func() (err error) {
		list, err = lister.List(ctx, Timer{Name: timer}.lockName(), dlock.MaxSlots)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("timer %q: %w", timer, err)
	}
	return list, nil
}

func (c *Control) controller() (dlock.Controller, error) {
	if c.caps.Controller == nil {
		return nil, ErrNoControl
	}
	return c.caps.Controller, nil
}

func (c *Control) update(ctx context.Context, timer string, change dlock.Update) error {
	ctl, err := c.controller()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*c.timeout)
	defer cancel()
	// The timer's update comes first: a host that sees the new version of hostsLock must find it.
	if err := guard(func() error { return ctl.Update(ctx, Timer{Name: timer}.lockName(), change) }); err != nil {
		return fmt.Errorf("timer %q: %w", timer, err)
	}
	if err := guard(func() error { return ctl.Update(ctx, hostsLock, dlock.Update{}) }); err != nil {
		return fmt.Errorf("timer %q: the store keeps the change, but hosts were not told: limits and pauses count "+
			"from the next tick on: %w",
			timer, err)
	}
	if known, err := c.Known(ctx, timer); err == nil && !known {
		c.log.Warn("timer: a timer was changed that has not run yet, or that no host has: check how its name is spelt",
			"timer", timer)
	}
	return nil
}
