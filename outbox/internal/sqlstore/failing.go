package sqlstore

import (
	"context"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

func failingParams() sqlkit.Params {
	return sqlkit.Params{"most": int64(store.MaxFailing), "most_topics": int64(store.MaxFailingTopics)}
}

// Failing implements store.Relay.
func (s *Store) Failing(ctx context.Context) ([]store.FailingTopic, error) {
	return answer(ctx, s, reading, "failing", "", failingParams(), func(rows store.Row, f *store.FailingTopic) error {
		var topic, text []byte
		var since, took int64
		err := rows.Scan(&topic, &f.Messages, &since, &took, &text)
		f.Topic, f.Error, f.Since, f.For = string(topic), string(text), instant(since), max(0, micros(took))
		return err
	})
}
