package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// Messages implements store.Operator.
func (s *Store) Messages(ctx context.Context, which store.Filter, limit int) ([]store.Record, error) {
	where, p := s.conditions(which, sqlkit.Params{"limit": int64(max(0, limit))})
	return answer(ctx, s, reading, "messages", where, p, func(rows store.Row, r *store.Record) error {
		return scanRecord(rows, r)
	})
}

// Message implements store.Operator.
func (s *Store) Message(ctx context.Context, id store.ID) (m store.Record, attempts []store.Attempt, ok bool,
	err error) {
	type row struct {
		store.Record
		number sql.NullInt64
		store.Attempt
	}
	p := sqlkit.Params{"id": sqlkit.ID(id)}
	list, err := answer(ctx, s, reading, "message", "", p, func(rows store.Row, r *row) error {
		var headers []byte
		var at, took sql.NullInt64
		var node, outcome, text sql.Null[[]byte]
		err := scanRecord(rows, &r.Record, &r.Payload, &headers, &r.number, &at, &took, &node, &outcome, &text)
		if err != nil {
			return err
		}
		r.Attempt = store.Attempt{Number: int(r.number.Int64), FinishedAt: instant(at.Int64), Took: micros(took.Int64),
			Relay: string(node.V), Outcome: store.Outcome(outcome.V), Error: string(text.V)}
		setHeaders(&r.Message, headers)
		return nil
	})
	for _, r := range list {
		m, ok = r.Record, true
		if r.number.Valid {
			attempts = append(attempts, r.Attempt)
		}
	}
	return m, attempts, ok, err
}

// scanRecord scans the columns of the SQL part "record" into a record, and the columns after them
// into more.
func scanRecord(rows store.Row, r *store.Record, more ...any) error {
	var id, topic, key, state, text []byte
	var hash, next, created int64
	var failing, finished sql.NullInt64
	err := rows.Scan(append([]any{&r.Seq, &id, &topic, &key, &hash, &state, &r.Attempts, &next, &created, &failing,
		&finished, &text}, more...)...)
	if err != nil {
		return err
	}
	r.Topic, r.Key, r.Hash, r.State = string(topic), string(key), uint32(hash), store.State(state)
	r.NextAttemptAt, r.CreatedAt, r.LastError = instant(next), instant(created), string(text)
	if failing.Valid {
		r.FailingSince = instant(failing.Int64)
	}
	if finished.Valid {
		r.FinishedAt = instant(finished.Int64)
	}
	setID(&r.Message, id)
	return nil
}

func instant(us int64) time.Time { return time.UnixMicro(us).UTC() }

// Requeue implements store.Operator.
func (s *Store) Requeue(ctx context.Context, which store.Filter, r store.RequeueRequest) (done store.Requeued,
	err error) {
	if r.Force {
		r.OlderThan = 0
	}
	where, p := s.conditions(which, sqlkit.Params{"older": inMicros(r.OlderThan), "note": guard.Storable(r.Note),
		"limit": int64(r.Limit), "from": r.After})
	type row struct {
		n, tooOld int
		last      int64
	}
	where += " AND m.seq > {from}"
	page, err := answer(ctx, s, reading, "requeue_page", where, p, func(rows store.Row, r *row) error {
		return rows.Scan(&r.n, &r.last)
	})
	if err != nil || len(page) != 1 {
		return done, err
	}
	where += " AND m.seq <= {to}"
	p["to"] = page[0].last
	list, err := answer(ctx, s, counting, "requeue", where, p, func(rows store.Row, r *row) error {
		return rows.Scan(&r.n, &r.tooOld)
	})
	if err == nil && len(list) != 1 {
		err = errors.New("outbox: the database returned an invalid answer")
	}
	if err != nil {
		return done, err
	}
	done.N, done.TooOld = list[0].n, list[0].tooOld
	if page[0].n == r.Limit {
		done.After = page[0].last
	}
	return done, nil
}

// Delete implements store.Operator.
func (s *Store) Delete(ctx context.Context, which store.Filter) (int, error) {
	where, p := s.conditions(which, sqlkit.Params{})
	rows, err := answer(ctx, s, counting, "delete", where, p, scanNumber)
	return count(rows), err
}
