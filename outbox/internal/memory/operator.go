package memory

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tickslot/tickslot/internal/flow"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// matches reports whether a row matches a filter.
func matches(f store.Filter, m *row) bool {
	return (len(f.IDs) == 0 || slices.Contains(f.IDs, m.ID)) && (f.Topic == "" || f.Topic == m.Topic) &&
		(f.Key == "" || f.Key == m.Key) && (f.State == "" || f.State == m.State) &&
		(f.CreatedFrom.IsZero() || !m.CreatedAt.Before(f.CreatedFrom)) &&
		(f.CreatedBefore.IsZero() || m.CreatedAt.Before(f.CreatedBefore)) && (f.BeforeSeq == 0 || m.Seq < f.BeforeSeq)
}

// Messages implements store.Operator.
func (s *Store) Messages(_ context.Context, which store.Filter, limit int) (list []store.Record, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seqs := slices.Sorted(maps.Keys(s.rows))
	slices.Reverse(seqs)
	for _, seq := range seqs {
		if m := s.rows[seq]; len(list) < limit && matches(which, m) {
			r := m.Record
			r.Payload, r.Headers = nil, nil
			list = append(list, r)
		}
	}
	return list, nil
}

// Topics implements store.Operator.
func (s *Store) Topics(context.Context) ([]store.TopicHistory, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pending, ended := map[string]int64{}, map[string][]store.Record{}
	for _, seq := range slices.Sorted(maps.Keys(s.rows)) {
		m := s.rows[seq].Record
		if m.State != store.StatePending {
			ended[m.Topic] = append(ended[m.Topic], m)
			pending[m.Topic] += 0
			continue
		}
		pending[m.Topic]++
	}
	var list []store.TopicHistory
	for _, topic := range slices.Sorted(maps.Keys(pending)) {
		t := store.TopicHistory{Topic: topic, Pending: min(pending[topic], store.MaxCount)}
		t.SetEnded(ended[topic])
		t.Dead = min(t.Dead, store.MaxOutcomes)
		list = append(list, t)
	}
	return list[:min(len(list), store.MaxTopics)], nil
}

// Flow implements store.Operator.
func (s *Store) Flow(context.Context) (flow.Flow, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	var rows []flow.Row
	add := func(part, topic string, at time.Time) {
		if now.Sub(at) < flow.Span {
			rows = append(rows, flow.Row{Part: part, Name: topic, N: flow.NumberOf(at), Count: 1})
		}
	}
	for _, m := range s.rows {
		add(flow.In, m.Topic, m.CreatedAt)
		if !m.FinishedAt.IsZero() {
			add(string(m.State), m.Topic, m.FinishedAt)
		}
	}
	return flow.Of(rows, now), nil
}

// Message implements store.Operator.
func (s *Store) Message(_ context.Context, id store.ID) (store.Record, []store.Attempt, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seq, ok := s.byID[id]
	if !ok {
		return store.Record{}, nil, false, nil
	}
	return s.rows[seq].Record, slices.Clone(s.attempts[seq]), true, nil
}

// Requeue implements store.Operator.
func (s *Store) Requeue(_ context.Context, which store.Filter, r store.RequeueRequest) (done store.Requeued,
	err error) {
	if err := s.fault("requeue"); err != nil {
		return done, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seq := range slices.Sorted(maps.Keys(s.rows)) {
		m := s.rows[seq]
		if m.State != store.StateDead || !matches(which, m) || seq <= r.After {
			continue
		}
		if done.N+done.TooOld == r.Limit {
			break
		}
		done.After = seq
		switch {
		case r.OlderThan > 0 && !r.Force && s.now().Sub(m.CreatedAt) > r.OlderThan:
			done.TooOld++
		default:
			m.State, m.budget, m.NextAttemptAt, m.FinishedAt = store.StatePending, m.Attempts, s.now(), time.Time{}
			m.crashes, m.requeuedAt, m.FailingSince = 0, m.NextAttemptAt, time.Time{}
			done.N++
		}
	}
	if done.N+done.TooOld < r.Limit {
		done.After = 0
	}
	return done, nil
}

// Delete implements store.Operator.
func (s *Store) Delete(_ context.Context, which store.Filter) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for seq, m := range s.rows {
		if m.State == store.StateDead && matches(which, m) {
			s.remove(seq)
			n++
		}
	}
	return n, nil
}
