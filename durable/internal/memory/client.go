package memory

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/flow"
)

var errNoTransactions = errors.New("a store in memory has no transactions: pass nil, or test with a database, " +
	"such as durable.SQLite")

// Insert implements store.Client. It has no transactions.
func (s *Store) Insert(ctx context.Context, tx store.Tx, runs ...store.NewRun) ([]store.Inserted, error) {
	if tx != nil {
		return nil, errNoTransactions
	}
	now, unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	done := make([]store.Inserted, len(runs))
	for i, run := range runs {
		done[i].ID, done[i].Fresh = s.insert(run, now)
	}
	return done, nil
}

// Cancel implements store.Client.
func (s *Store) Cancel(ctx context.Context, id int64, by store.Cause) (store.State, error) {
	now, unlock, err := s.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	r := s.runs[id]
	if r == nil {
		return "", nil
	}
	was := r.State
	switch was {
	case store.StateQueued, store.StateDead:
		delete(s.queued, id)
		r.State, r.FinishedAt, r.CanceledBy = store.StateCanceled, now, by
	case store.StateRunning:
		r.canceled, r.CanceledBy = true, by
	}
	return was, nil
}

// Requeue implements store.Client.
func (s *Store) Requeue(ctx context.Context, which store.Filter, by store.Cause, limit int) (n int, beforeID int64,
	err error) {
	now, unlock, err := s.lock(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer unlock()
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(s.runs))) {
		if r := s.runs[id]; (r.State == store.StateDead || r.State == store.StateCanceled) && matches(r, which) {
			r.State, r.RunAt, r.FinishedAt, r.By = store.StateQueued, now, time.Time{}, by
			r.canceled, r.CanceledBy = false, store.Cause{}
			if r.keyUntil != store.KeyForever {
				r.key = ""
			}
			if r.MaxAttempts > 0 {
				r.MaxAttempts += r.Attempt - r.before
			}
			r.before, r.crashes, r.FailingSince = r.Attempt, 0, time.Time{}
			if r.Attempt == 0 && r.Schedule != "" { // keep it from conflicting with a waiting run
				r.Backfill, r.scheduled = true, false
			}
			s.queued[r.ID] = r
			if n++; n == limit {
				return n, id, nil
			}
		}
	}
	return n, 0, nil
}

func matches(r *runRow, f store.Filter) bool {
	return (len(f.IDs) == 0 || slices.Contains(f.IDs, r.ID)) &&
		(f.Handler == "" || f.Handler == r.Handler) &&
		(f.Schedule == "" || f.Schedule == r.Schedule) &&
		(len(f.States) == 0 || slices.Contains(f.States, r.State)) &&
		(f.CreatedBefore.IsZero() || r.CreatedAt.Before(f.CreatedBefore)) &&
		(f.BeforeID == 0 || r.ID < f.BeforeID)
}

// SetHandler implements store.Client.
func (s *Store) SetHandler(ctx context.Context, name string, change store.Override) error {
	now, unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	row := s.handler(name)
	if change.MaxConcurrency != nil {
		row.override, row.by = *change.MaxConcurrency, change.By
	}
	if change.PausedUntil != nil {
		row.paused = pause(change, now)
	}
	return nil
}

func pause(change store.Override, now time.Time) *store.Pause {
	if *change.PausedUntil <= 0 {
		return nil
	}
	return &store.Pause{Until: now.Add(*change.PausedUntil), By: change.By}
}

// SetSchedule implements store.Client.
func (s *Store) SetSchedule(ctx context.Context, name string, change store.Override) error {
	now, unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if change.PausedUntil != nil {
		row := s.schedule(name)
		inForce := row.pausedUntil.After(now)
		row.Pause = pause(change, now)
		switch {
		case row.Pause != nil && inForce:
			row.pausedUntil = row.Pause.Until
		case row.Pause != nil:
			row.pausedAt, row.pausedUntil = now, row.Pause.Until
		case inForce:
			row.pausedUntil = now
		}
	}
	return nil
}

// Forget implements store.Client.
func (s *Store) Forget(ctx context.Context, schedule string) (bool, error) {
	_, unlock, err := s.lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	_, ok := s.schedules[schedule]
	delete(s.schedules, schedule)
	return ok, nil
}

// Runs implements store.Reader.
func (s *Store) Runs(ctx context.Context, which store.Filter, limit int) ([]store.Run, error) {
	_, unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var runs []store.Run
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(s.runs))) {
		if r := s.runs[id]; len(runs) < limit && matches(r, which) {
			runs = append(runs, r.shown(false))
		}
	}
	return runs, nil
}

// Run implements store.Reader.
func (s *Store) Run(ctx context.Context, id int64) (store.Run, []store.Attempt, bool, error) {
	_, unlock, err := s.lock(ctx)
	if err != nil {
		return store.Run{}, nil, false, err
	}
	defer unlock()
	r := s.runs[id]
	if r == nil {
		return store.Run{}, nil, false, nil
	}
	var attempts []store.Attempt
	for _, a := range s.attempts[id] {
		attempts = append(attempts, a.Attempt)
	}
	return r.shown(true), attempts, true, nil
}

// NextQueued implements store.Reader.
func (s *Store) NextQueued(context.Context, store.Tx, int64) (run store.Run, ok bool, err error) {
	return run, false, errNoTransactions
}

// Schedules implements store.Reader.
func (s *Store) Schedules(ctx context.Context) ([]store.ScheduleRow, error) {
	now, unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var rows []store.ScheduleRow
	for _, name := range slices.Sorted(maps.Keys(s.schedules)) {
		row := s.schedules[name].ScheduleRow
		if !isPaused(row.Pause, now) {
			row.Pause = nil
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// Handlers implements store.Reader.
func (s *Store) Handlers(ctx context.Context) ([]store.HandlerRow, error) {
	_, unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var rows []store.HandlerRow
	for _, name := range slices.Sorted(maps.Keys(s.handlers)) {
		h := s.handlers[name]
		row := store.HandlerRow{Name: name, MaxConcurrency: h.MaxConcurrency, MaxPerPartition: h.MaxPerPartition,
			Rate: h.Rate, Per: h.Per, Override: h.override, By: h.by, Pause: h.paused, SeenAt: h.seenAt}
		for _, r := range s.runs {
			if r.Handler == name {
				row.Queued, row.Running, row.Dead = count(r, row.Queued, row.Running, row.Dead)
			}
		}
		row.HandlerHistory = s.history(name)
		rows = append(rows, row)
	}
	return rows, nil
}

func (s *Store) history(handler string) (h store.HandlerHistory) {
	var runs []*runRow
	for _, r := range s.runs {
		if r.Handler == handler {
			runs = append(runs, r)
		}
	}
	slices.SortFunc(runs, func(a, b *runRow) int {
		return cmp.Or(a.FinishedAt.Compare(b.FinishedAt), cmp.Compare(a.ID, b.ID))
	})
	for _, r := range runs {
		if r.FinishedAt.IsZero() {
			continue
		}
		h.EndedAt = r.FinishedAt
		h.Outcomes = append(h.Outcomes, r.State)
		if r.State == store.StateSucceeded {
			h.SucceededAt = r.FinishedAt
		}
	}
	h.Outcomes = h.Outcomes[max(0, len(h.Outcomes)-store.MaxOutcomes):]
	tried := ""
	for _, r := range runs {
		since := r.FailingSince
		switch {
		case r.State == store.StateDead && r.FinishedAt.After(h.SucceededAt):
			if since.IsZero() {
				since = r.FinishedAt
			}
		case r.State == store.StateQueued && !since.IsZero() && !r.ClaimedAt.Before(h.SucceededAt):
		case r.State == store.StateRunning && !since.IsZero() && !since.Before(h.SucceededAt):
		default:
			continue
		}
		h.Failures++
		if h.FailingSince.IsZero() || since.Before(h.FailingSince) {
			h.FailingSince = since
		}
		if h.LastError = r.LastError; r.State != store.StateDead {
			tried = r.LastError
		}
	}
	h.LastError = cmp.Or(tried, h.LastError)
	if h.Failures > 0 && h.FailingSince.Before(h.SucceededAt) {
		h.FailingSince = h.SucceededAt
	}
	return h
}

func count(r *runRow, queued, running, dead int64) (int64, int64, int64) {
	switch r.State {
	case store.StateQueued:
		queued++
	case store.StateRunning:
		running++
	case store.StateDead:
		dead++
	}
	return queued, running, dead
}

// Stats implements store.Worker.
func (s *Store) Stats(ctx context.Context, unseen time.Duration) (store.Stats, error) {
	now, unlock, err := s.lock(ctx)
	if err != nil {
		return store.Stats{}, err
	}
	defer unlock()
	stats := store.Stats{Now: now}
	by := map[string]*store.HandlerStats{}
	of := func(name string) *store.HandlerStats {
		h := by[name]
		if h == nil {
			h = &store.HandlerStats{Handler: name}
			by[name] = h
		}
		return h
	}
	for name, row := range s.handlers {
		if name != "" {
			h := of(name)
			h.SeenAt, h.Paused = row.seenAt, isPaused(row.paused, now)
		}
	}
	for _, r := range s.runs {
		h := of(r.Handler)
		h.Queued, h.Running, h.Dead = count(r, h.Queued, h.Running, h.Dead)
		if r.State == store.StateQueued && !r.RunAt.After(now) {
			h.OldestDue = earlier(h.OldestDue, r.RunAt)
			stats.OldestDue = earlier(stats.OldestDue, r.RunAt)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		stats.ByHandler = append(stats.ByHandler, *by[name])
	}
	for _, row := range s.schedules {
		if !row.NextDueAt.IsZero() && !row.NextDueAt.After(now) && !row.SeenAt.Before(now.Add(-unseen)) {
			stats.Overdue = earlier(stats.Overdue, row.NextDueAt)
		}
	}
	return stats, nil
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// Sweep implements store.Worker.
func (s *Store) Sweep(ctx context.Context, keep store.Retention, limit int) (deleted int, err error) {
	now, unlock, err := s.lock(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	old := func(at time.Time, keep time.Duration) bool {
		return keep > 0 && !at.IsZero() && at.Before(now.Add(-keep))
	}
	ended := map[store.State]time.Duration{store.StateSucceeded: keep.Succeeded, store.StateDead: keep.Dead,
		store.StateCanceled: keep.Canceled}
	for _, id := range slices.SortedFunc(maps.Keys(s.runs), cmp.Compare) {
		r := s.runs[id]
		if deleted < limit && old(r.FinishedAt, ended[r.State]) {
			delete(s.runs, id)
			delete(s.attempts, id)
			delete(s.ticks, tick{r.Schedule, r.DueAt})
			deleted++
		}
	}
	for name, row := range s.schedules {
		if deleted < limit && old(row.SeenAt, keep.Unseen) && !isPaused(row.Pause, now) {
			delete(s.schedules, name)
			deleted++
		}
	}
	for name, row := range s.handlers {
		idle := row.override < 0 && !isPaused(row.paused, now) && row.starts.Left(now.UnixMicro(), 1,
			store.MaxPer.Microseconds()) > 0
		if deleted < limit && name != "" && old(row.seenAt, keep.Unseen) && idle {
			delete(s.handlers, name)
			deleted++
		}
	}
	return deleted, nil
}

// Flow implements store.Reader.
func (s *Store) Flow(ctx context.Context) (flow.Flow, error) {
	now, unlock, err := s.lock(ctx)
	if err != nil {
		return flow.Flow{}, err
	}
	defer unlock()
	var rows []flow.Row
	add := func(part, handler string, at time.Time) {
		if now.Sub(at) < flow.Span {
			rows = append(rows, flow.Row{Part: part, Name: handler, N: flow.NumberOf(at), Count: 1})
		}
	}
	for _, r := range s.runs {
		add(flow.In, r.Handler, r.CreatedAt)
		if !r.FinishedAt.IsZero() {
			add(string(r.State), r.Handler, r.FinishedAt)
		}
	}
	return flow.Of(rows, now), nil
}
