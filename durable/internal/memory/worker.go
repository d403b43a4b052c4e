package memory

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/startlog"
)

// Register implements store.Worker.
func (s *Store) Register(ctx context.Context, worker string, handlers []store.Handler, schedules []store.Schedule,
	takeOver bool) error {
	now, unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for _, h := range handlers {
		row := s.handler(h.Name)
		row.Handler, row.seenAt = h, now
		if h.MaxConcurrency > 1 {
			row.peers.See(store.WorkerKey(worker), now.UnixMicro())
		}
	}
	for _, c := range schedules {
		row := s.schedules[c.Name]
		if row == nil {
			row = s.schedule(c.Name)
			row.Spec, row.Handler, row.Text = c.Spec, c.Handler, c.Text
		}
		if row.Spec == c.Spec || row.Spec == "" || takeOver {
			if row.SeenAt.After(now.Add(store.MaxAhead)) { // the clock was ahead
				row.nextSpec = ""
				if !row.pausedUntil.After(row.SeenAt) && row.pausedUntil.After(now) { // the pause was over by then
					row.Pause, row.pausedAt, row.pausedUntil = nil, time.Time{}, time.Time{}
				}
			}
			row.Spec, row.Handler, row.Text, row.SeenAt = c.Spec, c.Handler, c.Text, now
		}
	}
	return nil
}

// handler returns a handler's row, creating it if it is missing. Called with mu held.
func (s *Store) handler(name string) *handlerRow {
	row := s.handlers[name]
	if row == nil {
		row = &handlerRow{override: -1, peers: store.Peers{}}
		s.handlers[name] = row
	}
	return row
}

// schedule returns a schedule's row, creating it if it is missing. Called with mu held.
func (s *Store) schedule(name string) *scheduleRow {
	row := s.schedules[name]
	if row == nil {
		row = &scheduleRow{ScheduleRow: store.ScheduleRow{Name: name}}
		s.schedules[name] = row
	}
	return row
}

// Due implements store.Worker.
func (s *Store) Due(ctx context.Context, after store.DueSchedule, limit int) (store.Due, error) {
	now, unlock, err := s.lock(ctx)
	if err != nil {
		return store.Due{}, err
	}
	defer unlock()
	due := store.Due{Now: now}
	for _, row := range s.schedules {
		switch {
		case row.Spec == "": // an override of a schedule that was never registered
		case row.Spec != row.nextSpec || !row.NextDueAt.IsZero() && !row.NextDueAt.After(now):
			if d := row.due(); compareDue(d, after) > 0 {
				due.Schedules = append(due.Schedules, d)
			}
		case !row.NextDueAt.IsZero() && (due.Next.IsZero() || row.NextDueAt.Before(due.Next)):
			due.Next = row.NextDueAt
		}
	}
	slices.SortFunc(due.Schedules, compareDue)
	due.Schedules = due.Schedules[:min(max(0, limit), len(due.Schedules))]
	return due, nil
}

// compareDue compares schedules in the order of Due.
func compareDue(a, b store.DueSchedule) int {
	planAt := func(d store.DueSchedule) time.Time {
		if d.Spec != d.NextSpec {
			return time.Time{}
		}
		return d.NextDueAt
	}
	return cmp.Or(planAt(a).Compare(planAt(b)), cmp.Compare(a.Name, b.Name))
}

func (s *scheduleRow) due() store.DueSchedule {
	return store.DueSchedule{Name: s.Name, Spec: s.Spec, NextSpec: s.nextSpec, NextDueAt: s.NextDueAt,
		PausedAt: s.pausedAt, PausedUntil: s.pausedUntil}
}

func isPaused(p *store.Pause, now time.Time) bool { return p != nil && p.Until.After(now) }

// Materialize implements store.Worker.
func (s *Store) Materialize(ctx context.Context, plans []store.Plan) ([]store.Materialized, error) {
	now, unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var done []store.Materialized
	for _, p := range plans {
		row := s.schedules[p.Schedule.Name]
		if row == nil {
			continue
		}
		if !row.due().Equal(p.Schedule) {
			continue // another worker was faster
		}
		m := store.Materialized{Schedule: p.Schedule.Name, Coalesced: p.Coalesced, Skipped: p.Skipped,
			PausedTicks: p.PausedTicks}
		for _, run := range p.Runs {
			if _, fresh := s.insert(run, now); fresh {
				m.Queued++
			} else {
				m.Coalesced++
			}
		}
		row.nextSpec, row.NextDueAt = row.Spec, p.Next
		if !p.Last.IsZero() {
			row.LastDueAt = p.Last
		}
		row.Queued += m.Queued
		row.Coalesced += m.Coalesced
		row.Skipped += m.Skipped
		row.PausedTicks += m.PausedTicks
		done = append(done, m)
	}
	return done, nil
}

// insert queues a run unless a unique index refuses it. Called with mu held.
func (s *Store) insert(n store.NewRun, now time.Time) (id int64, fresh bool) {
	if n.Key != "" {
		for _, r := range s.runs {
			if r.Handler == n.Handler && r.key == n.Key && r.holdsKey(now) {
				return r.ID, false
			}
		}
	}
	if n.Schedule != "" {
		if s.ticks[tick{n.Schedule, n.DueAt}] {
			return 0, false
		}
		for _, r := range s.queued {
			if r.scheduled && r.Schedule == n.Schedule && r.Attempt == 0 && !n.Backfill {
				return 0, false
			}
		}
		s.ticks[tick{n.Schedule, n.DueAt}] = true
	}
	s.lastID++
	r := &runRow{Run: store.Run{Handler: n.Handler, Schedule: n.Schedule, DueAt: n.DueAt, Backfill: n.Backfill,
		State: store.StateQueued, Priority: n.Priority, RunAt: n.RunAt, Nonce: rand.Text(),
		Payload:    n.Payload,
		PayloadLen: len(n.Payload), Partition: n.Partition, By: n.By, TraceParent: n.TraceParent, CreatedAt: now},
		ownMost: n.MaxAttempts,
		key:     n.Key, keyUntil: n.KeyUntil}
	if n.KeyFor > 0 {
		r.keyExpiresAt = now.Add(n.KeyFor)
	} else if n.KeyUntil == store.KeyForever {
		r.Key = n.Key
	}
	r.ID, r.MaxAttempts = s.lastID, n.MaxAttempts
	r.scheduled = n.Schedule != "" && !n.Backfill
	if r.RunAt.IsZero() {
		r.RunAt = now.Add(n.RunIn).Truncate(time.Microsecond)
	}
	s.runs[r.ID], s.queued[r.ID] = r, r
	return r.ID, true
}

// holdsKey reports whether the key of a run still belongs to it.
func (r *runRow) holdsKey(now time.Time) bool {
	switch r.keyUntil {
	case store.KeyUntilStarted:
		return r.State == store.StateQueued && r.Attempt == 0
	case store.KeyUntilEnded:
		return r.State == store.StateQueued || r.State == store.StateRunning
	}
	return r.keyExpiresAt.IsZero() || r.keyExpiresAt.After(now)
}

// Claim implements store.Worker.
func (s *Store) Claim(ctx context.Context, req store.ClaimRequest) (store.Claimed, error) {
	now, unlock, err := s.lock(ctx)
	if err != nil {
		return store.Claimed{}, err
	}
	defer unlock()
	c := store.Claimed{Now: now}
	room, free := s.room(req, now)
	var waiting []*runRow
	for _, r := range s.queued {
		_, ok := room[r.Handler]
		switch {
		case !ok:
		case r.RunAt.After(now):
			if c.Next.IsZero() || r.RunAt.Before(c.Next) {
				c.Next = r.RunAt
			}
		default:
			waiting = append(waiting, r)
		}
	}
	slices.SortFunc(waiting, func(a, b *runRow) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.RunAt.Compare(b.RunAt), cmp.Compare(a.ID, b.ID))
	})
	ofPartition := s.roomOfPartitions(req)
	total, value, bytes := min(req.Limit, s.roomOfAll(req)), store.NewClaim(), 0
	for _, r := range waiting {
		if len(c.Runs) >= total {
			break
		}
		if room[r.Handler] == 0 || !ofPartition(r) {
			continue
		}
		if bytes >= store.MaxClaimedBytes {
			c.More = true
			break
		}
		room[r.Handler]--
		free[r.Handler]--
		bytes += len(r.Payload)
		s.claim(r, req, now)
		r.Run.Claim = value
		c.Runs = append(c.Runs, r.shown(true))
	}
	for _, h := range req.Handlers {
		left := func(r *runRow) bool { return r.Handler == h.Name && r.State == store.StateQueued }
		taken := func(r store.Run) bool { return r.Handler == h.Name }
		waits := slices.ContainsFunc(waiting, left)
		c.Held = c.Held || waits && room[h.Name] == 0 && free[h.Name] > 0
		if row := s.handler(h.Name); row.limit(h) > 1 {
			row.peers.Ask(store.WorkerKey(req.Worker), len(c.Runs) >= req.Limit,
				waits || slices.ContainsFunc(c.Runs, taken), now.UnixMicro(), req.Patience)
		}
	}
	if next := s.nextStart(req, waiting, now); !next.IsZero() {
		c.Next = earlier(c.Next, next)
	}
	return c, nil
}

// nextStart considers the handlers that have due runs and have reached their rate. It returns when
// the next of their runs may start, or zero if there is no such handler. Called with mu held.
func (s *Store) nextStart(req store.ClaimRequest, due []*runRow, now time.Time) (next time.Time) {
	for _, h := range req.Handlers {
		wait := s.handler(h.Name).starts.Wait(now.UnixMicro(), h.Rate, startlog.Micros(h.Per))
		if h.Rate > 0 && wait > 0 && slices.ContainsFunc(due, func(r *runRow) bool {
			return r.Handler == h.Name && r.State == store.StateQueued
		}) {
			next = earlier(next, now.Add(time.Duration(wait)*time.Microsecond))
		}
	}
	return next
}

const unlimited = 1 << 30

// limit returns the limit in force for a handler. 0 means that there is no limit, or that an
// override of 0 lets nothing start.
func (h *handlerRow) limit(registered store.Handler) int {
	if h.override >= 0 {
		return h.override
	}
	return registered.MaxConcurrency
}

// room returns how many runs of each handler this worker may claim, and how many all workers
// together may claim. The maps omit paused handlers. Called with mu held.
func (s *Store) room(req store.ClaimRequest, now time.Time) (room, free map[string]int) {
	running, mine, waits := map[string]int{}, map[string]int{}, map[string]bool{}
	for _, r := range s.running {
		if running[r.Handler]++; r.Worker == req.Worker {
			mine[r.Handler]++
		}
	}
	for _, r := range s.queued {
		waits[r.Handler] = waits[r.Handler] || !r.RunAt.After(now.Add(-req.Patience))
	}
	room, free = map[string]int{}, map[string]int{}
	for _, h := range req.Handlers {
		row := s.handler(h.Name)
		if !isPaused(row.paused, now) {
			room[h.Name] = left(h.MaxConcurrency, row.override, running[h.Name])
			if h.Rate > 0 {
				us, per := now.UnixMicro(), startlog.Micros(h.Per)
				row.starts, _ = row.starts.Disbelieve(us, per, store.MaxAhead.Microseconds())
				room[h.Name] = min(room[h.Name], row.starts.Left(us, h.Rate, per))
			}
			free[h.Name] = room[h.Name]
			if limit := row.limit(h); limit > 1 {
				share := row.peers.Share(limit, store.WorkerKey(req.Worker), waits[h.Name], now.UnixMicro(),
					req.Patience)
				room[h.Name] = min(room[h.Name], max(0, share-mine[h.Name]))
			}
		}
	}
	return room, free
}

// roomOfPartitions returns a function that reports whether a run's partition has room. The function
// must be called just before the run is claimed. Called with mu held.
func (s *Store) roomOfPartitions(req store.ClaimRequest) func(*runRow) bool {
	limits := map[string]int{}
	for _, h := range req.Handlers {
		limits[h.Name] = h.MaxPerPartition
	}
	return func(r *runRow) bool {
		limit, running := limits[r.Handler], 0
		if limit == 0 || r.Partition == "" {
			return true
		}
		for _, other := range s.running {
			if other.Handler == r.Handler && other.Partition == r.Partition {
				running++
			}
		}
		return running < limit
	}
}

func (s *Store) roomOfAll(req store.ClaimRequest) int {
	return left(req.MaxActive, s.handler("").override, len(s.running))
}

func left(limit, override, running int) int {
	switch {
	case override >= 0:
		limit = override
	case limit == 0:
		return unlimited
	}
	return max(0, limit-running)
}

func (s *Store) claim(r *runRow, req store.ClaimRequest, now time.Time) {
	h := req.Handlers[slices.IndexFunc(req.Handlers, func(h store.Handler) bool { return h.Name == r.Handler })]
	if r.most = r.ownMost; r.most == 0 {
		r.most = h.MaxAttempts
	}
	if h.Rate > 0 {
		row := s.handler(h.Name)
		row.starts = row.starts.Add(now.UnixMicro(), h.Rate, startlog.Micros(h.Per), 1)
	}
	r.Attempt++
	r.State, r.Worker, r.ClaimedAt, r.LeaseUntil = store.StateRunning, req.Worker, now, now.Add(req.TTL)
	r.MaxAttempts = 0
	if r.most > 0 {
		r.MaxAttempts = r.before + r.most
	}
	delete(s.queued, r.ID)
	s.running[r.ID] = r
}

// shown returns a copy of a run.
func (r *runRow) shown(payload bool) store.Run {
	run := r.Run
	run.Uncounted = r.before
	if !payload {
		run.Payload = nil
	}
	return run
}

// Renew implements store.Worker.
func (s *Store) Renew(ctx context.Context, worker string, runs []store.RunKey, ttl time.Duration) ([]store.Renewed,
	error) {
	now, unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var renewed []store.Renewed
	for _, key := range runs {
		r := s.owned(worker, key)
		if r == nil {
			continue
		}
		r.LeaseUntil = now.Add(ttl)
		n := store.Renewed{RunKey: key}
		n.Canceled, n.By = r.canceled, r.CanceledBy
		renewed = append(renewed, n)
	}
	return renewed, nil
}

// owned returns the run that a worker has claimed with the key. It returns nil if there is none, or
// if the run was reclaimed. Called with mu held.
func (s *Store) owned(worker string, key store.RunKey) *runRow {
	r := s.running[key.ID]
	if r == nil || r.RunKey != key || r.Worker != worker {
		return nil
	}
	return r
}

// Finish implements store.Worker.
func (s *Store) Finish(ctx context.Context, worker string, results []store.Result) (done store.Finished, err error) {
	now, unlock, err := s.lock(ctx)
	if err != nil {
		return done, err
	}
	defer unlock()
	for _, result := range results {
		r := s.owned(worker, result.RunKey)
		if r == nil {
			if s.written(worker, result) {
				done.Counted = append(done.Counted, result.RunKey)
			}
			continue
		}
		if result.Outcome == store.OutcomeInterrupted {
			r.before++
			if r.MaxAttempts > 0 {
				r.MaxAttempts++
			}
		}
		if r.canceled && result.State == store.StateQueued {
			result.State = store.StateCanceled
		}
		s.end(r, result, now)
		if result.State == store.StateQueued {
			r.RunAt = now.Add(result.RetryIn).Truncate(time.Microsecond)
		}
		done.Counted = append(done.Counted, result.RunKey)
	}
	return done, nil
}

// written reports whether an earlier call has written a result.
func (s *Store) written(worker string, result store.Result) bool {
	return slices.ContainsFunc(s.attempts[result.ID], func(a attempt) bool {
		return a.Attempt.Attempt == result.Attempt && a.claim == result.Claim && a.Worker == worker &&
			a.Outcome == result.Outcome
	})
}

// end ends the attempt of a running run. Called with mu held.
func (s *Store) end(r *runRow, result store.Result, now time.Time) {
	began := now.Add(-result.Took.Truncate(time.Microsecond))
	if began.Before(r.ClaimedAt) || result.Outcome == store.OutcomeLeaseLost {
		began = r.ClaimedAt
	}
	switch result.Outcome {
	case store.OutcomeLeaseLost, store.OutcomeFailed, store.OutcomePanicked, store.OutcomeTimedOut:
		if r.FailingSince.IsZero() {
			r.FailingSince = r.ClaimedAt
		}
	}
	s.attempts[r.ID] = append(s.attempts[r.ID], attempt{claim: r.Claim, Attempt: store.Attempt{Attempt: r.Attempt,
		Worker: r.Worker, StartedAt: began, FinishedAt: now, Outcome: result.Outcome, Error: result.Error}})
	s.attempts[r.ID] = slices.DeleteFunc(s.attempts[r.ID], func(a attempt) bool {
		return a.Attempt.Attempt > store.FirstAttempts && a.Attempt.Attempt <= r.Attempt-store.LastAttempts
	})
	r.State, r.LeaseUntil = result.State, time.Time{}
	if result.Error != "" {
		r.LastError = result.Error
	}
	delete(s.running, r.ID)
	if result.State == store.StateQueued {
		s.queued[r.ID] = r
	} else {
		r.FinishedAt = now
	}
}

// Reclaim implements store.Worker.
func (s *Store) Reclaim(ctx context.Context, limit, maxCrashes int) ([]store.Reclaimed, error) {
	now, unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var expired []*runRow
	for _, r := range s.running {
		if !r.LeaseUntil.After(now) {
			expired = append(expired, r)
		}
	}
	slices.SortFunc(expired, func(a, b *runRow) int { return cmp.Compare(a.ID, b.ID) })
	var reclaimed []store.Reclaimed
	for _, r := range expired[:min(limit, len(expired))] {
		r.crashes++
		c := store.Reclaimed{RunKey: r.RunKey, MaxAttempts: r.MaxAttempts, Crashes: r.crashes, Handler: r.Handler,
			Worker: r.Worker, Schedule: r.Schedule}
		if s.Reclaimed != nil {
			s.Reclaimed(now.Sub(r.LeaseUntil))
		}
		state := store.StateQueued
		switch {
		case r.canceled:
			state, c.Canceled = store.StateCanceled, true
		case r.MaxAttempts > 0 && r.Attempt >= r.MaxAttempts, maxCrashes > 0 && r.crashes >= maxCrashes:
			state, c.Dead = store.StateDead, true
		}
		s.end(r, store.Result{Outcome: store.OutcomeLeaseLost, State: state, Error: "the lease expired"}, now)
		if state == store.StateQueued {
			r.RunAt = now
		}
		reclaimed = append(reclaimed, c)
	}
	return reclaimed, nil
}
