package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/guard"
)

const (
	// MaxPayloadLen is the maximum length of the payload of a triggered run, in bytes.
	MaxPayloadLen = 64 << 10

	// MaxPendingTriggers is how many triggers of one timer the store keeps.
	MaxPendingTriggers = 8

	// If the store had no slot for a trigger, the trigger is tried again after half the time that
	// it has waited, within these bounds, unless a place is offered earlier. Each attempt costs
	// four calls, plus one call for each waiting host that reads the queue.
	minTriggerRetry = 5 * time.Second
	maxTriggerRetry = time.Minute
)

// ErrTooManyTriggers is returned by Push if MaxPendingTriggers triggers of the timer are already
// pending.
var ErrTooManyTriggers = errors.New("timer: too many triggers are pending")

// ErrPayloadTooLong is matched by the error for a payload of more than MaxPayloadLen bytes.
var ErrPayloadTooLong = errors.New("the payload is too long")

// CheckPayload returns an error if a payload is too long.
func CheckPayload(payload []byte) error {
	if n := len(payload); n > MaxPayloadLen {
		return fmt.Errorf("%w: it has %d bytes, and may have %d: keep the data elsewhere, and pass its key",
			ErrPayloadTooLong, n, MaxPayloadLen)
	}
	return nil
}

// QueueLock returns the name under which the store keeps the triggers of a timer, as the JSON of a
// Queue. The value changes only by compare-and-set, so no trigger is lost or taken twice.
func QueueLock(timer string) string { return "tickslot:trigger:" + timer }

// A Queue has the triggers of one timer, oldest first.
type Queue struct {
	Triggers []Trigger `json:"triggers,omitempty"`
	Ran      bool      `json:"ran,omitempty"` // a host has started a trigger before, so the timer is known
	// No host takes a trigger before Retry (µs, by the store's clock), because all slots were taken
	// or a limit was full at the last attempt.
	Retry int64 `json:"retry,omitempty"`
}

// A Trigger is a run that a Control requested and that no host is known to have started.
type Trigger struct {
	ID      string       `json:"id"`
	By      driver.Cause `json:"by"`
	Payload []byte       `json:"payload,omitempty"`
	At      int64        `json:"at"`    // µs, by the store's clock
	Until   int64        `json:"until"` // µs, by the store's clock
	Taker   string       `json:"taker,omitempty"`
	Host    dlock.Holder `json:"host,omitzero"` // the host of the taker, to show to people
}

// Expired reports whether the trigger has expired, so that no host may take it.
func (t *Trigger) Expired(now int64) bool { return now >= t.Until }

// Pending is a Trigger as it is shown to people. control.PendingTrigger has the same fields, so
// that a Pending can be converted to it.
type Pending struct {
	By         driver.Cause
	PayloadLen int
	Age        time.Duration
	ExpiresIn  time.Duration
	TakenBy    dlock.Holder
}

// Pending returns the triggers as they are shown to people. now is an instant of the store's clock.
func (q *Queue) Pending(now int64) (list []Pending) {
	for i := range q.Triggers {
		t := &q.Triggers[i]
		list = append(list, Pending{By: t.By, PayloadLen: len(t.Payload), TakenBy: t.Host,
			Age:       max(0, time.Duration(now-t.At)*time.Microsecond),
			ExpiresIn: max(0, time.Duration(t.Until-now)*time.Microsecond)})
	}
	return list
}

// Has reports whether the trigger with that ID is in the queue.
func (q *Queue) Has(id string) bool {
	return slices.ContainsFunc(q.Triggers, func(t Trigger) bool { return t.ID == id })
}

// TakeOut removes the triggers for which gone returns true, and returns them.
func (q *Queue) TakeOut(gone func(*Trigger) bool) (out []Trigger) {
	q.Triggers = slices.DeleteFunc(q.Triggers, func(t Trigger) bool {
		if gone(&t) {
			out = append(out, t)
			return true
		}
		return false
	})
	if len(q.Triggers) == 0 {
		q.Retry = 0
	}
	return out
}

// RetryIn returns how long hosts must wait before they take a trigger. A Retry that is more than
// maxTriggerRetry ahead was written before the store's clock was set back, and is ignored.
func (q *Queue) RetryIn(now int64) time.Duration {
	if left := time.Duration(q.Retry-now) * time.Microsecond; left <= maxTriggerRetry {
		return left
	}
	return 0
}

// DeferRetry makes all hosts wait before they try a trigger again. They wait for the time that the
// store has named. If that is 0, they wait for half the time that the trigger has waited.
func (q *Queue) DeferRetry(t *Trigger, now int64, named time.Duration) {
	wait := named
	if named == 0 {
		wait = max(time.Duration(now-t.At)*time.Microsecond/2, minTriggerRetry)
	}
	q.Retry = now + min(wait, maxTriggerRetry).Microseconds()
}

// Next returns the oldest trigger that this taker may start, or nil. The taker may start a trigger
// that no host has taken, or one that it has taken itself if the answer was lost.
func (q *Queue) Next(taker string) *Trigger {
	for i := range q.Triggers {
		if t := &q.Triggers[i]; t.Taker == "" || t.Taker == taker {
			return t
		}
	}
	return nil
}

// text returns the queue in the format that the store keeps: JSON in ASCII.
func (q *Queue) text() string {
	if len(q.Triggers) == 0 && !q.Ran {
		return ""
	}
	text, _ := json.Marshal(q) // texts, numbers and bytes always marshal
	var b strings.Builder
	for _, r := range string(text) {
		if r >= ' ' && r <= '~' {
			b.WriteRune(r)
			continue
		}
		for _, u := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, u)
		}
	}
	return b.String()
}

// Queues reads and writes the queues of triggers.
type Queues struct {
	Store   driver.Controller
	Timeout time.Duration // per call
}

// Read returns the queue of a timer and the version to pass to Write. now is the time of the
// store's clock in µs, or 0 if the store keeps no queue.
func (q Queues) Read(ctx context.Context, timer string) (queue Queue, version, now int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, q.Timeout)
	defer cancel()
	var v driver.ValueState
	err = guard.Call("store", func() (err error) { v, err = q.Store.Value(ctx, QueueLock(timer)); return err })
	if err != nil || v.Text == "" {
		return queue, v.Version, clockOf(v), err
	}
	if err := json.Unmarshal([]byte(v.Text), &queue); err != nil {
		return queue, 0, 0, fmt.Errorf("%w: the value that the store keeps under %s is not a queue of triggers: "+
			"remove it, and trigger again: %w", dlock.ErrFault, QueueLock(timer), err)
	}
	return queue, v.Version, clockOf(v), nil
}

func clockOf(v driver.ValueState) int64 {
	if v.Version == 0 {
		return 0
	}
	return v.At.UnixMicro()
}

// Write replaces a queue that was read with that version. After an error other than
// driver.ErrChanged, the store may have replaced the queue, or may still do so if no other write
// comes first.
func (q Queues) Write(ctx context.Context, timer string, queue *Queue, version int64) error {
	ctx, cancel := context.WithTimeout(ctx, q.Timeout)
	defer cancel()
	change := driver.Update{Value: &driver.Value{Text: queue.text(), Version: version}}
	return guard.Call("store", func() error { return q.Store.Update(ctx, QueueLock(timer), change) })
}

// Change reads a queue, calls change with it, and writes the result. It repeats these steps if
// another writer was faster, or if the answer to a write was lost. It stops when a write succeeds
// or change returns done or an error. change returns done if nothing is left to do. If wrote is not
// nil, it is called after each write that was made or may have been made.
//
// If the answer to a write was lost, and the queue has changed since, the write may have been made,
// and others may already have removed what it wrote. Change then writes nothing more.
func (q Queues) Change(ctx context.Context, timer string,
	change func(queue *Queue, now int64) (done bool, err error), wrote func()) error {
	var unknown error  // the error of a write that may have been made
	var replaces int64 // the version that this write replaces
	for range 50 {
		queue, version, now, err := q.Read(ctx, timer)
		if err != nil {
			return errors.Join(unknown, err)
		}
		if now != 0 { // the store's clock is unknown before the first trigger of a timer
			done, err := change(&queue, now)
			switch {
			case done:
				return nil
			case unknown != nil && replaces != version && replaces != 0:
				return unknown
			case err != nil:
				return err
			}
		}
		err = q.Write(ctx, timer, &queue, version)
		if wrote != nil && !guard.Is(err, driver.ErrChanged) {
			wrote()
		}
		switch {
		case err == nil && now != 0:
			return nil
		case err == nil || guard.Is(err, driver.ErrChanged):
		case ctx.Err() != nil || unknown != nil:
			return err
		default:
			unknown, replaces = err, version // read again to find out whether it was written
		}
	}
	return fmt.Errorf("its triggers change all the time: %w", driver.ErrChanged)
}

// Push adds a trigger, and returns the expired triggers that it has removed. After an error they
// may or may not be removed. Report them anyway, because no other host may find them.
func (q Queues) Push(ctx context.Context, timer string, t Trigger, expiry time.Duration) (expired []Trigger,
	err error) {
	var late []Trigger
	err = q.Change(ctx, timer, func(queue *Queue, now int64) (bool, error) {
		if queue.Has(t.ID) {
			return true, nil
		}
		late = queue.TakeOut(func(t *Trigger) bool { return t.Expired(now) })
		if len(queue.Triggers) >= MaxPendingTriggers {
			oldest := queue.Pending(now)[0]
			return false, fmt.Errorf("%w: %d, the oldest for %v: try again when a host has started one (see "+
				"Control.Triggers)", ErrTooManyTriggers, MaxPendingTriggers, oldest.Age.Round(time.Second))
		}
		t.At, t.Until = now, now+expiry.Microseconds()
		queue.Triggers = append(queue.Triggers, t)
		return false, nil
	}, func() {
		for _, t := range late {
			if !slices.ContainsFunc(expired, func(e Trigger) bool { return e.ID == t.ID }) {
				expired = append(expired, t)
			}
		}
	})
	return expired, err
}

// Withdraw removes a trigger that no host has taken.
func (q Queues) Withdraw(ctx context.Context, timer, id string) (gone bool, err error) {
	err = q.Change(ctx, timer, func(queue *Queue, _ int64) (bool, error) {
		gone = len(queue.TakeOut(func(t *Trigger) bool { return t.ID == id && t.Taker == "" })) > 0
		return !gone, nil
	}, nil)
	return gone, err
}

// LogExpired logs triggers of a timer that have expired.
func LogExpired(log *slog.Logger, timer string, late []Trigger) {
	for _, t := range late {
		args := []any{"timer", timer, "by", t.By.By, "note", t.By.Note, "payload_bytes", len(t.Payload),
			"expiry", time.Duration(t.Until-t.At) * time.Microsecond}
		if t.Taker == "" {
			log.Warn("timer: a trigger has expired: no host could start its run", args...)
		} else {
			log.Warn("timer: a trigger has expired: a host took it and did not report that its run started, so it may "+
				"or may not have run", append(args, "taken_by", t.Host.String())...)
		}
	}
}
