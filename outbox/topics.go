package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/internal/flow"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// Bounds of Topics.
const (
	MaxTopics   = store.MaxTopics   // topics that it returns
	MaxOutcomes = store.MaxOutcomes // TopicRecord.Outcomes and TopicRecord.Failures
)

// A TopicRecord is what the messages of a topic have come to, as far as they are kept. It can be
// marshaled as JSON.
type TopicRecord struct {
	Topic        string    `json:"topic"`
	Pending      int64     `json:"pending"`                // MaxBacklog: this many, or more
	EndedAt      time.Time `json:"ended_at,omitzero"`      // the message that was dispatched or died last
	DispatchedAt time.Time `json:"dispatched_at,omitzero"` // the message that was dispatched last
	// Failures is how many messages have died since DispatchedAt. MaxOutcomes: this many, or more.
	Failures    int64     `json:"failures,omitempty"`
	FailingFrom time.Time `json:"failing_from,omitzero"` // the first of these failed; zero: there are none
	LastError   string    `json:"last_error,omitempty"`  // of a message that failed
	// Retried are the pending messages that have failed, see Failing, and RetriedFrom is when the
	// one that has failed for longest did so first.
	Retried     int64     `json:"retried"`
	RetriedFrom time.Time `json:"retried_from,omitzero"`
	Outcomes    []State   `json:"outcomes,omitempty"` // of the messages that ended last, the oldest first
}

// Topics returns what the messages of each topic have come to, of the first MaxTopics topics by
// name. It is two statements, and one for each topic, none of which reads more than a few hundred
// entries of an index for a topic, besides counting up to MaxBacklog pending messages.
func (o *Outbox) Topics(ctx context.Context) ([]TopicRecord, error) {
	if err := o.ready(ctx); err != nil {
		return nil, err
	}
	rows, err := o.store.Topics(ctx)
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	failing, err := o.store.Failing(ctx)
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	retried := map[string]store.FailingTopic{}
	for _, f := range failing {
		retried[f.Topic] = f
	}
	list := make([]TopicRecord, len(rows))
	for i, r := range rows {
		list[i] = TopicRecord{Topic: r.Topic, Pending: r.Pending, EndedAt: r.EndedAt, DispatchedAt: r.DispatchedAt,
			Failures: r.Dead, FailingFrom: r.FailingSince, LastError: r.LastError,
			Outcomes: make([]State, len(r.Outcomes))}
		for k, state := range r.Outcomes {
			list[i].Outcomes[k] = State(state)
		}
		if f, ok := retried[r.Topic]; ok {
			list[i].Retried, list[i].RetriedFrom, list[i].LastError = f.Messages, f.Since, f.Error
		}
	}
	return list, nil
}

// FlowInterval is the length of the intervals of a Flow.
const FlowInterval = flow.Interval

// A Flow is how many messages of each topic were appended and ended when, within the last six
// hours.
type Flow struct {
	// From is since when all are counted. It is later than six hours ago if there were more than
	// 30,000 messages since then.
	From   time.Time
	Until  time.Time   // when they were counted, by the database's clock
	Counts []FlowCount // the oldest first; intervals in which nothing happened are left out
}

// A FlowCount is how many messages of a topic were appended and ended within FlowInterval.
type FlowCount struct {
	Topic     string
	StartedAt time.Time // the interval began, a multiple of FlowInterval
	Appended  int64
	Ended     int64 // were dispatched or died
}

// Flow counts messages. It is one statement that reads at most 30,000 messages of each state, so it
// is for people who look at it, and not for each second.
//
// Not promised: messages that were deleted meanwhile are not counted, and a dead message that was
// requeued does not count as ended.
func (o *Outbox) Flow(ctx context.Context) (Flow, error) {
	if err := o.ready(ctx); err != nil {
		return Flow{}, err
	}
	counted, err := o.store.Flow(ctx)
	if err != nil {
		return Flow{}, fmt.Errorf("outbox: %w", err)
	}
	f := Flow{From: counted.From, Until: counted.Until}
	for _, c := range counted.Counts {
		f.Counts = append(f.Counts, FlowCount{c.Name, c.At, c.In, c.Out})
	}
	return f, nil
}
