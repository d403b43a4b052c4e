package timer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// ErrNoControl is returned by a Control whose store keeps no overrides: there is no store, or it
// has locks of the database only.
var ErrNoControl = errors.New("timer: no control: the store keeps no overrides (redislock, sqllock with a table, " +
	"and memlock do)")

// A Control changes timers in the whole fleet at run time, through the store: it pauses them,
// overrides their MaxConcurrency, triggers them and cancels runs. Hosts follow with their next
// tick, or when they next renew their leases (Config.TTL/3). Nobody polls, and no host has to be
// reached: one that was stopped meanwhile is refused by the store when it goes on. The store keeps
// a pause or a limit until it is changed; it is lost with the store's data. Each call takes who
// makes it and a note, for others to read; 256 bytes each at most. Timers that are LocalOnly are
// not affected.
//
// On error the change may or may not be in force: call again. All calls but Trigger are idempotent.
type Control struct {
	caps    dlock.Capabilities
	timeout time.Duration
}

// NewControl returns the control of the fleet that shares a store, for programs that run no timers
// themselves.
func NewControl(store dlock.DistributedLock) *Control {
	return &Control{caps: dlock.CapabilitiesOf(store), timeout: dlock.DefaultStoreTimeout}
}

// Control returns the control of the fleet that shares this scheduler's store.
func (s *Scheduler) Control() *Control {
	return &Control{caps: dlock.CapabilitiesOf(s.config.Lock), timeout: s.config.StoreTimeout}
}

// Pause keeps a timer from starting anywhere until then, at most ten years. Runs that go on are
// left alone. Ticks that come due meanwhile are skipped (Paused) and not made up for. A second
// pause takes the place of the first. The time that is left counts, by the store's clock.
func (c *Control) Pause(ctx context.Context, timer string, until time.Time, by dlock.Origin) error {
	left := time.Until(until)
	if left <= 0 {
		return fmt.Errorf("timer %q: a pause until %s is over: choose a later time", timer, until.Format(time.RFC3339))
	}
	return c.update(ctx, timer, dlock.Update{Pause: &dlock.Pause{Origin: by, For: left}})
}

// Resume ends a pause. It does nothing to a timer that is not paused.
func (c *Control) Resume(ctx context.Context, timer string, by dlock.Origin) error {
	return c.update(ctx, timer, dlock.Update{Resume: &by})
}

// SetMaxConcurrency has n take the place of the timer's MaxConcurrency on all hosts, from their
// next tick (a host that is at its old limit: within a heartbeat), 1 to 10,000, or 0: nothing
// starts. A MaxPerHost that the code does not state follows; one that it states stays. MaxPerTick
// stays in any case: more runs may overlap, but no tick is run more often. When n is lower, runs
// that go on are left alone, and none starts until fewer than n go on. As with a Pause, ticks that
// came due while it was 0 are not made up for.
func (c *Control) SetMaxConcurrency(ctx context.Context, timer string, n int, by dlock.Origin) error {
	if n < 0 || n > maxLimit {
		return fmt.Errorf("timer %q: MaxConcurrency %d: use 0 to %d", timer, n, maxLimit)
	}
	return c.update(ctx, timer, dlock.Update{Limit: &dlock.Limit{Origin: by, Slots: n}})
}

// ResetMaxConcurrency has what the code says be in force again.
func (c *Control) ResetMaxConcurrency(ctx context.Context, timer string, by dlock.Origin) error {
	return c.update(ctx, timer, dlock.Update{ResetLimit: &by})
}

// Trigger has one host, whichever is first, run the timer now: within a heartbeat. As
// Scheduler.Trigger, which runs it on this host, it obeys MaxConcurrency, MaxPerHost and a pause.
// At most one host tries, once; its log says what came of it, as do those of hosts that have no
// place for it. Of two triggers within a heartbeat, the first may be overtaken. One that no host
// has heard of within a minute lapses.
func (c *Control) Trigger(ctx context.Context, timer string, by dlock.Origin) error {
	return c.update(ctx, timer, dlock.Update{Trigger: &by})
}

// CancelRun ends the run that holds a slot of the timer: with its next heartbeat its context ends,
// with a cause that matches dlock.ErrLost and names who did it. The slot becomes free when the
// handler has returned, or when the lease ends, never before; so a holder that is dead or stopped
// keeps it no longer than without this call. It returns dlock.ErrNotHeld if nobody holds the slot.
func (c *Control) CancelRun(ctx context.Context, timer string, slot int, by dlock.Origin) error {
	ctl, err := c.controller()
	if err != nil {
		return err
	}
	lister := c.caps.Lister
	if lister == nil {
		return ErrNoControl
	}
	ctx, cancel := context.WithTimeout(ctx, 2*c.timeout)
	defer cancel()
	name := Timer{Name: timer}.lockName()
	var held []dlock.LeaseInfo
	err = guard(func() (err error) { held, err = lister.List(ctx, name, dlock.MaxSlots); return err })
	if err != nil {
		return fmt.Errorf("timer %q: %w", timer, err)
	}
	for _, h := range held {
		if h.Slot == slot {
			if err := guard(func() error { return ctl.Revoke(ctx, name, slot, h.Fence, by) }); err != nil {
				return fmt.Errorf("timer %q: slot %d: %w", timer, slot, err)
			}
			return nil
		}
	}
	return fmt.Errorf("timer %q: slot %d: %w", timer, slot, dlock.ErrNotHeld)
}

// Inspect returns the overrides of a timer, and its latest tick that was claimed.
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
	// The update first: whoever hears that there is something new must find it.
	if err := guard(func() error { return ctl.Update(ctx, Timer{Name: timer}.lockName(), change) }); err != nil {
		return fmt.Errorf("timer %q: %w", timer, err)
	}
	if err := guard(func() error { return ctl.Update(ctx, hostsLock, dlock.Update{}) }); err != nil {
		return fmt.Errorf("timer %q: the store keeps the change, but hosts were not told: limits and pauses count "+
			"from the next tick on, a trigger may get lost: %w",
			timer, err)
	}
	return nil
}
