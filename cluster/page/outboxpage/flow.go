package outboxpage

import (
	"context"
	"time"

	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
	"github.com/tickslot/tickslot/outbox"
)

const (
	// flowTTL is for how long all viewers share what Flow has counted.
	flowTTL  = 15 * time.Second
	flowSpan = 6 * time.Hour
)

// A flowRead is what came and left, and what waited at the same time.
type flowRead struct {
	outbox.Flow
	topics  []outbox.TopicRecord
	backlog outbox.Backlog
}

func (s *section) readFlow(ctx context.Context) (r flowRead, err error) {
	if r.topics, err = s.box.Topics(ctx); err != nil {
		return r, err
	}
	if r.backlog, err = s.box.Backlog(ctx); err != nil {
		return r, err
	}
	r.Flow, err = s.box.Flow(ctx)
	return r, err
}

// chart draws the messages of a topic; "": of all.
func (s *section) chart(ctx context.Context, topic string) pagekit.FlowChart {
	read := s.flow.Get(ctx, "", s.readFlow)
	f := pagekit.FlowChart{Entries: "messages", Came: "appended", Waits: "pending"}
	if read.At.IsZero() {
		f.Fault = read.Err.Error()
		return f
	}
	if f.Waiting = read.Value.backlog.Pending; topic != "" {
		f.Waiting = pendingOf(read.Value.topics, topic)
	}
	if f.Waiting >= outbox.MaxBacklog {
		f.Waiting = -1
	}
	var counts []pagekit.FlowCount
	for _, c := range read.Value.Counts {
		if topic == "" || c.Topic == topic {
			counts = append(counts, pagekit.FlowCount{StartedAt: c.StartedAt, In: c.Appended, Out: c.Ended})
		}
	}
	f.Draw(counts, pagekit.FlowSpan{From: read.Value.From, Until: read.Value.Until, Interval: outbox.FlowInterval,
		Length: flowSpan})
	return f
}

// pendingOf returns how many messages of a topic are pending; -1: not known.
func pendingOf(topics []outbox.TopicRecord, topic string) int64 {
	for _, t := range topics {
		if t.Topic == topic {
			return t.Pending
		}
	}
	if len(topics) == outbox.MaxTopics {
		return -1
	}
	return 0
}
