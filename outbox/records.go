package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/outbox/internal/store"
)

// State is the state of a message.
type State string

// The states of a message. A message that will be delivered again is pending.
const (
	StatePending    = State(store.StatePending)
	StateDispatched = State(store.StateDispatched)
	StateDead       = State(store.StateDead)
)

// Outcome is how an attempt ended.
type Outcome string

// The outcomes of an attempt.
const (
	OutcomeOK = Outcome(store.OutcomeOK) // the message is dispatched
	// OutcomePermanent means that the sink has returned an error marked by Permanent, or that the
	// topic has no sink and the relay has UnknownTopicDead. The message is dead.
	OutcomePermanent = Outcome(store.OutcomePermanent)
	OutcomeTransient = Outcome(store.OutcomeTransient) // another attempt follows
	OutcomeExhausted = Outcome(store.OutcomeExhausted) // the last attempt has failed: the message is dead
	// OutcomeUnreadable means that no sink was called, because another program has inserted a row
	// that is not a valid message. The message is dead.
	OutcomeUnreadable = Outcome(store.OutcomeUnreadable)
)

var outcomes = [...]Outcome{OutcomeOK, OutcomePermanent, OutcomeTransient, OutcomeExhausted, OutcomeUnreadable}

// A Filter selects the messages that match all fields that are set. A list of IDs that is empty but
// not nil is refused, so that passing on an empty search result does not select all messages.
type Filter struct {
	IDs           []ID
	Topic, Key    string
	State         State
	CreatedFrom   time.Time // appended at this instant or later
	CreatedBefore time.Time // appended before this instant
	BeforeSeq     int64     // with a smaller Seq: pass the last Seq of a page to get the next page
}

func (f Filter) check() error {
	if f.IDs != nil && len(f.IDs) == 0 {
		return errors.New("outbox: Filter.IDs is empty: leave it nil for all that match the other fields")
	}
	return nil
}

func (f Filter) inStore() store.Filter {
	s := store.Filter{Topic: f.Topic, Key: f.Key, State: store.State(f.State), CreatedFrom: f.CreatedFrom,
		CreatedBefore: f.CreatedBefore, BeforeSeq: f.BeforeSeq}
	for _, id := range f.IDs {
		s.IDs = append(s.IDs, store.ID(id))
	}
	return s
}

// A Record is a message with its state, for operators. Its times are by the database's clock.
type Record struct {
	Message
	Seq           int64 // number of its row
	State         State
	Attempts      int
	NextAttemptAt time.Time // set if the message is pending
	CreatedAt     time.Time
	// FailingFrom is when the first failed attempt began, or zero if none has failed. A Requeue
	// resets it to zero. Retry.MaxElapsedTime describes other changes.
	FailingFrom time.Time
	FinishedAt  time.Time // zero if the message is pending
	LastError   string
}

// An Attempt is a delivery that was tried. The outbox keeps the first 10 and the latest 40 attempts
// of a message.
type Attempt struct {
	Number     int
	FinishedAt time.Time
	Took       time.Duration
	Relay      string // RelayConfig.Name
	Outcome    Outcome
	Error      string
}

// MaxBacklog is the number up to which Backlog counts, so that it is cheap no matter how many
// messages wait.
const MaxBacklog = store.MaxCount

// A Backlog describes the messages that wait in an outbox, by the database's clock.
type Backlog struct {
	// Pending and Dead are the numbers of messages in each state. MaxBacklog stands for that many
	// or more.
	Pending, Dead int64
	// DueAge is how long the oldest due message has been ready for delivery. It is the lag of the
	// relays, except if that message waits for a condition that Outbox.Backlog does not know. A
	// message that waits for its next attempt is not due, and neither are the later messages of its
	// key. PendingAge is how long the oldest pending message has been pending since it was appended
	// or requeued. Both are 0 if there is no such message.
	DueAge, PendingAge time.Duration
}

// Backlog describes the waiting messages of all topics. It does not know how the relays are
// configured. So it counts a message as due even if its topic has no sink, or if DeadStop makes it
// wait for a dead message of its key. Backlog executes one statement, and up to nine more if there
// are many pending messages and none of the first is due. It costs as little as the statements with
// which relays read their metrics.
func (o *Outbox) Backlog(ctx context.Context) (Backlog, error) {
	if err := o.ready(ctx); err != nil {
		return Backlog{}, err
	}
	stats, err := o.store.Stats(ctx, nil, false)
	if err != nil {
		return Backlog{}, fmt.Errorf("outbox: %w", err)
	}
	return Backlog{stats.Pending, stats.Dead, stats.OldestDue, stats.OldestPending}, nil
}

// MaxPage is the maximum number of messages that one call returns.
const MaxPage = 1000

// Messages returns up to limit messages (at most MaxPage), without payload and headers, newest
// first.
func (o *Outbox) Messages(ctx context.Context, which Filter, limit int) ([]Record, error) {
	if err := cmp.Or(o.ready(ctx), which.check()); err != nil {
		return nil, err
	}
	if limit < 1 {
		return nil, nil
	}
	rows, err := o.store.Messages(ctx, which.inStore(), min(limit, MaxPage))
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	list := make([]Record, len(rows))
	for i, r := range rows {
		list[i] = record(r)
	}
	return list, nil
}

// Message returns a message with its payload, and its attempts in order. If the message does not
// exist, the error matches ErrNoMessage.
func (o *Outbox) Message(ctx context.Context, id ID) (Record, []Attempt, error) {
	if err := o.ready(ctx); err != nil {
		return Record{}, nil, err
	}
	row, tried, ok, err := o.store.Message(ctx, store.ID(id))
	if err != nil {
		return Record{}, nil, fmt.Errorf("outbox: %w", err)
	}
	if !ok {
		return Record{}, nil, fmt.Errorf("%w: %s", ErrNoMessage, id)
	}
	list := make([]Attempt, len(tried))
	for i, a := range tried {
		list[i] = Attempt{a.Number, a.FinishedAt, a.Took, a.Relay, Outcome(a.Outcome), a.Error}
	}
	return record(row), list, nil
}

func record(r store.Record) Record {
	return Record{fromStored(r.Message), r.Seq, State(r.State), r.Attempts, r.NextAttemptAt, r.CreatedAt,
		r.FailingSince, r.FinishedAt, cmp.Or(r.LastError, r.Fault)}
}

// RequeueOptions are the options of Requeue. The zero value is fine.
type RequeueOptions struct {
	// InboxRetention is how long receivers remember the messages that they have processed: see
	// RelayConfig. Requeue skips older messages and returns an error that matches ErrTooOld.
	// Default 60 days.
	InboxRetention time.Duration
	// Force also requeues older messages, which may take effect twice at the receiver. Default
	// false.
	Force bool
	// Note says who requeues the messages, and why. It is stored with each message. At most 200
	// bytes. Default "": none.
	Note string
}

// requeueBatch is how many messages one transaction of Requeue processes.
const requeueBatch = 1000

// Requeue makes dead messages pending again, due immediately. It processes 1,000 messages per
// transaction and returns how many it has requeued. After an error, it may have requeued more. It
// notifies relays like Notify, but waits for that call. Relays share their work equally between the
// requeued messages and those appended later. The messages get a new budget of attempts and time
// (see Retry) and keep the history of their attempts. Requeue refuses a filter without IDs, Topic,
// Key, CreatedFrom and CreatedBefore, which would select every message that has ever failed.
func (o *Outbox) Requeue(ctx context.Context, which Filter, options RequeueOptions) (int, error) {
	if err := o.checkChange(ctx, which); err != nil {
		return 0, err
	}
	var errs []error
	checkText(options.Note, "Note", func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("outbox: RequeueOptions.%s: "+format, append([]any{field}, args...)...))
	})
	if len(errs) > 0 {
		return 0, errors.Join(errs...)
	}
	orDefault(&options.InboxRetention, defaultInboxRetention)
	n, tooOld := 0, 0
	request := store.RequeueRequest{OlderThan: options.InboxRetention, Force: options.Force, Note: options.Note,
		Limit: requeueBatch}
	var err error
	for {
		var done store.Requeued
		done, err = o.store.Requeue(ctx, which.inStore(), request)
		n, tooOld = n+done.N, tooOld+done.TooOld
		if request.After = done.After; err != nil || done.After == 0 {
			break
		}
	}
	if n > 0 {
		o.tell(ctx)
	}
	switch {
	case err != nil:
		return n, fmt.Errorf("outbox: %w", err)
	case tooOld > 0:
		return n, fmt.Errorf("%w: %d messages were appended more than %v ago, and were left out: check whether the "+
			"receiver got them, then set RequeueOptions.Force", ErrTooOld, tooOld, options.InboxRetention)
	}
	return n, nil
}

// Delete deletes dead messages and their attempts permanently, and returns how many messages it has
// deleted. It refuses the same filters as Requeue.
func (o *Outbox) Delete(ctx context.Context, which Filter) (int, error) {
	if err := o.checkChange(ctx, which); err != nil {
		return 0, err
	}
	n, err := o.store.Delete(ctx, which.inStore())
	if err != nil {
		return 0, fmt.Errorf("outbox: %w", err)
	}
	return n, nil
}

// checkChange returns why the messages that match a filter must not be changed, or nil.
func (o *Outbox) checkChange(ctx context.Context, which Filter) error {
	if err := cmp.Or(o.ready(ctx), which.check()); err != nil {
		return err
	}
	if len(which.IDs) == 0 && which.Topic == "" && which.Key == "" && which.CreatedFrom.IsZero() &&
		which.CreatedBefore.IsZero() {
		return errors.New("outbox: the filter matches everything: set IDs, Topic, Key, CreatedFrom or CreatedBefore")
	}
	return nil
}
