package durable

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/lifecycle"
	"github.com/tickslot/tickslot/schedule"
)

const (
	// planTimeout is how long a schedule's Next may take.
	planTimeout = time.Second
	// maxPlanned and maxPlannedBytes bound the runs of a plan, so that no statement is too long.
	// The next plan has the remaining runs.
	maxPlanned      = 100
	maxPlannedBytes = 4 << 20
	// tickResolution is the shortest time between two ticks: package schedule rounds ticks up to
	// it.
	tickResolution = time.Microsecond
)

// A scheduled is a registered schedule with its options.
type scheduled struct {
	name, handler string
	schedule      schedule.Schedule // with the name under which it was registered
	options       ScheduleOptions
	spec, text    string
	ticks         ticksCounts

	// Used only by the materializer.
	asking   chan planned // receives the answer of a call in progress; nil if there is none
	askedFor store.DueSchedule
	slow     bool   // the call has taken longer than planTimeout
	fault    string // the last logged reason why it could not be planned; "" if there is none
}

// A planned is the answer of the goroutine that plans a schedule.
type planned struct {
	plan store.Plan
	err  error
}

// row returns the schedule's row in the database.
func (s *scheduled) row() store.Schedule {
	return store.Schedule{Name: s.name, Handler: s.handler, Spec: s.spec, Text: s.text}
}

// specOf returns a text that identifies the ticks of a schedule and their handler. If workers have
// different specs, the worker that started last decides.
func specOf(handler string, s schedule.Schedule) string { return handler + "\n" + schedule.Identity(s) }

// ask returns the plan for a schedule. The schedule may be user code that hangs, so ask calls it on
// a separate goroutine, and does not call it again before that call has returned.
func (s *scheduled) ask(d store.DueSchedule, now time.Time) (store.Plan, error) {
	if s.asking == nil {
		answer := make(chan planned, 1)
		s.asking, s.askedFor = answer, d
		go func() {
			p := planned{err: errGoexit}
			defer func() { answer <- p }() // package schedule turns a panic into an error
			p.plan, p.err = s.plan(d, now)
		}()
	}
	p, ok := s.answer()
	switch {
	case !ok:
		s.slow = true
		return store.Plan{}, errStuckSchedule
	case !s.askedFor.Equal(d):
		return s.ask(d, now) // the plan was for an earlier state of the row
	}
	return p.plan, p.err
}

// answer waits for the answer of the schedule. If an earlier call has already waited, it does not
// wait again.
func (s *scheduled) answer() (p planned, ok bool) {
	wait := planTimeout
	if s.slow {
		wait = 0
	}
	if p, ok = lifecycle.Await(s.asking, wait); ok {
		s.asking, s.slow = nil, false
	}
	return p, ok
}

var errStuckSchedule = fmt.Errorf("its Next does not return within %v", planTimeout)

// plan accounts for the due ticks and finds the next tick. now is the database's time. Every due
// tick has a run or is counted in exactly one of the plan's numbers.
func (s *scheduled) plan(d store.DueSchedule, now time.Time) (store.Plan, error) {
	p := store.Plan{Schedule: d, Handler: s.handler}
	first := d.NextDueAt
	if first.IsZero() || first.After(now) { // the schedule is new, or has a new spec
		next, err := schedule.Next(s.schedule, now)
		p.Next = next
		return p, err
	}
	due, next, err := s.due(d, now)
	if err != nil {
		return p, err
	}
	before, paused, after := due[0], due[1], due[2]
	p.Next, p.PausedTicks = next, paused.ticks
	for _, st := range due {
		if st.ticks > 0 {
			p.Last = st.last
		}
	}
	last, total := after.last, before.ticks+after.ticks
	switch {
	case total == 0:
		return p, nil
	case after.ticks == 0:
		last = before.last
	}
	late := now.Sub(last) > LateAfter
	old := s.options.CatchUp.Window > 0 && now.Sub(last) > s.options.CatchUp.Window
	switch policy := s.options.CatchUp.Policy; {
	case policy == CatchUpBackfill && (total > 1 || late):
		return s.backfill(p, due, now)
	case late && (policy == CatchUpSkip || old):
		p.Skipped = total
		return p, nil
	case policy == CatchUpSkip:
		p.Skipped = total - 1
	default:
		p.Coalesced = total - 1
	}
	p.Runs = []store.NewRun{s.run(last)}
	return p, nil
}

// A stretch has all ticks from first to last. The search for them ended at end.
type stretch struct {
	first, last, end time.Time
	ticks            int64 // number of ticks
}

// due returns the due ticks in three stretches (before, during and after the pause), and the first
// tick that is not due. A tick belongs to the pause if it came due during the pause, no matter when
// a worker polls.
func (s *scheduled) due(d store.DueSchedule, now time.Time) (due [3]stretch, tick time.Time, err error) {
	tick = d.NextDueAt
	for i, end := range []time.Time{d.PausedAt.Add(-tickResolution), d.PausedUntil.Add(-tickResolution), now} {
		if end.After(now) {
			end = now
		}
		if tick.IsZero() || tick.After(end) {
			continue
		}
		st := stretch{first: tick, last: tick, end: end}
		missed := uint64(0)
		if d.Spec == d.NextSpec {
			st.last, tick, missed, err = schedule.Advance(s.schedule, tick, end)
		} else { // keep the next tick of the old spec; later ticks follow the new spec
			tick, err = schedule.Next(s.schedule, now)
		}
		if err == nil && missed >= schedule.MaxMissed { // Advance has given up, so last is not the latest tick
			var ticks []time.Time
			if ticks, err = s.latest(st.last, end, 1); len(ticks) > 0 {
				st.last = ticks[0]
			}
		}
		if err != nil {
			return due, tick, err
		}
		st.ticks = int64(missed) + 1
		due[i] = st
	}
	return due, tick, nil
}

// run returns the run of a tick.
func (s *scheduled) run(tick time.Time) store.NewRun {
	return store.NewRun{Handler: s.handler, Schedule: s.name, DueAt: tick, RunAt: tick,
		Backfill: s.options.CatchUp.Policy == CatchUpBackfill, Priority: int(s.options.Priority),
		Payload: s.options.Payload}
}

// backfill plans a run for each due tick outside the pause, except ticks older than Window or
// beyond Max. If one plan cannot hold all these runs, it ends before the first omitted tick, which
// becomes the next due tick.
func (s *scheduled) backfill(p store.Plan, due [3]stretch, now time.Time) (store.Plan, error) {
	var ticks []time.Time
	var total int64
	for _, st := range []stretch{due[2], due[0]} { // the latest first
		total += st.ticks
		older, most := []time.Time{st.last}, s.options.CatchUp.Max+1-len(ticks)
		switch {
		case st.ticks == 0 || most == 0:
			continue
		case st.ticks > 1:
			var err error
			if older, err = s.latest(st.first, st.end, most); err != nil {
				return p, err
			}
		}
		ticks = append(older, ticks...)
	}
	for len(ticks) > 0 && s.options.CatchUp.Window > 0 && now.Sub(ticks[0]) > s.options.CatchUp.Window {
		ticks = ticks[1:]
	}
	if len(ticks) > s.options.CatchUp.Max && now.Sub(ticks[len(ticks)-1]) > LateAfter {
		ticks = ticks[1:] // the latest is missed, too
	}
	p.Skipped = total - int64(len(ticks))
	most := min(maxPlanned, max(1, maxPlannedBytes/max(1, len(s.options.Payload))))
	if len(ticks) > most {
		p.Last, p.Next = ticks[most-1], ticks[most]
		ticks = ticks[:most]
		switch paused := due[1]; {
		case paused.first.After(p.Next):
			p.PausedTicks = 0 // they come after the remaining ticks
		case paused.last.After(p.Last):
			p.Last = paused.last
		}
	}
	for _, tick := range ticks {
		p.Runs = append(p.Runs, s.run(tick))
	}
	return p, nil
}

// latest returns the latest ticks from first to now, in order, at most most of them. It searches
// back from now in growing steps, because there may be millions of ticks.
func (s *scheduled) latest(first, now time.Time, most int) ([]time.Time, error) {
	for back := time.Second; ; back *= 4 {
		from := now.Add(-back)
		all := from.Before(first)
		if all {
			from = first.Add(-tickResolution)
		}
		var ticks []time.Time
		for range schedule.MaxMissed {
			next, err := schedule.Next(s.schedule, from)
			if err != nil {
				return nil, err
			}
			if next.IsZero() || next.After(now) {
				break
			}
			ticks = append(ticks, next)
			from = next
		}
		if all || len(ticks) >= most {
			return ticks[max(0, len(ticks)-most):], nil
		}
	}
}
