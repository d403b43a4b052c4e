package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// Layout implements store.Relay.
func (s *Store) Layout(ctx context.Context, want int) (store.Layout, error) {
	now, err := s.layout(ctx)
	if err != nil || want == 0 || want == now.Shards {
		return now, err
	}
	p := sqlkit.Params{"shards": int64(want)}
	if _, err := answer(ctx, s, writing, "set_layout", "", p, scanNumber); err != nil {
		return store.Layout{}, err
	}
	return s.layout(ctx)
}

func (s *Store) layout(ctx context.Context) (store.Layout, error) {
	list, err := answer(ctx, s, reading, "layout", "", nil, func(rows store.Row, l *store.Layout) error {
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

// ofTopics returns the parameters of statements that search for deliverable messages.
func ofTopics(topics, full []string, stopOnDead bool) sqlkit.Params {
	p := sqlkit.Params{"topics_with_sinks": sqlkit.Names(topics), "full_topics": sqlkit.Names(full),
		"all": int64(0), "all_free": int64(0), "stop": int64(0)}
	if topics == nil {
		p["all"] = int64(1)
		if len(full) == 0 {
			p["all_free"] = int64(1)
		}
	}
	if stopOnDead {
		p["stop"] = int64(1)
	}
	return p
}

// Bounds of the rows that a call of Due reads, no matter how many messages wait.
const (
	dueWindow = 128 // pending messages, in the order of their rows
	duePages  = 8   // pages of messages after these
	duePage   = 32  // keys of a page; MySQL and SQL Server: messages
	dueOfKey  = 8   // messages of each of these keys
	dueHeld   = 500 // keys that MySQL skips
)

func dueParams(r store.DueRequest) sqlkit.Params {
	p := ofTopics(r.Topics, r.FullTopics, r.StopOnDead)
	p["shards"], p["shard"] = int64(max(1, r.Layout.Shards)), int64(r.Shard)
	p["limit"], p["keys"], p["ids"] = int64(max(0, r.Limit)), sqlkit.Names(r.Keys), sqlkit.Numbers(r.IDs)
	p["window"], p["inside"] = int64(max(dueWindow, 2*r.Limit)), int64(math.MaxInt64)
	p["bytes"] = int64(store.DueBytes)
	p["after"], p["page_size"], p["most_of_key"] = sqlkit.Name(r.After), int64(max(duePage, r.Limit)), int64(dueOfKey)
	return p
}

// Due implements store.Relay. It reads the first messages in the order of their rows. If too few of
// them are due and there are more messages, it continues from key to key, because thousands of
// messages of one key may come before the others.
func (s *Store) Due(ctx context.Context, r store.DueRequest) (due store.Due, err error) {
	p := dueParams(r)
	told := s.edgeOf(p)
	type row struct {
		layout store.Layout
		nextIn sql.NullInt64
		edge   sql.NullInt64
		delivery
	}
	list, err := answer(ctx, s, reading, "due", "", p, func(rows store.Row, r *row) error {
		return r.scan(rows, &r.layout.Shards, &r.layout.Epoch, &r.nextIn, &r.edge)
	})
	if err != nil {
		return due, err
	}
	if len(list) == 0 {
		return due, errNoLayout
	}
	s.learned(list[0].edge)
	due.Layout, due.NextIn = list[0].layout, -1
	if due.Layout != r.Layout { // a key may now belong to another shard
		return due, nil
	}
	if next := list[0].nextIn; next.Valid {
		due.NextIn = max(0, micros(next.Int64))
	}
	requeued := 0
	for _, r := range list {
		due.Messages = r.appendTo(due.Messages)
		if r.requeued.Bool {
			requeued++
		}
	}
	if half := len(due.Messages) - r.Limit/2; requeued > half && isFull(r.Limit, due.Messages) {
		if err := s.dueLive(ctx, r, &due, min(requeued, r.Limit/2)); err != nil {
			return due, err
		}
	}
	defer func() { due.Full = isFull(r.Limit, due.Messages) }()
	switch {
	case isFull(r.Limit, due.Messages):
		due.After = r.After // the next call continues a search in progress
	case told || list[0].edge.Valid:
		due.After = r.After
		err := s.dueBehind(ctx, r, &due)
		if err != nil && len(due.Messages) == 0 && due.After == r.After {
			return due, err
		}
		// The search has read only the first messages of each key, or the messages of the window.
		// After an error there may also be more messages, but messages that were found must not
		// wait for a slow search.
		due.More = true
	}
	return due, nil
}

// dueLive replaces up to n of the last messages of due with messages that were not requeued. So
// live traffic gets half of each answer, no matter how many messages were requeued at the same
// time.
func (s *Store) dueLive(ctx context.Context, r store.DueRequest, due *store.Due, n int) error {
	p := dueParams(r)
	p["limit"] = int64(n)
	live, err := answer(ctx, s, reading, "due_live", "", p, scanDelivery)
	if err != nil || len(live) == 0 {
		return err
	}
	room := len(due.Messages) - len(live)
	first := slices.DeleteFunc(due.Messages, func(m store.Pending) bool {
		return slices.ContainsFunc(live, func(d delivery) bool { return d.m.Seq == m.Seq })
	})
	due.Messages, due.More = first[:min(room, len(first))], true
	for _, d := range live {
		due.Messages = d.appendTo(due.Messages)
	}
	slices.SortFunc(due.Messages, func(a, b store.Pending) int { return cmp.Compare(a.Seq, b.Seq) })
	return nil
}

// isFull reports whether an answer has reached its limit of messages or bytes.
func isFull(limit int, list []store.Pending) bool {
	return len(list) >= limit || bytesOf(list) >= store.DueBytes
}

func bytesOf(list []store.Pending) (n int) {
	for _, m := range list {
		n += len(m.Payload)
	}
	return n
}

// dueBehind adds messages to due that come after the first messages in the order of the rows. Half
// of the room is for messages without a key, if there are that many, and the rest is for messages
// with a key. So neither kind waits for the other. After an error, due has the messages found
// before the error.
func (s *Store) dueBehind(ctx context.Context, r store.DueRequest, due *store.Due) error {
	for _, m := range due.Messages { // do not return them twice
		if m.Key == "" {
			r.IDs = append(r.IDs, m.Seq)
		} else {
			r.Keys = append(r.Keys, m.Key)
		}
	}
	room := r.Limit - len(due.Messages)
	p := dueParams(r)
	p["limit"] = int64(room)
	keyless, err := answer(ctx, s, reading, "due_keyless", "", p, scanDelivery)
	if err != nil {
		return err
	}
	err = s.dueByKey(ctx, r, r.Limit-min(len(keyless), room/2), due)
	for _, d := range keyless[:min(len(keyless), r.Limit-len(due.Messages))] {
		due.Messages = d.appendTo(due.Messages)
	}
	return err
}

// dueByKey adds messages to due, key by key, until due has most messages.
func (s *Store) dueByKey(ctx context.Context, r store.DueRequest, most int, due *store.Due) error {
	type row struct {
		n    int
		last []byte // last key of the page
		delivery
	}
	held, err := s.held(ctx, r.After)
	if err != nil {
		return err
	}
	for range duePages {
		p := dueParams(r)
		p["held"], p["limit"] = held, int64(most-len(due.Messages))
		list, err := answer(ctx, s, reading, "due_by_key", "", p, func(rows store.Row, r *row) error {
			return r.scan(rows, &r.n, &r.last)
		})
		if err != nil {
			return err
		}
		due.After = ""
		for _, row := range list {
			if row.n >= int(p["page_size"].(int64)) {
				due.After = string(row.last)
			}
			due.Messages = row.appendTo(due.Messages)
			if len(due.Messages) == most || bytesOf(due.Messages) >= store.DueBytes {
				// The next call continues after this key, even if it is the last key. With a Limit
				// of 1, that call is the first with room for a message without a key.
				due.After = due.Messages[len(due.Messages)-1].Key
				return nil
			}
		}
		if r.After = due.After; r.After == "" {
			return nil
		}
	}
	return nil
}

// edgeOf sets the parameter that says how far a call reads in the order of the rows. learned takes
// the edge for the next call from the answer. Only MySQL needs this, because it chooses indexes by
// the numbers in the text. An outdated edge costs time but hides no messages, because messages
// after the edge are found by key.
func (s *Store) edgeOf(p sqlkit.Params) (told bool) {
	edge := s.edge.Load()
	if told = edge > 0; told {
		p["inside"] = edge
	}
	return told
}

func (s *Store) learned(edge sql.NullInt64) {
	if strings.Contains(s.texts["due"], "{inside}") {
		s.edge.Store(edge.Int64)
	}
}

// held returns keys in back-off, which MySQL skips.
func (s *Store) held(ctx context.Context, after string) (sqlkit.Names, error) {
	if _, ok := s.texts["held_keys"]; !ok {
		return nil, nil
	}
	p := sqlkit.Params{"after": sqlkit.Name(after), "most_held": int64(dueHeld)}
	return answer(ctx, s, reading, "held_keys", "", p, func(rows store.Row, key *string) error {
		return rows.Scan(key)
	})
}

// A delivery has the columns of the SQL part "delivery". seq is NULL if there is no message.
type delivery struct {
	seq      sql.NullInt64
	requeued sql.NullBool
	m        store.Pending
}

// scan scans the columns before the delivery into before, and the others into d.
func (d *delivery) scan(rows store.Row, before ...any) error {
	var id, topic, key, payload, headers []byte
	var hash, attempts, budget, crashes, age, failing sql.NullInt64
	err := rows.Scan(append(before, &d.seq, &id, &topic, &key, &hash, &payload, &headers, &attempts, &budget, &crashes,
		&d.requeued, &age, &failing)...)
	if err != nil || !d.seq.Valid {
		return err
	}
	m := &d.m
	m.Seq, m.Topic, m.Key, m.Hash, m.Payload = d.seq.Int64, string(topic), string(key), uint32(hash.Int64), payload
	m.Attempts, m.Budget, m.Crashes = int(attempts.Int64), int(budget.Int64), int(crashes.Int64)
	m.Age, m.Failing = max(0, micros(age.Int64)), max(0, micros(failing.Int64))
	setHeaders(&m.Message, headers)
	setID(&m.Message, id)
	return nil
}

func scanDelivery(rows store.Row, d *delivery) error { return d.scan(rows) }

func (d *delivery) appendTo(list []store.Pending) []store.Pending {
	if !d.seq.Valid {
		return list
	}
	return append(list, d.m)
}

// micros converts a number of microseconds from a database's answer to a duration.
func micros(us int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(min(max(us, -most), most)) * time.Microsecond
}

// longest is longer than any wait or retention and short enough for the arithmetic of every
// database.
const longest = 50 * 365 * 24 * time.Hour

func inMicros(d time.Duration) int64 { return min(max(0, d), longest).Microseconds() }

// resultJSON is a result as the statements read it.
type resultJSON struct {
	ID       string        `json:"id"` // in hexadecimal
	Seq      int64         `json:"seq"`
	Attempts int           `json:"attempts"`
	Outcome  store.Outcome `json:"outcome"`
	RetryIn  int64         `json:"retry_in"`
	Took     int64         `json:"took"`
	Node     string        `json:"node"`
	Error    string        `json:"error"`
	MostLate int64         `json:"most_late"`
}

// Mark implements store.Relay.
func (s *Store) Mark(ctx context.Context, relay string, results []store.Result) (marked store.Marked, err error) {
	if len(results) == 0 {
		return marked, ctx.Err()
	}
	rows := make([]resultJSON, len(results))
	for i, r := range results {
		rows[i] = resultJSON{fmt.Sprintf("%X", r.ID[:]), r.Seq, r.Attempts, r.Outcome, inMicros(r.RetryIn),
			inMicros(r.Took), guard.Storable(relay), guard.Storable(r.Error), inMicros(r.MostLate)}
	}
	type row struct {
		id     store.ID
		locked bool
	}
	p := sqlkit.Params{"results": sqlkit.InJSON(rows)}
	forget := "" // usually empty, because most messages have few attempts; saves MySQL a round trip
	if slices.ContainsFunc(results, func(r store.Result) bool {
		return r.Attempts >= store.FirstAttempts+store.LastAttempts
	}) {
		forget = s.texts["forget"] + "\n"
	}
	list, err := answer(ctx, s, writing, "mark", forget, p, func(rows store.Row, r *row) error {
		var id []byte
		if err := rows.Scan(&id, &r.locked); err != nil {
			return err
		}
		copy(r.id[:], id)
		return nil
	})
	for _, r := range list {
		if r.locked {
			marked.Locked = append(marked.Locked, r.id)
		} else {
			marked.Counted = append(marked.Counted, r.id)
		}
	}
	return marked, err
}

// begunJSON is a beginning delivery, as the statements read it.
type begunJSON struct {
	ID       string `json:"id"` // in hexadecimal
	Seq      int64  `json:"seq"`
	Attempts int    `json:"attempts"`
	Crashes  int    `json:"crashes"`
}

// NoteBegun implements store.Relay.
func (s *Store) NoteBegun(ctx context.Context, list []store.Begun) error {
	if len(list) == 0 {
		return ctx.Err()
	}
	rows := make([]begunJSON, len(list))
	for i, b := range list {
		rows[i] = begunJSON{fmt.Sprintf("%X", b.ID[:]), b.Seq, b.Attempts, b.Crashes}
	}
	_, err := answer(ctx, s, writing, "note_begun", "", sqlkit.Params{"begun": sqlkit.InJSON(rows)}, scanNumber)
	return err
}

// Sweep implements store.Relay.
func (s *Store) Sweep(ctx context.Context, r store.Retention, limit int) (deleted int, err error) {
	if limit <= 0 {
		return 0, ctx.Err()
	}
	p := sqlkit.Params{"dispatched": inMicros(r.Dispatched), "dead": inMicros(r.Dead), "inbox_kept": inMicros(r.Inbox),
		"limit": int64(limit)}
	for _, name := range []string{"sweep", "sweep_inbox"} {
		if _, ok := s.texts[name]; !ok { // the previous statement does both
			continue
		}
		rows, err := answer(ctx, s, counting, name, "", p, scanNumber)
		if err != nil {
			return deleted, err
		}
		deleted += count(rows)
	}
	return deleted, nil
}

// firstDue is the number of due messages among which Stats searches for the one that has waited
// longest.
const firstDue = 100

func statsParams(topics []string, stopOnDead bool) sqlkit.Params {
	p := ofTopics(topics, nil, stopOnDead)
	p["most"], p["first"], p["max_unknown"] = int64(store.MaxCount), int64(firstDue), int64(store.MaxUnknown)
	p["window"], p["inside"] = int64(dueWindow), int64(math.MaxInt64)
	p["after"], p["page_size"], p["keys"] = sqlkit.Name(""), int64(firstDue), sqlkit.Names(nil)
	return p
}

// Stats implements store.Relay.
func (s *Store) Stats(ctx context.Context, topics []string, stopOnDead bool) (stats store.Stats, err error) {
	type row struct {
		pending, dead, waiting int64
		due, oldest, edge      sql.NullInt64
		topic                  sql.Null[[]byte]
	}
	p := statsParams(topics, stopOnDead)
	told := s.edgeOf(p)
	list, err := answer(ctx, s, reading, "stats", "", p, func(rows store.Row, r *row) error {
		return rows.Scan(&r.pending, &r.dead, &r.due, &r.oldest, &r.edge, &r.topic, &r.waiting)
	})
	for _, r := range list {
		s.learned(r.edge)
		told = told || r.edge.Valid
		stats.Pending, stats.Dead = r.pending, r.dead
		stats.OldestDue, stats.OldestPending = max(0, micros(r.due.Int64)), max(0, micros(r.oldest.Int64))
		if r.topic.Valid {
			if stats.Unknown == nil {
				stats.Unknown = map[string]int64{}
			}
			stats.Unknown[string(r.topic.V)] = r.waiting
		}
	}
	if err == nil && stats.OldestDue == 0 && told {
		stats.OldestDue, err = oldestBehind(ctx, s, p)
	}
	return stats, err
}

// oldestBehind returns the first OldestDue that it finds after the first messages in the order of
// the rows.
func oldestBehind(ctx context.Context, s *Store, p sqlkit.Params) (time.Duration, error) {
	type row struct {
		n, due int64
		last   []byte
	}
	held, err := s.held(ctx, "")
	if err != nil {
		return 0, err
	}
	p["held"] = held
	for range duePages {
		list, err := answer(ctx, s, reading, "oldest_by_key", "", p, func(rows store.Row, r *row) error {
			return rows.Scan(&r.n, &r.last, &r.due)
		})
		if err != nil || len(list) == 0 {
			return 0, err
		}
		if due := list[0].due; due > 0 || list[0].n < p["page_size"].(int64) {
			return max(0, micros(due)), nil
		}
		p["after"] = sqlkit.Name(list[0].last)
	}
	return 0, nil
}
