package durable

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/answers"
	"github.com/tickslot/tickslot/internal/loop"
)

const (
	// maxDue is how many schedules one call requests. The next call requests those that follow.
	maxDue = 1000
	// maxPlans and maxPlannedRuns bound the plans, and the runs in them, that one call carries out.
	maxPlans       = 100
	maxPlannedRuns = 10 * maxPlanned
	// replanDelay is how soon a worker looks again after its plan was not carried out. Usually
	// another worker was faster. But the schedule's row may also have been locked, for example by a
	// registration or a pause, and then its ticks are still due.
	replanDelay = time.Second
)

// A materializer queues the runs of due ticks for the schedules that this worker has. All workers
// do so, and the database decides which worker was first.
type materializer struct {
	*loop.Loop
	store     store.Worker
	database  *database
	events    *events
	schedules map[string]*scheduled
	queued    func(runs int64) // called when runs were queued
	batch     *answers.Batch   // batch size for plans

	// The state of a cycle. A cycle takes one step for each page of schedules that need a plan.
	after        store.DueSchedule // last schedule of the previous page; zero when the cycle begins
	more, missed bool              // a page left due ticks, or plans that were not carried out

	mu        sync.Mutex        // guards the fields below
	faults    map[string]string // why schedules could not be planned
	elsewhere map[string]bool   // schedules that a worker of another version has taken over
}

// materialize is a step of the loop.
func (m *materializer) materialize() time.Duration {
	if m.after == (store.DueSchedule{}) {
		m.events.AskDebug()
		m.events.Log(slog.LevelDebug, "durable: materialize cycle starting")
		m.more, m.missed = false, false
	}
	after := m.after
	due, err := call(m.database, opDue, func(ctx context.Context) (store.Due, error) {
		return m.store.Due(ctx, after, maxDue)
	})
	m.after = store.DueSchedule{}
	if err != nil {
		return afterFailure()
	}
	receivedAt := time.Now()
	next := due.Next
	var queued int64
	plans := m.plan(due)
	for len(plans) > 0 {
		batch, began := firstBatch(plans, m.batch.Limit()), time.Now()
		plans = plans[len(batch):]
		done, err := call(m.database, opMaterialize, func(ctx context.Context) ([]store.Materialized, error) {
			return m.store.Materialize(ctx, batch)
		})
		m.batch.Wrote(len(batch), time.Since(began), err)
		if err != nil {
			queued++ // there may be new runs
			m.missed = true
			continue
		}
		n, left := m.tell(batch, done, due.Now)
		queued += n
		m.more, m.missed = m.more || left, m.missed || len(done) < len(batch)
		for _, p := range batch {
			if p.Next.After(due.Now) && (next.IsZero() || p.Next.Before(next)) {
				next = p.Next
			}
		}
	}
	m.events.Log(slog.LevelDebug, "durable: materialize cycle completed", "due", len(due.Schedules), "queued", queued)
	if queued > 0 {
		m.queued(queued)
	}
	wait := loop.Never
	switch {
	case len(due.Schedules) == maxDue:
		m.after = due.Schedules[maxDue-1]
		return 0
	case m.more:
		return 0
	case m.missed:
		wait = loop.Jittered(replanDelay, 0.2)
	}
	if !next.IsZero() {
		wait = min(wait, next.Sub(due.Now)-time.Since(receivedAt))
	}
	return wait
}

// firstBatch returns the first plans, at most most of them, that one call can carry out.
func firstBatch(plans []store.Plan, most int) []store.Plan {
	runs, bytes := 0, 0
	for i, p := range plans {
		runs += len(p.Runs)
		for _, r := range p.Runs {
			bytes += len(r.Payload)
		}
		if i > 0 && (i == most || runs > maxPlannedRuns || bytes > maxPlannedBytes) {
			return plans[:i]
		}
	}
	return plans
}

// plan plans the schedules that are due and that this worker has.
func (m *materializer) plan(due store.Due) (plans []store.Plan) {
	for _, d := range due.Schedules {
		s := m.schedules[d.Name]
		if s == nil || d.Spec == d.NextSpec && d.NextDueAt.IsZero() { // taken over by another version, or without ticks
			continue
		}
		takenOver := d.Spec != s.spec
		m.recordTakeover(d.Name, takenOver)
		if takenOver {
			continue
		}
		p, err := s.ask(d, due.Now)
		m.record(s, err)
		if err == nil {
			plans = append(plans, p)
		}
	}
	return plans
}

// recordTakeover records whether a worker of another version has taken a schedule over.
func (m *materializer) recordTakeover(name string, takenOver bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if takenOver && !m.elsewhere[name] {
		m.events.Log(slog.LevelDebug, "durable: a worker of another version has taken the schedule over",
			"schedule", name)
	}
	if takenOver {
		m.elsewhere[name] = true
	} else {
		delete(m.elsewhere, name)
	}
}

// takenOver returns the schedules that a worker of another version has taken over.
func (m *materializer) takenOver() map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.elsewhere)
}

// record records whether a schedule could be planned.
func (m *materializer) record(s *scheduled, err error) {
	text := textOf(err)
	if text == s.fault {
		return
	}
	s.fault = text
	m.mu.Lock()
	if err == nil {
		delete(m.faults, s.name)
	} else {
		m.faults[s.name] = text
	}
	m.mu.Unlock()
	if err == nil {
		m.events.Log(slog.LevelInfo, "durable: a schedule works again", "schedule", s.name)
		return
	}
	m.events.Log(slog.LevelError, "durable: a schedule fails, so its ticks wait", "schedule", s.name, "err", err)
}

// tell counts and logs the plans that were carried out, and calls hooks. It returns how many runs
// were queued and whether a plan left due ticks.
func (m *materializer) tell(batch []store.Plan, done []store.Materialized, now time.Time) (queued int64, more bool) {
	by := make(map[string]store.Materialized, len(done))
	for _, d := range done {
		by[d.Schedule] = d
	}
	for _, p := range batch {
		name := p.Schedule.Name
		d, ok := by[name]
		if !ok {
			m.events.Log(slog.LevelDebug, "durable: ticks already materialized by another worker, skipping",
				"schedule", name)
			continue
		}
		queued += d.Queued
		more = more || !p.Next.IsZero() && !p.Next.After(now)
		counts := TickCounts{d.Queued, d.Coalesced, d.Skipped, d.PausedTicks}
		if counts == (TickCounts{}) {
			continue // the schedule is new
		}
		m.schedules[name].ticks.add(counts)
		m.events.Log(slog.LevelDebug, "durable: ticks materialized", "schedule", name, "queued", d.Queued,
			"coalesced", d.Coalesced, "skipped", d.Skipped, "paused", d.PausedTicks)
		tell(m.events, "TicksMaterialized", m.events.hooks.TicksMaterialized, TicksInfo{name, counts})
	}
	return queued, more
}

// faulty returns the schedules that cannot be planned and the reasons.
func (m *materializer) faulty() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.faults)
}

// stuck returns the schedules whose Next has not returned. It is called when the loop has ended.
func (m *materializer) stuck() (names []string) {
	for name, s := range m.schedules {
		if s.asking == nil {
			continue
		}
		select {
		case <-s.asking:
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
