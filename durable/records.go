package durable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/durable/internal/store"
)

// The records below can be marshaled as JSON. Unknown and missing values are omitted, times are in
// UTC, and field names do not change between versions.

// A RunRecord is a run in the database.
type RunRecord struct {
	ID       int64     `json:"id"`
	Handler  string    `json:"handler"`
	Schedule string    `json:"schedule,omitempty"` // "" if the run was triggered
	DueAt    time.Time `json:"due_at,omitzero"`    // the tick; zero if the run was triggered
	Backfill bool      `json:"backfill,omitempty"` // the run may wait while another run of its schedule waits
	State    State     `json:"state"`
	Priority Priority  `json:"priority"`
	RunAt    time.Time `json:"run_at"` // earliest time of the next claim
	Attempt  int       `json:"attempt"`
	// See Run.MaxAttempts. 0 means any number, or that the number is unknown until the run is
	// claimed.
	MaxAttempts int `json:"max_attempts,omitempty"`
	// FailingFrom is when the first failed attempt began, or zero if none has failed.
	FailingFrom time.Time    `json:"failing_from,omitzero"`
	Key         string       `json:"key"` // see Run.Key
	PayloadLen  int          `json:"payload_bytes"`
	TriggeredBy driver.Cause `json:"triggered_by,omitzero"` // the trigger or the latest Requeue
	TraceParent string       `json:"traceparent,omitempty"`
	CanceledBy  driver.Cause `json:"canceled_by,omitzero"` // who requested the cancellation
	Worker      string       `json:"worker,omitempty"`     // of the latest attempt
	ClaimedAt   time.Time    `json:"claimed_at,omitzero"`  // time of the latest claim
	LeaseUntil  time.Time    `json:"lease_until,omitzero"` // zero if the run is not running
	LastError   string       `json:"last_error,omitempty"`
	EnqueuedAt  time.Time    `json:"enqueued_at"`
	FinishedAt  time.Time    `json:"finished_at,omitzero"` // zero if the run has not ended

	// Only Store.Run fills these in.
	Payload []byte `json:"payload,omitempty"`
	// Attempts are the ended attempts by number: the first 10 and the latest 40.
	Attempts []AttemptRecord `json:"attempts,omitempty"`
}

// An AttemptRecord is an attempt that has ended.
type AttemptRecord struct {
	Attempt    int       `json:"attempt"`
	Worker     string    `json:"worker"`
	StartedAt  time.Time `json:"started_at"`
	FinishedAt time.Time `json:"finished_at"`
	Outcome    Outcome   `json:"outcome"`
	Error      string    `json:"error,omitempty"`
}

// A PauseRecord is a pause of a handler or a schedule.
type PauseRecord struct {
	driver.Cause
	Until time.Time `json:"until"`
}

// A LimitRecord is an override of a limit.
type LimitRecord struct {
	driver.Cause
	Limit int `json:"limit"` // 0: no run starts
}

// A HandlerRecord is a handler in the database.
type HandlerRecord struct {
	Name string `json:"name"` // "" stands for all handlers together; then only Override applies, to MaxActive
	// MaxConcurrency is the value that a worker last registered; 0 means any number.
	MaxConcurrency  int           `json:"max_concurrency"`
	MaxPerPartition int           `json:"max_per_partition,omitempty"` // likewise
	Rate            int           `json:"rate,omitempty"`              // likewise: starts within any Per
	Per             time.Duration `json:"per_ns,omitempty"`
	Override        *LimitRecord  `json:"override,omitempty"` // replaces MaxConcurrency; nil if there is no override
	Pause           *PauseRecord  `json:"pause,omitempty"`    // nil if it is not paused
	SeenAt          time.Time     `json:"seen_at,omitzero"`   // when a worker last registered it; zero if none has
	Queued          int64         `json:"queued"`             // Postgres counts up to 100,000
	Running         int64         `json:"running"`
	Dead            int64         `json:"dead"`
	HandlerHistory
}

// A HandlerHistory is what the runs of a handler have come to, as far as they are kept: see
// Retention.
type HandlerHistory struct {
	EndedAt     time.Time `json:"ended_at,omitzero"`     // the run that ended last
	SucceededAt time.Time `json:"succeeded_at,omitzero"` // the run that succeeded last
	// Failures is how many runs have failed since SucceededAt: dead ones, and those that are tried
	// again whose latest attempt began after it. At most 1,000 of each are counted.
	Failures    int64     `json:"failures,omitempty"`
	FailingFrom time.Time `json:"failing_from,omitzero"` // the first of their attempts that failed; zero: none
	LastError   string    `json:"last_error,omitempty"`  // of one of them
	Outcomes    []State   `json:"outcomes,omitempty"`    // of the last 30 runs that ended, the oldest first
}

// A ScheduleRecord is a schedule in the database.
type ScheduleRecord struct {
	Name      string       `json:"name"`
	Handler   string       `json:"handler,omitempty"` // "": no worker has ever had the schedule
	Text      string       `json:"text,omitempty"`    // description for people
	NextDueAt time.Time    `json:"next_due_at,omitzero"`
	LastDueAt time.Time    `json:"last_due_at,omitzero"` // the latest accounted tick
	SeenAt    time.Time    `json:"seen_at,omitzero"`     // when a worker last registered it; zero if none has
	Pause     *PauseRecord `json:"pause,omitempty"`      // nil if it is not paused
	TickCounts
}

// A RunFilter selects the runs that match all fields that are set. The zero value selects all runs.
// A list that is empty but not nil is refused, so that passing on an empty search result does not
// select all runs.
type RunFilter struct {
	IDs            []int64
	Handler        string
	Schedule       string
	States         []State   // any of them
	EnqueuedBefore time.Time // before this instant
	BeforeID       int64     // with a smaller ID: pass the last ID of a page to get the next page
}

func (r RunFilter) check() error {
	switch {
	case r.IDs != nil && len(r.IDs) == 0:
		return errors.New("the list IDs is empty: leave it nil for all")
	case r.States != nil && len(r.States) == 0:
		return errors.New("the list States is empty: leave it nil for all")
	}
	for _, s := range r.States {
		if !slices.Contains([]State{StateQueued, StateRunning, StateSucceeded, StateDead, StateCanceled}, s) {
			return fmt.Errorf("%q is not a state: use StateQueued, StateRunning, StateSucceeded, StateDead or "+
				"StateCanceled", s)
		}
	}
	if r.BeforeID < 0 {
		return fmt.Errorf("BeforeID %d is negative: use an ID, or 0 for the first page", r.BeforeID)
	}
	return nil
}

func (r RunFilter) inStore() store.Filter {
	which := store.Filter{IDs: r.IDs, Handler: r.Handler, Schedule: r.Schedule, CreatedBefore: r.EnqueuedBefore,
		BeforeID: r.BeforeID}
	for _, s := range r.States {
		which.States = append(which.States, store.State(s))
	}
	return which
}

// MaxRunRecords is the maximum number of runs that Store.Runs returns.
const MaxRunRecords = 10_000

// Runs returns up to limit runs, newest first.
func (s *Store) Runs(ctx context.Context, which RunFilter, limit int) ([]RunRecord, error) {
	if err := s.ready(ctx); err != nil {
		return nil, named(err)
	}
	err := which.check()
	if limit < 1 || limit > MaxRunRecords {
		err = errors.Join(err, fmt.Errorf("a limit of %d: use 1 to %d", limit, MaxRunRecords))
	}
	if err != nil {
		return nil, fmt.Errorf("durable: runs: %w", err)
	}
	list, err := s.store.Runs(ctx, which.inStore(), limit)
	if err != nil {
		return nil, named(err)
	}
	runs := make([]RunRecord, len(list))
	for i, r := range list {
		runs[i] = recordOf(r)
	}
	return runs, nil
}

// Run returns a run with its payload and its attempts, or an error that matches ErrNoRun.
func (s *Store) Run(ctx context.Context, id int64) (RunRecord, error) {
	if err := s.ready(ctx); err != nil {
		return RunRecord{}, named(err)
	}
	r, attempts, ok, err := s.store.Run(ctx, id)
	if err == nil && !ok {
		err = fmt.Errorf("%w: %d", ErrNoRun, id)
	}
	if err != nil {
		return RunRecord{}, named(err)
	}
	run := recordOf(r)
	run.Payload = r.Payload
	for _, a := range attempts {
		run.Attempts = append(run.Attempts, AttemptRecord{Attempt: a.Attempt, Worker: a.Worker,
			StartedAt: utc(a.StartedAt), FinishedAt: utc(a.FinishedAt), Outcome: Outcome(a.Outcome), Error: a.Error})
	}
	return run, nil
}

func recordOf(r store.Run) RunRecord {
	return RunRecord{ID: r.ID, Handler: r.Handler, Schedule: r.Schedule, DueAt: utc(r.DueAt), Backfill: r.Backfill,
		State: State(r.State), Priority: Priority(r.Priority), RunAt: utc(r.RunAt), Attempt: r.Attempt,
		MaxAttempts: r.MaxAttempts, FailingFrom: utc(r.FailingSince), Key: keyOf(r),
		PayloadLen: r.PayloadLen, TriggeredBy: driver.Cause(r.By),
		TraceParent: r.TraceParent, CanceledBy: driver.Cause(r.CanceledBy), Worker: r.Worker,
		ClaimedAt: utc(r.ClaimedAt), LeaseUntil: utc(r.LeaseUntil), LastError: r.LastError,
		EnqueuedAt: utc(r.CreatedAt), FinishedAt: utc(r.FinishedAt)}
}

// Schedules returns, by name, all schedules that workers have or have had within Retention.Unseen.
// The ticks of a schedule that no worker has any more are not materialized.
func (s *Store) Schedules(ctx context.Context) ([]ScheduleRecord, error) {
	if err := s.ready(ctx); err != nil {
		return nil, named(err)
	}
	rows, err := s.store.Schedules(ctx)
	if err != nil {
		return nil, named(err)
	}
	list := make([]ScheduleRecord, len(rows))
	for i, r := range rows {
		list[i] = ScheduleRecord{Name: r.Name, Handler: r.Handler, Text: r.Text, NextDueAt: utc(r.NextDueAt),
			LastDueAt: utc(r.LastDueAt), SeenAt: utc(r.SeenAt), Pause: pauseOf(r.Pause),
			TickCounts: TickCounts{r.Queued, r.Coalesced, r.Skipped, r.PausedTicks}}
	}
	return list, nil
}

// Handlers returns, by name, all handlers that workers have or have had within Retention.Unseen,
// and those that were paused or limited.
func (s *Store) Handlers(ctx context.Context) ([]HandlerRecord, error) {
	if err := s.ready(ctx); err != nil {
		return nil, named(err)
	}
	rows, err := s.store.Handlers(ctx)
	if err != nil {
		return nil, named(err)
	}
	list := make([]HandlerRecord, len(rows))
	for i, r := range rows {
		list[i] = HandlerRecord{Name: r.Name, MaxConcurrency: r.MaxConcurrency, MaxPerPartition: r.MaxPerPartition,
			Rate: r.Rate, Per: r.Per, Pause: pauseOf(r.Pause), SeenAt: utc(r.SeenAt), Queued: r.Queued,
			Running: r.Running, Dead: r.Dead, HandlerHistory: HandlerHistory{EndedAt: utc(r.EndedAt),
				SucceededAt: utc(r.SucceededAt), Failures: r.Failures, FailingFrom: utc(r.FailingSince),
				LastError: r.LastError, Outcomes: make([]State, len(r.Outcomes))}}
		for k, state := range r.Outcomes {
			list[i].Outcomes[k] = State(state)
		}
		if r.Override >= 0 {
			list[i].Override = &LimitRecord{Cause: driver.Cause(r.By), Limit: r.Override}
		}
	}
	return list, nil
}

func pauseOf(p *store.Pause) *PauseRecord {
	if p == nil {
		return nil
	}
	return &PauseRecord{Cause: driver.Cause(p.By), Until: utc(p.Until)}
}
