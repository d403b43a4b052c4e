package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// Layout implements store.Relay.
func (s *Store) Layout(ctx context.Context, want int) (store.Layout, error) {
	now, err := s.layout(ctx)
	if err != nil || want == 0 || want == now.Shards {
		return now, err
	}
	if _, err := change(ctx, s, "set_layout", "", params{"shards": int64(want)}, scanNumber); err != nil {
		return store.Layout{}, err
	}
	return s.layout(ctx)
}

func (s *Store) layout(ctx context.Context) (store.Layout, error) {
	list, err := query(ctx, s, "layout", "", nil, func(rows store.Row, l *store.Layout) error {
		return rows.Scan(&l.Shards, &l.Epoch)
	})
	if err != nil {
		return store.Layout{}, err
	}
	if len(list) == 0 {
		return store.Layout{}, errNoLayout
	}
	return list[0], nil
}

var errNoLayout = fmt.Errorf("outbox: %w: the table of the layout has no row: call Migrate, or execute Schema",
	dlock.ErrSetup)

// ofTopics returns the parameters of statements that look at what can be delivered.
func ofTopics(topics []string, stopOnDead bool) params {
	p := params{"topics_with_sinks": names(topics), "all": int64(0), "stop": int64(0)}
	if topics == nil {
		p["all"] = int64(1)
	}
	if stopOnDead {
		p["stop"] = int64(1)
	}
	return p
}

func dueParams(r store.DueRequest) params {
	p := ofTopics(r.Topics, r.StopOnDead)
	p["shards"], p["shard"] = int64(max(1, r.Layout.Shards)), int64(r.Shard)
	p["limit"], p["keys"], p["ids"] = int64(max(0, r.Limit)), names(r.Keys), numbers(r.IDs)
	return p
}

// Due implements store.Relay.
func (s *Store) Due(ctx context.Context, r store.DueRequest) (due store.Due, err error) {
	type row struct {
		layout store.Layout
		nextIn sql.NullInt64
		seq    sql.NullInt64
		m      store.Pending
	}
	list, err := query(ctx, s, "due", "", dueParams(r), func(rows store.Row, r *row) error {
		var id, topic, key, payload, headers []byte
		var hash, attempts, budget, age sql.NullInt64
		err := rows.Scan(&r.layout.Shards, &r.layout.Epoch, &r.nextIn, &r.seq, &id, &topic, &key, &hash, &payload,
			&headers, &attempts, &budget, &age)
		if err != nil || !r.seq.Valid {
			return err
		}
		m := &r.m
		m.Seq, m.Topic, m.Key, m.Hash, m.Payload = r.seq.Int64, string(topic), string(key), uint32(hash.Int64), payload
		m.Attempts, m.Budget, m.Age = int(attempts.Int64), int(budget.Int64), max(0, micros(age.Int64))
		if err := setID(&m.ID, id); err != nil {
			return err
		}
		return setHeaders(&m.Message, headers)
	})
	if err != nil {
		return due, err
	}
	if len(list) == 0 {
		return due, errNoLayout
	}
	due.Layout, due.NextIn = list[0].layout, -1
	if due.Layout != r.Layout { // a key may be of another shard now
		return due, nil
	}
	if next := list[0].nextIn; next.Valid {
		due.NextIn = max(0, micros(next.Int64))
	}
	for _, r := range list {
		if r.seq.Valid {
			due.Messages = append(due.Messages, r.m)
		}
	}
	return due, nil
}

// micros is a duration that a database has answered.
func micros(us int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(min(max(us, -most), most)) * time.Microsecond
}

// longest is longer than anything is kept or waits, and within what every database calculates with.
const longest = 50 * 365 * 24 * time.Hour

func inMicros(d time.Duration) int64 { return min(max(0, d), longest).Microseconds() }

// resultJSON is a result as statements take it.
type resultJSON struct {
	Seq      int64         `json:"seq"`
	Attempts int           `json:"attempts"`
	Outcome  store.Outcome `json:"outcome"`
	RetryIn  int64         `json:"retry_in"`
	Took     int64         `json:"took"`
	Node     string        `json:"node"`
	Error    string        `json:"error"`
}

// Mark implements store.Relay.
func (s *Store) Mark(ctx context.Context, node string, results []store.Result) (counted []int64, err error) {
	if len(results) == 0 {
		return nil, ctx.Err()
	}
	rows := make([]resultJSON, len(results))
	for i, r := range results {
		rows[i] = resultJSON{r.Seq, r.Attempts, r.Outcome, inMicros(r.RetryIn), inMicros(r.Took), storable(node),
			storable(r.Error)}
	}
	return change(ctx, s, "mark", "", params{"results": list(rows)}, scanNumber)
}

// Sweep implements store.Relay.
func (s *Store) Sweep(ctx context.Context, r store.Retention, limit int) (deleted int, err error) {
	if limit <= 0 {
		return 0, ctx.Err()
	}
	p := params{"dispatched": inMicros(r.Dispatched), "dead": inMicros(r.Dead), "inbox_kept": inMicros(r.Inbox),
		"limit": int64(limit)}
	for _, file := range []string{"sweep", "sweep_inbox"} {
		if _, ok := s.texts[file]; !ok { // the one before does all
			continue
		}
		rows, err := change(ctx, s, file, "", p, scanNumber)
		if err != nil {
			return deleted, err
		}
		deleted += count(rows)
	}
	return deleted, nil
}

// firstDue is of how many messages Stats looks for the one that has waited longest.
const firstDue = 100

func statsParams(topics []string, stopOnDead bool) params {
	p := ofTopics(topics, stopOnDead)
	p["most"], p["first"], p["max_unknown"] = int64(store.MaxCount), int64(firstDue), int64(store.MaxUnknown)
	return p
}

// Stats implements store.Relay.
func (s *Store) Stats(ctx context.Context, topics []string, stopOnDead bool) (stats store.Stats, err error) {
	type row struct {
		pending, dead, waiting int64
		due, oldest            sql.NullInt64
		topic                  sql.Null[[]byte]
	}
	list, err := query(ctx, s, "stats", "", statsParams(topics, stopOnDead), func(rows store.Row, r *row) error {
		return rows.Scan(&r.pending, &r.dead, &r.due, &r.oldest, &r.topic, &r.waiting)
	})
	for _, r := range list {
		stats.Pending, stats.Dead = r.pending, r.dead
		stats.OldestDue, stats.OldestPending = max(0, micros(r.due.Int64)), max(0, micros(r.oldest.Int64))
		if r.topic.Valid {
			if stats.Unknown == nil {
				stats.Unknown = map[string]int64{}
			}
			stats.Unknown[string(r.topic.V)] = r.waiting
		}
	}
	return stats, err
}
