package timer

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/tickslot/tickslot/dlock"
)

const (
	// DefaultTriggerExpiry and MaxTriggerExpiry are the default and the longest
	// TriggerOptions.ExpiresIn.
	DefaultTriggerExpiry = time.Hour
	MaxTriggerExpiry     = 24 * time.Hour

	minTriggerExpiry = time.Second

	// MaxPendingTriggers is how many triggers of one timer the store keeps.
	MaxPendingTriggers = 8

	// A trigger for which the store had no slot is tried again after half the time that it has
	// waited, within these bounds, unless it is offered a place before. Each try costs four calls,
	// and each waiting host one to read it.
	minTriggerRetry = 5 * time.Second
	maxTriggerRetry = time.Minute
)

// ErrTooManyTriggers is returned by Control.Trigger if MaxPendingTriggers triggers of the timer
// wait for a host.
var ErrTooManyTriggers = errors.New("timer: too many triggers are pending")

// A PendingTrigger is a trigger of a Control that is still kept in the store: no host is known to
// have started its run.
type PendingTrigger struct {
	By         dlock.Origin
	PayloadLen int           // bytes
	Age        time.Duration // since Control.Trigger, by the store's clock
	ExpiresIn  time.Duration // 0: it has expired, and the next host that looks reports it
	// TakenBy is the host that is about to start the run. If it stays, that host has died or lost
	// the store, and the run may or may not have started. Zero: nobody has taken it.
	TakenBy dlock.Holder
}

// queueLock is the name under which the store keeps the triggers of a timer, as the JSON of a
// triggerQueue. It is changed by compare-and-set only, so no trigger is lost or taken twice.
const queueLock = "tickslot:trigger:"

// A triggerQueue has the triggers of one timer, oldest first.
type triggerQueue struct {
	Triggers []queuedTrigger `json:"triggers,omitempty"`
	Ran      bool            `json:"ran,omitempty"` // a host has started one once, so the timer is known
	// No host takes a trigger before Retry (µs, by the store's clock), because all slots were taken
	// or a limit was full at the last try.
	Retry int64 `json:"retry,omitempty"`
}

type queuedTrigger struct {
	ID      string       `json:"id"`
	By      dlock.Origin `json:"by"`
	Payload []byte       `json:"payload,omitempty"`
	At      int64        `json:"at"`    // µs, by the store's clock
	Until   int64        `json:"until"` // likewise
	Taker   string       `json:"taker,omitempty"`
	Host    dlock.Holder `json:"host,omitzero"` // of the taker, for people
}

// expired reports whether nobody may take the trigger any more.
func (t *queuedTrigger) expired(now int64) bool { return now >= t.Until }

func (t *queuedTrigger) pending(now int64) PendingTrigger {
	p := PendingTrigger{By: t.By, PayloadLen: len(t.Payload), TakenBy: t.Host,
		Age: max(0, time.Duration(now-t.At)*time.Microsecond)}
	if !t.expired(now) {
		p.ExpiresIn = time.Duration(t.Until-now) * time.Microsecond
	}
	return p
}

func (q *triggerQueue) pending(now int64) (list []PendingTrigger) {
	for i := range q.Triggers {
		list = append(list, q.Triggers[i].pending(now))
	}
	return list
}

func (q *triggerQueue) has(id string) bool {
	return slices.ContainsFunc(q.Triggers, func(t queuedTrigger) bool { return t.ID == id })
}

// takeOut removes the triggers for which gone is true, and returns them.
func (q *triggerQueue) takeOut(gone func(*queuedTrigger) bool) (out []queuedTrigger) {
	q.Triggers = slices.DeleteFunc(q.Triggers, func(t queuedTrigger) bool {
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

// retryIn returns for how long no host is to take a trigger. A time that is further ahead than
// maxTriggerRetry was written before the store's clock was set back, and does not count.
func (q *triggerQueue) retryIn(now int64) time.Duration {
	if left := time.Duration(q.Retry-now) * time.Microsecond; left <= maxTriggerRetry {
		return left
	}
	return 0
}

// deferRetry has all hosts wait before they try a trigger again.
func (q *triggerQueue) deferRetry(t *queuedTrigger, now int64) {
	waited := time.Duration(now-t.At) * time.Microsecond
	q.Retry = now + min(max(waited/2, minTriggerRetry), maxTriggerRetry).Microseconds()
}

// next returns the oldest trigger that this taker may start: nobody has taken it, or this taker has
// and its answer was lost. Nil: there is none.
func (q *triggerQueue) next(taker string) *queuedTrigger {
	for i := range q.Triggers {
		if t := &q.Triggers[i]; t.Taker == "" || t.Taker == taker {
			return t
		}
	}
	return nil
}

// text returns the queue as the store keeps it: JSON in ASCII.
func (q *triggerQueue) text() string {
	if len(q.Triggers) == 0 && !q.Ran {
		return ""
	}
	text, _ := json.Marshal(q) // text, numbers and bytes always marshal
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

// A queueStore reads and writes the queues of triggers.
type queueStore struct {
	ctl     dlock.Controller
	timeout time.Duration // of a call
}

// read returns the queue of a timer and the version that a write needs. now is the store's clock in
// µs; 0: it keeps nothing.
func (s queueStore) read(ctx context.Context, timer string) (q triggerQueue, version, now int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var v dlock.ValueState
	err = guard(func() (err error) { v, err = s.ctl.Value(ctx, queueLock+timer); return err })
	if err != nil || v.Text == "" {
		return q, v.Version, clockOf(v), err
	}
	if err := json.Unmarshal([]byte(v.Text), &q); err != nil {
		return q, 0, 0, fmt.Errorf("%w: what the store keeps under %s%s is no queue of triggers: remove it there, and "+
			"trigger again: %w", dlock.ErrFault, queueLock, timer, err)
	}
	return q, v.Version, clockOf(v), nil
}

func clockOf(v dlock.ValueState) int64 {
	if v.Version == 0 {
		return 0
	}
	return v.At.UnixMicro()
}

// write replaces a queue that was read with that version. After an error other than
// dlock.ErrChanged it may have been replaced, or be replaced yet, unless another write is faster.
func (s queueStore) write(ctx context.Context, timer string, q *triggerQueue, version int64) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	change := dlock.Update{Value: &dlock.Value{Text: q.text(), Version: version}}
	return guard(func() error { return s.ctl.Update(ctx, queueLock+timer, change) })
}

// change reads a queue, calls change with it, and writes the result, until a write succeeds or
// change returns an error. change is called again if another writer was faster, or the answer to a
// write was lost; it returns done if there is nothing (more) to do. wrote, unless it is nil, is
// called after each write that was made, or may have been.
//
// If the answer to a write was lost, and the queue was changed after that, the write may have been
// made, and what it wrote may be gone already. Then nothing is written again.
func (s queueStore) change(ctx context.Context, timer string,
	change func(q *triggerQueue, now int64) (done bool, err error), wrote func()) error {
	var unknown error  // of a write that may have been made
	var replaces int64 // the version that it replaces
	for range 50 {
		q, version, now, err := s.read(ctx, timer)
		if err != nil {
			return errors.Join(unknown, err)
		}
		if now != 0 { // the first trigger of the timer has to know the store's clock
			done, err := change(&q, now)
			switch {
			case done:
				return nil
			case unknown != nil && replaces != version && replaces != 0:
				return unknown
			case err != nil:
				return err
			}
		}
		err = s.write(ctx, timer, &q, version)
		if wrote != nil && !matches(err, dlock.ErrChanged) {
			wrote()
		}
		switch {
		case err == nil && now != 0:
			return nil
		case err == nil || matches(err, dlock.ErrChanged):
		case ctx.Err() != nil || unknown != nil:
			return err
		default:
			unknown, replaces = err, version // look once whether it was written
		}
	}
	return fmt.Errorf("its triggers change all the time: %w", dlock.ErrChanged)
}

// push adds a trigger, and returns the expired ones that it has removed. After an error they may or
// may not be removed: they are to be reported all the same, because nobody else may find them.
func (s queueStore) push(ctx context.Context, timer, id string, o TriggerOptions) (expired []queuedTrigger, err error) {
	expiry := o.ExpiresIn
	if expiry == 0 {
		expiry = DefaultTriggerExpiry
	}
	var late []queuedTrigger
	err = s.change(ctx, timer, func(q *triggerQueue, now int64) (bool, error) {
		if q.has(id) {
			return true, nil
		}
		late = q.takeOut(func(t *queuedTrigger) bool { return t.expired(now) })
		if len(q.Triggers) >= MaxPendingTriggers {
			oldest := q.Triggers[0].pending(now)
			return false, fmt.Errorf("%w: %d, the oldest for %v: try again when a host has started one (see "+
				"Control.Triggers)", ErrTooManyTriggers, MaxPendingTriggers, oldest.Age.Round(time.Second))
		}
		q.Triggers = append(q.Triggers, queuedTrigger{ID: id, By: o.By, Payload: o.Payload, At: now,
			Until: now + expiry.Microseconds()})
		return false, nil
	}, func() {
		for _, t := range late {
			if !slices.ContainsFunc(expired, func(e queuedTrigger) bool { return e.ID == t.ID }) {
				expired = append(expired, t)
			}
		}
	})
	return expired, err
}

// withdraw removes a trigger that nobody has taken.
func (s queueStore) withdraw(ctx context.Context, timer, id string) (gone bool, err error) {
	err = s.change(ctx, timer, func(q *triggerQueue, _ int64) (bool, error) {
		gone = len(q.takeOut(func(t *queuedTrigger) bool { return t.ID == id && t.Taker == "" })) > 0
		return !gone, nil
	}, nil)
	return gone, err
}

// newTriggerID returns a text that no other trigger or taker has.
func newTriggerID() string { return rand.Text() }
