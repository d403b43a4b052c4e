package control

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/timer/internal/fleet"
)

const (
	// DefaultTriggerExpiry and MaxTriggerExpiry are the default and the maximum of
	// TriggerOptions.ExpiresIn.
	DefaultTriggerExpiry = time.Hour
	MaxTriggerExpiry     = 24 * time.Hour

	// MaxPendingTriggers is how many triggers of one timer the store keeps. Trigger refuses further
	// ones with ErrTooManyTriggers.
	MaxPendingTriggers = fleet.MaxPendingTriggers

	minTriggerExpiry = time.Second
)

// ErrTooManyTriggers is returned by Control.Trigger if MaxPendingTriggers triggers of the timer are
// already pending.
var ErrTooManyTriggers = fleet.ErrTooManyTriggers

// TriggerOptions are the options of Control.Trigger.
type TriggerOptions struct {
	// Payload is what timer.Run.Payload returns: any bytes. Nil and empty are the same: Run.Payload
	// returns nil. A payload longer than timer.MaxPayloadLen (64 KiB) is refused with
	// timer.ErrPayloadTooLong. Default: none.
	Payload []byte

	// By says who triggers the run, for timer.Run.TriggeredBy, Status, hooks and the log. By and
	// Note have at most 256 bytes each. Required.
	By driver.Cause

	// ExpiresIn is how long the store keeps the trigger until a host has room for its run. 1 s to
	// MaxTriggerExpiry (24 h). Default DefaultTriggerExpiry (1 h).
	ExpiresIn time.Duration
}

func (t TriggerOptions) check() error {
	err := errors.Join(fleet.CheckPayload(t.Payload), t.By.Validate())
	if d := t.ExpiresIn; d != 0 && (d < minTriggerExpiry || d > MaxTriggerExpiry) {
		err = errors.Join(err, fmt.Errorf("ExpiresIn %v: use 0 for the default (%v), or %v to %v", d,
			DefaultTriggerExpiry, minTriggerExpiry, MaxTriggerExpiry))
	}
	return err
}

// A PendingTrigger is a trigger that the store keeps because no host is known to have started its
// run.
type PendingTrigger struct {
	By         driver.Cause
	PayloadLen int           // in bytes
	Age        time.Duration // since the call of Control.Trigger, by the store's clock
	ExpiresIn  time.Duration // 0: the trigger has expired, and the next host that reads the queue reports it
	// TakenBy is the host that is about to start the run. If TakenBy does not change, that host has
	// died or lost the store, and the run may or may not have started. Zero: no host has taken the
	// trigger.
	TakenBy dlock.Holder
}

// MarshalJSON implements json.Marshaler. Durations are in seconds, and absent values are omitted.
func (p PendingTrigger) MarshalJSON() ([]byte, error) {
	takenBy := ""
	if p.TakenBy != (dlock.Holder{}) {
		takenBy = p.TakenBy.String()
	}
	return json.Marshal(struct {
		By         driver.Cause `json:"by"`
		PayloadLen int          `json:"payload_bytes"`
		Age        float64      `json:"age_seconds"`
		ExpiresIn  float64      `json:"expires_in_seconds"`
		TakenBy    string       `json:"taken_by,omitempty"`
	}{p.By, p.PayloadLen, p.Age.Seconds(), p.ExpiresIn.Seconds(), takenBy})
}

// Trigger makes one host run the timer, at most once, as soon as there is room, usually within a
// heartbeat. If there is no room (because of MaxConcurrency, MaxPerHost, MaxRuns, Limits or a
// pause), the trigger waits, whereas timer.Scheduler.Trigger refuses. The store keeps the trigger
// and its payload until a host has started the run, or until TriggerOptions.ExpiresIn has passed.
// Up to MaxPendingTriggers triggers of a timer may wait; Trigger refuses further ones with
// ErrTooManyTriggers. Hosts take triggers in order. If two hosts take one trigger each at the same
// moment, the later trigger may start first. When a trigger expires, one of the hosts that run the
// timer logs a warning and counts it in its timer.TimerStatus.ExpiredTriggers. If a later call of
// Trigger for the timer finds the expired trigger first, the Control logs it and it is not counted.
//
// When a run ends, its host offers the free place to triggers before any tick. The oldest trigger
// among those of the timer, and of timers that share a limit with it, goes first. Ticks of these
// timers on other hosts wait briefly: at most half a StoreTimeout, and at most a quarter of the
// time to their next tick. Therefore a trigger starts even if ticks keep the timer or the limit
// busy all the time. The wait is at most one TTL, in which all hosts learn of the trigger, plus the
// longest run that occupies its place, once for the trigger itself and once for each trigger before
// it. This bound requires that the hosts of those runs have registered the timer, and that only
// such runs block the trigger. A host that calls the store within the same few milliseconds may
// take the place first; the trigger then waits for the next run to end. For places that become free
// elsewhere, one host checks again after half the time that the trigger has waited, but after at
// least 5 s and at most a minute. For a rate, the host checks when the rate allows the next start,
// or after a minute.
//
// A host takes a trigger before it starts the run. If the host dies in between, no other host runs
// the trigger, and its expiry is reported. "At most once" holds as long as the store keeps its
// data. A failover of Redis that loses the latest writes may lose a trigger or repeat it.
//
// Trigger refuses a timer that is LocalOnly on this host, because no host would look for its
// triggers. If the error matches ErrTooManyTriggers or timer.ErrPayloadTooLong, or says that the
// timer is not triggered, the store keeps nothing. After any other error the timer may or may not
// run.
func (c *Control) Trigger(ctx context.Context, timer string, options TriggerOptions) error {
	err := options.check()
	if err == nil {
		err = driver.CheckName(fleet.TimerLock(timer))
	}
	if _, localOnly := c.local(timer); err == nil && localOnly {
		err = errors.New("it is LocalOnly, so no host reads triggers from the store: use Scheduler.Trigger")
	}
	if err != nil {
		return fmt.Errorf("timer %q: not triggered: %w", timer, err)
	}
	queues, err := c.queues()
	if err != nil {
		return err
	}
	order := fleet.Trigger{ID: rand.Text(), By: options.By, Payload: options.Payload}
	expired, err := queues.Push(ctx, timer, order, cmp.Or(options.ExpiresIn, DefaultTriggerExpiry))
	fleet.LogExpired(c.log, timer, expired)
	if err != nil {
		return fmt.Errorf("timer %q: %w", timer, err)
	}
	err = c.update(ctx, timer, driver.Update{Trigger: &options.By})
	if err == nil {
		return nil
	}
	if gone, failed := queues.Withdraw(context.WithoutCancel(ctx), timer, order.ID); gone && failed == nil {
		return fmt.Errorf("timer %q: not triggered: hosts could not be notified: %w", timer, err)
	}
	return err
}

// Triggers returns the triggers of a timer that the store keeps, oldest first. Inspect does not
// return them.
func (c *Control) Triggers(ctx context.Context, timer string) ([]PendingTrigger, error) {
	queues, err := c.queues()
	if err != nil {
		return nil, err
	}
	q, _, now, err := queues.Read(ctx, timer)
	if err != nil {
		return nil, fmt.Errorf("timer %q: %w", timer, err)
	}
	var list []PendingTrigger
	for _, t := range q.Pending(now) {
		list = append(list, PendingTrigger(t))
	}
	return list, nil
}

func (c *Control) queues() (fleet.Queues, error) {
	ctl, err := c.controller()
	return fleet.Queues{Store: ctl, Timeout: c.timeout}, err
}
