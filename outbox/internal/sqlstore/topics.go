package sqlstore

import (
	"context"
	"database/sql"

	"github.com/tickslot/tickslot/internal/flow"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

func topicParams(topic string) sqlkit.Params {
	return sqlkit.Params{"topic": sqlkit.Name(topic), "outcomes": int64(store.MaxOutcomes),
		"most": int64(store.MaxCount)}
}

// Topics implements store.Operator. It is one statement, and one more for each topic.
func (s *Store) Topics(ctx context.Context) ([]store.TopicHistory, error) {
	p := sqlkit.Params{"most_topics": int64(store.MaxTopics)}
	list, err := answer(ctx, s, reading, "topics_kept", "", p, func(rows store.Row, t *store.TopicHistory) error {
		var topic []byte
		err := rows.Scan(&topic)
		t.Topic = string(topic)
		return err
	})
	for i := range list {
		if err == nil {
			err = s.setHistory(ctx, &list[i])
		}
	}
	if err != nil {
		return nil, err
	}
	return list, nil
}

func (s *Store) setHistory(ctx context.Context, t *store.TopicHistory) error {
	type row struct {
		store.Record
		n int64
	}
	list, err := answer(ctx, s, reading, "topic_history", "", topicParams(t.Topic), func(rows store.Row, r *row) error {
		var state, text []byte
		var ended, since sql.NullInt64
		err := rows.Scan(&state, &ended, &since, &text, &r.n)
		r.State, r.LastError, r.FinishedAt = store.State(state), string(text), instant(ended.Int64)
		if since.Valid {
			r.FailingSince = instant(since.Int64)
		}
		return err
	})
	var ended []store.Record
	for _, r := range list {
		if r.State == store.StatePending {
			t.Pending = r.n
			continue
		}
		ended = append(ended, r.Record)
	}
	t.SetEnded(ended)
	return err
}

func flowParams() sqlkit.Params {
	return sqlkit.Params{"width": flow.Interval.Microseconds(), "span": flow.Span.Microseconds(),
		"most": int64(flow.Most)}
}

// Flow implements store.Operator.
func (s *Store) Flow(ctx context.Context) (flow.Flow, error) {
	var now int64
	list, err := answer(ctx, s, reading, "flow", "", flowParams(), func(rows store.Row, r *flow.Row) error {
		var part, topic []byte
		err := rows.Scan(&part, &topic, &r.N, &r.Count, &now)
		r.Part, r.Name = string(part), string(topic)
		return err
	})
	if err != nil || len(list) == 0 {
		return flow.Flow{}, err
	}
	return flow.Of(list[:len(list)-1], instant(now)), nil
}
