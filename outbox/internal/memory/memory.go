// Package memory is an in-memory database for an outbox, for tests in virtual time. It keeps the
// contract of package store and can be made to fail.
package memory

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/outbox/internal/store"
)

// Store is an in-memory store.Store. Create one with New.
type Store struct {
	// Fault is called with the name of each call before the call. If it returns an error, the call
	// does nothing and returns that error. After is called after each call. If it returns an error,
	// the call returns that error although it has taken effect. If they are nil, nothing fails.
	Fault, After func(op string) error
	// Locked reports whether another session keeps a row locked. If it is nil, no row is locked.
	Locked func(id store.ID) bool
	// Refuses returns why Mark cannot write the result of a message. If it is nil, Mark can write
	// all results.
	Refuses func(id store.ID) error
	// Ahead returns by how much the store's clock is ahead. If it is nil, the clock is right.
	Ahead func() time.Duration

	mu       sync.Mutex
	last     int64
	rows     map[int64]*row
	byID     map[store.ID]int64
	attempts map[int64][]store.Attempt
	inbox    map[had]time.Time
	layout   store.Layout
	woken    map[int]func()
	listens  int
	misused  error
}

type row struct {
	store.Record
	budget, crashes int
	requeuedAt      time.Time // zero if never requeued
}

type had struct {
	consumer string
	id       store.ID
}

// New returns an empty store.
func New() *Store {
	return &Store{rows: map[int64]*row{}, byID: map[store.ID]int64{}, attempts: map[int64][]store.Attempt{},
		inbox: map[had]time.Time{}, layout: store.Layout{Shards: 1, Epoch: 1}, woken: map[int]func(){}}
}

func (s *Store) String() string { return "memory" }

// Migrate implements store.Store.
func (s *Store) Migrate(context.Context) error { return s.fault("migrate") }

// Verify implements store.Store.
func (s *Store) Verify(context.Context) error { return s.fault("verify") }

// Schema implements store.Store.
func (s *Store) Schema() ([]string, error) { return nil, nil }

func (s *Store) now() time.Time {
	if s.Ahead == nil {
		return time.Now()
	}
	return time.Now().Add(s.Ahead())
}

func (s *Store) fault(op string) error {
	if s.Fault == nil {
		return nil
	}
	return s.Fault(op)
}

func (s *Store) after(op string) error {
	if s.After == nil {
		return nil
	}
	return s.After(op)
}

// Copy copies all committed data and returns a function that restores the copy, like a restored
// backup or the promotion of a lagging standby. Row numbers are then assigned again.
func (s *Store) Copy() (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := map[int64]row{}
	for seq, r := range s.rows {
		rows[seq] = *r
	}
	attempts, inbox := maps.Clone(s.attempts), maps.Clone(s.inbox)
	last, layout := s.last, s.layout
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.rows, s.byID = map[int64]*row{}, map[store.ID]int64{}
		for seq, r := range rows {
			s.rows[seq], s.byID[r.ID] = &r, seq
		}
		s.attempts, s.inbox, s.last, s.layout = attempts, inbox, last, layout
	}
}

// A Tx is a transaction. Its changes become visible when it commits.
type Tx struct {
	store    *Store
	appended []appended
	had      []had
	ended    bool
}

// An appended is a message that a transaction has appended.
type appended struct {
	seq int64
	store.Message
}

// Begin begins a transaction.
func (s *Store) Begin() *Tx { return &Tx{store: s} }

// Commit ends a transaction.
func (t *Tx) Commit() {
	s := t.store
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for _, m := range t.appended {
		s.byID[m.ID] = m.seq
		s.rows[m.seq] = &row{Record: store.Record{Message: m.Message, Seq: m.seq, State: store.StatePending,
			NextAttemptAt: now, CreatedAt: now}}
	}
	for _, h := range t.had {
		s.inbox[h] = now
	}
	t.ended = true
}

// Rollback ends a transaction and discards its changes. After Commit, it does nothing.
func (t *Tx) Rollback() {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	t.ended = true
}

// QueryRow implements store.Tx. It panics, because this store has no statements.
func (t *Tx) QueryRow(context.Context, string, ...any) store.Row { panic("memory has no statements") }

// Exec implements store.Tx.
func (t *Tx) Exec(context.Context, string, ...any) (int64, error) { panic("memory has no statements") }

var errTx = errors.New("the transaction has ended, or does not belong to this in-memory store")

// mine returns tx as a *Tx, or an error if it is not an open transaction of this store. The caller
// holds mu.
func (s *Store) mine(tx store.Tx) (*Tx, error) {
	if t, ok := tx.(*Tx); ok && t.store == s && !t.ended {
		return t, nil
	}
	return nil, errTx
}

// Append implements store.Producer. Messages have the order in which they were appended, not the
// order in which they were committed.
func (s *Store) Append(_ context.Context, tx store.Tx, m store.Message) (bool, store.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.mine(tx)
	if err != nil {
		return false, store.Message{}, err
	}
	if seq, ok := s.byID[m.ID]; ok {
		return false, s.rows[seq].Message, nil
	}
	for _, old := range t.appended {
		if old.ID == m.ID {
			return false, old.Message, nil
		}
	}
	s.last++
	t.appended = append(t.appended, appended{s.last, m})
	return true, store.Message{}, nil
}

// AppendAll implements store.Producer.
func (s *Store) AppendAll(ctx context.Context, tx store.Tx, list []store.Message) (bool, error) {
	s.mu.Lock()
	t, err := s.mine(tx)
	for _, m := range list {
		_, there := s.byID[m.ID]
		if err != nil || there || slices.ContainsFunc(t.appended, func(a appended) bool { return a.ID == m.ID }) {
			s.mu.Unlock()
			return false, err
		}
	}
	s.mu.Unlock()
	for _, m := range list {
		if _, _, err := s.Append(ctx, tx, m); err != nil {
			return false, err
		}
	}
	return true, nil
}

// NextAppended implements store.Producer.
func (s *Store) NextAppended(_ context.Context, tx store.Tx, after int64) (m store.Message, seq int64, ok bool,
	err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.mine(tx)
	if err != nil {
		return m, 0, false, err
	}
	note := func(of store.Message, at int64) {
		if at > after && (!ok || at < seq) {
			m, seq, ok = of, at, true
		}
	}
	for at, r := range s.rows {
		if r.State == store.StatePending {
			note(r.Message, at)
		}
	}
	for _, a := range t.appended {
		note(a.Message, a.seq)
	}
	return m, seq, ok, nil
}

// Notify implements store.Producer.
func (s *Store) Notify(context.Context) error {
	s.mu.Lock()
	woken := slices.Collect(maps.Values(s.woken))
	s.mu.Unlock()
	for _, f := range woken {
		f()
	}
	return nil
}

// Listen implements store.Relay.
func (s *Store) Listen(ctx context.Context, woken func()) error {
	if err := s.fault("listen"); err != nil {
		return err
	}
	s.mu.Lock()
	s.listens++
	n := s.listens
	s.woken[n] = woken
	s.mu.Unlock()
	woken()
	<-ctx.Done()
	s.mu.Lock()
	delete(s.woken, n)
	s.mu.Unlock()
	return ctx.Err()
}

// Layout implements store.Relay.
func (s *Store) Layout(_ context.Context, want int) (store.Layout, error) {
	if err := s.fault("layout"); err != nil {
		return store.Layout{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if want != 0 && want != s.layout.Shards {
		s.layout = store.Layout{Shards: want, Epoch: s.layout.Epoch + 1}
	}
	return s.layout, nil
}

// Due implements store.Relay.
func (s *Store) Due(_ context.Context, q store.DueRequest) (due store.Due, err error) {
	if err := s.fault("due"); err != nil {
		return due, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	due = store.Due{Layout: s.layout, NextIn: -1}
	if q.Layout != s.layout {
		return due, nil
	}
	bytes := 0
	due.Full = q.Limit <= 0
	ahead := map[string]bool{} // keys with an earlier message
	blocked := map[string]bool{}
	for _, seq := range slices.Sorted(maps.Keys(s.rows)) {
		m := s.rows[seq]
		switch {
		case m.State == store.StateDispatched, int(m.Hash%uint32(q.Layout.Shards)) != q.Shard,
			m.State == store.StateDead && !q.StopOnDead:
			continue
		case m.State == store.StateDead:
			blocked[m.Key] = m.Key != ""
			continue
		case m.Key != "" && blocked[m.Key]:
			continue
		case !knows(q.Topics, m.Topic), slices.Contains(q.FullTopics, m.Topic):
			blocked[m.Key] = m.Key != ""
			continue
		case m.NextAttemptAt.After(now):
			blocked[m.Key] = m.Key != ""
			if wait := m.NextAttemptAt.Sub(now); !ahead[m.Key] && (due.NextIn < 0 || wait < due.NextIn) {
				due.NextIn = wait
			}
			continue
		case m.Key != "" && slices.Contains(q.Keys, m.Key), slices.Contains(q.IDs, seq), due.Full:
			continue
		}
		bytes += len(m.Payload)
		due.Messages = append(due.Messages, store.Pending{Message: m.Message, Seq: seq, Attempts: m.Attempts,
			Budget: m.budget, Crashes: m.crashes, Age: now.Sub(m.CreatedAt), Failing: failing(m)})
		due.Full = len(due.Messages) >= q.Limit || bytes >= store.DueBytes
		ahead[m.Key] = m.Key != ""
		if m.Attempts > m.budget {
			blocked[m.Key] = m.Key != ""
		}
	}
	return due, s.after("due")
}

// failing returns the value of Pending.Failing for a message.
func failing(m *row) time.Duration {
	if m.FailingSince.IsZero() {
		return 0
	}
	return max(0, m.NextAttemptAt.Sub(m.FailingSince))
}

func knows(topics []string, topic string) bool {
	return topics == nil || slices.Contains(topics, topic)
}

// Misused returns an error if a caller has broken the contract of package store.
func (s *Store) Misused() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.misused
}

// refuses returns why Mark must not write any of these results, or nil.
func (s *Store) refuses(results []store.Result) error {
	seen := map[int64]bool{}
	for _, r := range results {
		if seen[r.Seq] {
			s.misused = errors.New("two results of one row")
			return s.misused
		}
		seen[r.Seq] = true
		if s.Refuses == nil {
			continue
		}
		if err := s.Refuses(r.ID); err != nil {
			return err
		}
	}
	return nil
}

// Mark implements store.Relay.
func (s *Store) Mark(_ context.Context, relay string, results []store.Result) (marked store.Marked, err error) {
	if err := s.fault("mark"); err != nil {
		return marked, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if err := s.refuses(results); err != nil {
		return marked, err
	}
	for _, r := range results {
		m := s.rows[r.Seq]
		if m == nil || m.ID != r.ID {
			continue
		}
		tried := s.attempts[r.Seq]
		if n := len(tried); n > 0 && tried[n-1].Number == r.Attempts+1 && tried[n-1].Relay == relay &&
			tried[n-1].Outcome == r.Outcome {
			marked.Counted = append(marked.Counted, r.ID) // an earlier call has written it
			continue
		}
		if m.State != store.StatePending || m.Attempts != r.Attempts {
			continue
		}
		if s.Locked != nil && s.Locked(r.ID) {
			marked.Locked = append(marked.Locked, r.ID)
			continue
		}
		m.Attempts++
		m.crashes = 0
		m.LastError = r.Error
		tried = append(slices.Clone(tried), store.Attempt{Number: m.Attempts, FinishedAt: now, Took: r.Took,
			Relay: relay, Outcome: r.Outcome, Error: r.Error})
		s.attempts[r.Seq] = slices.DeleteFunc(tried, func(a store.Attempt) bool {
			return a.Number > store.FirstAttempts && a.Number <= m.Attempts-store.LastAttempts
		})
		if began := now.Add(-r.Took); r.Outcome != store.OutcomeOK {
			late := began.Sub(m.NextAttemptAt)
			switch {
			case m.FailingSince.IsZero() || m.FailingSince.After(began):
				m.FailingSince = began
			case late > r.MostLate:
				m.FailingSince = m.FailingSince.Add(late)
			}
		}
		switch r.Outcome {
		case store.OutcomeTransient:
			m.NextAttemptAt = now.Add(r.RetryIn)
		case store.OutcomeOK:
			m.State, m.FinishedAt = store.StateDispatched, now
		default:
			m.State, m.FinishedAt = store.StateDead, now
		}
		marked.Counted = append(marked.Counted, r.ID)
	}
	return marked, s.after("mark")
}

// NoteBegun implements store.Relay.
func (s *Store) NoteBegun(_ context.Context, list []store.Begun) error {
	if err := s.fault("begin"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range list {
		m := s.rows[b.Seq]
		if m != nil && m.ID == b.ID && m.State == store.StatePending && m.Attempts == b.Attempts &&
			(s.Locked == nil || !s.Locked(b.ID)) {
			m.crashes = b.Crashes
		}
	}
	return s.after("begin")
}

// Sweep implements store.Relay.
func (s *Store) Sweep(_ context.Context, old store.Retention, limit int) (deleted int, err error) {
	if err := s.fault("sweep"); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	over := func(at time.Time, keep time.Duration) bool {
		return keep > 0 && deleted < limit && s.now().Sub(at) > keep
	}
	for seq, m := range s.rows {
		if m.State == store.StateDispatched && over(m.FinishedAt, old.Dispatched) ||
			m.State == store.StateDead && over(m.FinishedAt, old.Dead) {
			s.remove(seq)
			deleted++
		}
	}
	for h, at := range s.inbox {
		if over(at, old.Inbox) {
			delete(s.inbox, h)
			deleted++
		}
	}
	return deleted, nil
}

func (s *Store) remove(seq int64) {
	delete(s.byID, s.rows[seq].ID)
	delete(s.rows, seq)
	delete(s.attempts, seq)
}

// Failing implements store.Relay.
func (s *Store) Failing(context.Context) (list []store.FailingTopic, err error) {
	if err := s.fault("failing"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var fail []*row
	for _, m := range s.rows {
		if m.State == store.StatePending && !m.FailingSince.IsZero() {
			fail = append(fail, m)
		}
	}
	slices.SortFunc(fail, func(a, b *row) int { return a.FailingSince.Compare(b.FailingSince) })
	for _, m := range fail[:min(len(fail), store.MaxFailing)] {
		i := slices.IndexFunc(list, func(t store.FailingTopic) bool { return t.Topic == m.Topic })
		if i < 0 {
			i = len(list)
			list = append(list, store.FailingTopic{Topic: m.Topic, Since: m.FailingSince,
				For: s.now().Sub(m.FailingSince), Error: m.LastError})
		}
		list[i].Messages++
	}
	return list[:min(len(list), store.MaxFailingTopics)], nil
}

// Stats implements store.Relay.
func (s *Store) Stats(_ context.Context, topics []string, stopOnDead bool) (stats store.Stats, err error) {
	if err := s.fault("stats"); err != nil {
		return stats, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	blocked := map[string]bool{}
	for _, seq := range slices.Sorted(maps.Keys(s.rows)) {
		m := s.rows[seq]
		switch m.State {
		case store.StateDead:
			stats.Dead++
			blocked[m.Key] = blocked[m.Key] || stopOnDead && m.Key != ""
			continue
		case store.StateDispatched:
			continue
		}
		stats.Pending++
		since := m.CreatedAt
		if !m.requeuedAt.IsZero() {
			since = m.requeuedAt
		}
		stats.OldestPending = max(stats.OldestPending, now.Sub(since))
		if !knows(topics, m.Topic) {
			if stats.Unknown == nil {
				stats.Unknown = map[string]int64{}
			}
			stats.Unknown[m.Topic]++
			blocked[m.Key] = m.Key != ""
			continue
		}
		if m.NextAttemptAt.After(now) {
			blocked[m.Key] = m.Key != ""
		} else if !blocked[m.Key] {
			stats.OldestDue = max(stats.OldestDue, now.Sub(m.NextAttemptAt))
		}
	}
	return stats, nil
}

// Once implements store.Receiver.
func (s *Store) Once(_ context.Context, tx store.Tx, consumer string, id store.ID) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.mine(tx)
	if err != nil {
		return false, err
	}
	key := had{consumer, id}
	if _, ok := s.inbox[key]; ok || slices.Contains(t.had, key) {
		return false, nil
	}
	t.had = append(t.had, key)
	return true, nil
}
