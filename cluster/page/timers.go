package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
	"github.com/tickslot/tickslot/cluster/page/internal/readcache"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/control"
)

const (
	timerPrefix = "timer:" // of the lock of a timer
	maxBoxes    = 64       // slots that are shown as boxes
	maxMarks    = 30       // runs in a strip
)

// timers reads what is known of timers, for all viewers together.
type timers struct {
	config   Config
	runs     readcache.Cache[[]cluster.HistoryRun]
	states   readcache.Cache[driver.ControlState]
	pauses   readcache.Cache[pauses] // of all timers
	triggers readcache.Cache[[]control.PendingTrigger]
	buckets  readcache.Cache[[]cluster.HistoryBucket] // of a timer; "": of the fleet

	// These call schedules and blackouts, which are the user's code and may hang.
	status    readcache.Cache[*timer.Status]
	ticks     readcache.Cache[[]time.Time]
	blackouts readcache.Cache[map[string]time.Time] // until when, by timer
	hanging   map[string]<-chan time.Time           // blackouts that have not answered; of the read under way

	mu     sync.Mutex    // held while latest is made, which calls nobody
	latest []timerRow    // of readAt; it is shared, so it is never modified
	local  *timer.Status // of the same moment; nil: there is no scheduler, or it has not answered
	readAt time.Time
	madeAt time.Time
}

// These are states of a timer as this process knows it, besides those of package cluster.
const (
	stateBlackout cluster.TimerState = "blackout"
	stateNever    cluster.TimerState = "never ran"
	stateFull     cluster.TimerState = "full"              // a tab only: it is running
	stateNoStore  cluster.TimerState = "without the store" // a tab only: it is idle, running or failing
)

// A timerRow is a timer of the fleet.
type timerRow struct {
	Name  string             `json:"name"`
	State cluster.TimerState `json:"state"`
	Limit *int               `json:"max_concurrency"` // nil: none, or not known
	// Limits that hosts differ in, with how many have each; empty: they agree.
	Differ []differingLimit    `json:"differing,omitempty"`
	Hosts  int                 `json:"hosts"` // that are alive or suspect, and have it registered
	Held   int                 `json:"held"`  // slots
	Slots  []slotBox           `json:"slots"` // the first of them
	More   int                 `json:"more_slots,omitempty"`
	Last   *cluster.HistoryRun `json:"last_run,omitempty"`
	Failed int                 `json:"failed_in_a_row"` // of the latest runs
	// When the first of them ended; zero: the last run succeeded, or none is known.
	FailingSince time.Time `json:"failing_since,omitzero"`
	// The outcomes of the latest runs, the oldest first; empty: they are not known.
	Outcomes []string             `json:"outcomes,omitempty"`
	Runs     []cluster.HistoryRun `json:"-"` // latest, newest first
	Pause    *pauseView           `json:"paused,omitempty"`
	// BlackoutUntil is until when the schedule starts nothing; zero: it does, or this process does
	// not know.
	BlackoutUntil time.Time `json:"blackout_until,omitzero"`
	Full          bool      `json:"full,omitempty"`          // all slots are held
	NoStore       bool      `json:"without_store,omitempty"` // this process runs it without the store
	// As this process knows it; nil: it does not run it.
	Local *timer.TimerStatus `json:"local,omitempty"`

	fleet *cluster.FleetTimer
}

type differingLimit struct {
	Limit int `json:"max_concurrency"` // -1: none
	Hosts int `json:"hosts"`
}

// A slotBox is a slot of a timer.
type slotBox struct {
	Slot  int            `json:"slot"`
	State string         `json:"state"`           // free, held, or stale: its holder is suspect or gone
	Lease *cluster.Lease `json:"lease,omitempty"` // nil: it is free
}

// CancelID is the ID of the run in the slot, for Control.CancelRun.
func (s slotBox) CancelID() string {
	if s.Lease == nil || s.Lease.Fence == 0 {
		return ""
	}
	return fmt.Sprintf("%d-%d", s.Slot, s.Lease.Fence)
}

// LimitText is how many slots there are.
func (t timerRow) LimitText() string {
	switch {
	case t.Limit == nil && t.Hosts == 0 && t.Local == nil:
		return "unknown"
	case t.Limit == nil:
		return "no limit"
	}
	return fmt.Sprint(*t.Limit)
}

// Skipped are the ticks that this host skipped, the most frequent reason first.
func (t timerRow) Skipped() (list []skipCount) {
	if t.Local == nil {
		return nil
	}
	for reason, n := range t.Local.Skipped {
		list = append(list, skipCount{string(reason), n})
	}
	slices.SortFunc(list, func(a, b skipCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Reason, b.Reason))
	})
	return list
}

type skipCount struct {
	Reason string
	Count  uint64
}

// rows returns all timers that a host has, that hold a slot, or that ran, by name. All viewers
// share them, for a second: a large fleet has hundreds of thousands of timers of a host.
func (t *timers) rows(ctx context.Context, s *cluster.Snapshot) []timerRow {
	local := t.readStatus(ctx)
	blackouts := t.readBlackouts(ctx, local)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.latest == nil || !t.readAt.Equal(s.ReadAt) || time.Since(t.madeAt) >= readcache.TTL {
		t.latest, t.local, t.readAt, t.madeAt = makeRows(s, local, blackouts), local, s.ReadAt, time.Now()
	}
	return t.latest
}

// readStatus asks the scheduler of this process; nil: there is none, or it has not answered.
func (t *timers) readStatus(ctx context.Context) *timer.Status {
	if t.config.Timers == nil {
		return nil
	}
	return t.status.Get(ctx, "", func(context.Context) (*timer.Status, error) {
		status := t.config.Timers.Status()
		return &status, nil
	}).Value
}

// blackoutTimeout is how long one blackout is waited for.
const blackoutTimeout = 100 * time.Millisecond

// readBlackouts asks until when timers are in a blackout. That is the user's code: one that hangs
// is not asked again until it has answered, and the others are.
func (t *timers) readBlackouts(ctx context.Context, local *timer.Status) map[string]time.Time {
	if local == nil {
		return nil
	}
	return t.blackouts.Get(ctx, "", func(ctx context.Context) (map[string]time.Time, error) {
		until := map[string]time.Time{}
		for _, l := range local.Timers {
			if l.Skipped[timer.ReasonBlackout] == 0 || ctx.Err() != nil || t.hangs(l.Name) {
				continue // the first: there is none, or it has not begun
			}
			answer := askBlackout(l)
			out := time.NewTimer(blackoutTimeout)
			select {
			case until[l.Name] = <-answer:
			case <-out.C:
				t.hanging[l.Name] = answer
			}
			out.Stop()
		}
		return until, nil
	}).Value
}

// askBlackout sends the time at which a timer's current blackout ends; zero: it is in none, or its
// blackouts cannot tell.
func askBlackout(t timer.TimerStatus) <-chan time.Time {
	answer := make(chan time.Time, 1)
	go func() {
		var until time.Time
		defer func() { answer <- until }() // also if a blackout ends this goroutine
		until = t.BlackoutUntil(time.Now())
	}()
	return answer
}

// hangs reports whether a blackout that was asked has not answered yet.
func (t *timers) hangs(name string) bool {
	answer, asked := t.hanging[name]
	if !asked {
		return false
	}
	select {
	case <-answer:
		delete(t.hanging, name)
		return false
	default:
		return true
	}
}

// scheduler returns what the scheduler of this process said last; nil: there is none.
func (t *timers) scheduler() *timer.Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.local
}

// maxPauses is for how many timers the store is asked whether they are paused.
const maxPauses = 2000

// pauses are the pauses of timers, as the store has them.
type pauses struct {
	states map[string]driver.ControlState // by timer
	at     time.Time                      // when they were read
	err    error                          // why those of timers that are not in known could not be read
}

// pausedRows returns rows with the pauses that the store has, which takes one more call. If the
// pause of a timer cannot be read there, its row has the one that this process knows, and err says
// why.
func (t *timers) pausedRows(ctx context.Context, s *cluster.Snapshot) (rows []timerRow, err error) {
	rows = t.rows(ctx, s)
	if t.config.Control == nil || len(rows) == 0 {
		return rows, nil
	}
	read := t.pausesOf(ctx, rows)
	if err = cmp.Or(read.Err, read.Value.err); errors.Is(err, control.ErrNoControl) { // it keeps none
		return rows, nil
	}
	rows = slices.Clone(rows)
	for i := range rows[:min(len(rows), maxPauses)] {
		if state, known := read.Value.states[rows[i].Name]; known {
			rows[i].Pause = pauseOf(state, read.Value.at) // newer than what this host knows
			rows[i].State = rows[i].state()
		}
	}
	return rows, err
}

// pausesOf reads what operators have set for the first of these timers.
func (t *timers) pausesOf(ctx context.Context, rows []timerRow) readcache.Result[pauses] {
	return t.pauses.Get(ctx, "", func(ctx context.Context) (pauses, error) {
		var names []string
		for _, r := range rows[:min(len(rows), maxPauses)] {
			names = append(names, r.Name)
		}
		return t.readPauses(ctx, names)
	})
}

func (t *timers) readPauses(ctx context.Context, names []string) (pauses, error) {
	found, unknown := pauses{states: map[string]driver.ControlState{}, at: time.Now()}, 0
	names = slices.DeleteFunc(names, func(name string) bool {
		return driver.CheckName(timerPrefix+name) != nil // a host that is not ours may say it: no store has it
	})
	states, err := t.config.Control.InspectAll(ctx, names...)
	if err != nil {
		return pauses{}, fmt.Errorf("the pauses of timers are not known: %w", err)
	}
	for _, o := range states {
		if o.Err == nil {
			found.states[o.Name] = o
			continue
		}
		unknown++
		if found.err == nil {
			found.err = fmt.Errorf("timer %q: %w", o.Name, o.Err)
		}
	}
	if unknown > 0 {
		found.err = fmt.Errorf("the pauses of %s are not known: %w", pagekit.Count(unknown, "timer"), found.err)
	}
	return found, nil
}

// pauseOf returns the pause among the overrides of a timer, which were read at an instant; nil:
// there is none. A limit of 0 is one without an end.
func pauseOf(o driver.ControlState, at time.Time) *pauseView {
	switch {
	case o.Pause != nil:
		return &pauseView{o.Pause.Cause, at.Add(o.Pause.For).UTC()}
	case o.Limit != nil && o.Limit.Slots == 0:
		return &pauseView{Cause: o.Limit.Cause}
	}
	return nil
}

// makeRows makes the rows of a snapshot, and of what this process knows. It calls nobody.
func makeRows(s *cluster.Snapshot, status *timer.Status, blackouts map[string]time.Time) []timerRow {
	local := map[string]*timer.TimerStatus{}
	all := s.Timers()
	if status != nil {
		known := map[string]bool{}
		for _, f := range all {
			known[f.Name] = true
		}
		for i := range status.Timers {
			l := &status.Timers[i]
			local[l.Name] = l
			if !known[l.Name] {
				all = append(all, &cluster.FleetTimer{Name: l.Name})
			}
		}
		slices.SortFunc(all, func(a, b *cluster.FleetTimer) int { return strings.Compare(a.Name, b.Name) })
	}
	list := make([]timerRow, 0, len(all))
	for _, f := range all {
		list = append(list, newTimerRow(f, local[f.Name], blackouts[f.Name]))
	}
	return list
}

func newTimerRow(f *cluster.FleetTimer, local *timer.TimerStatus, blackout time.Time) timerRow {
	r := timerRow{Name: f.Name, Hosts: f.Hosts, Held: len(f.Held), Local: local, BlackoutUntil: blackout}
	r.take(f)
	limit := f.MaxConcurrency()
	if local != nil && f.Hosts == 0 { // its row is not there yet
		limit = local.MaxConcurrency
	}
	if limit >= 0 {
		r.Limit = &limit
	}
	if f.HostsDiffer() {
		for _, limit := range slices.Sorted(maps.Keys(f.Limits)) {
			r.Differ = append(r.Differ, differingLimit{limit, f.Limits[limit]})
		}
	}
	r.setSlots(f.Held)
	r.Full = r.Limit != nil && *r.Limit > 0 && r.Held >= *r.Limit &&
		(*r.Limit > 1 || local != nil && local.Skipped[timer.ReasonFull] > 0) // else each run fills it
	if local != nil {
		r.NoStore = local.Fallback
	}
	if local != nil && local.Paused != nil {
		r.Pause = &pauseView{local.Paused.Cause, local.Paused.Until}
	}
	r.State = r.state()
	return r
}

// take takes the runs of a timer, and what follows from them.
func (t *timerRow) take(f *cluster.FleetTimer) {
	t.fleet, t.Runs, t.Last = f, f.Runs, f.Last()
	t.Failed, t.FailingSince = f.Failing()
	if f.History != nil {
		t.Outcomes = f.History.Outcomes
	}
}

// takeRuns takes the runs of a timer that were read by themselves. Their instants are not exactly
// those of the snapshot, so what it knows of all runs stays as it is.
func (t *timerRow) takeRuns(runs []cluster.HistoryRun) {
	if t.fleet.History != nil {
		t.Runs = runs
		return
	}
	all := *t.fleet
	all.Runs = runs
	t.take(&all)
}

// Failing says since when a timer that is failing does so, and how often; "": it is not.
func (t timerRow) Failing() string {
	if t.State != cluster.TimerFailing {
		return ""
	}
	return t.fleet.FailingText(time.Now())
}

// setSlots makes boxes: as many as there may be held, and those that are beyond.
func (t *timerRow) setSlots(held []*cluster.Lease) {
	bySlot, size := map[int]*cluster.Lease{}, 0
	if t.Limit != nil {
		size = *t.Limit
	}
	for _, l := range held {
		bySlot[l.Slot] = l
		size = max(size, l.Slot+1)
	}
	t.More = max(0, size-maxBoxes)
	t.Slots = make([]slotBox, 0, min(size, maxBoxes))
	for slot := range size {
		l := bySlot[slot]
		if slot >= maxBoxes && l == nil {
			continue
		}
		box := slotBox{Slot: slot, State: "free", Lease: l}
		if l != nil {
			box.State = "held"
			if l.HostState == cluster.HostSuspect || l.HostState == cluster.HostGone {
				box.State = "stale"
			}
			if slot >= maxBoxes {
				t.More--
			}
		}
		if t.Limit == nil && l == nil {
			continue
		}
		t.Slots = append(t.Slots, box)
	}
}

// late reports whether a timer has not succeeded for longer than its AlarmAfter.
func late(t *timer.TimerStatus) bool {
	return t != nil && t.AlarmAfter > 0 && t.TicksSinceSuccess >= t.AlarmAfter
}

func (t *timerRow) state() cluster.TimerState {
	state := t.fleet.State(t.Pause != nil, late(t.Local))
	if state == cluster.TimerNoHost && t.Local != nil { // its row is not there yet
		state = cluster.TimerIdle
	}
	switch {
	case state != cluster.TimerIdle || t.Local == nil:
		return state
	case !t.BlackoutUntil.IsZero():
		return stateBlackout
	case t.Last == nil && t.Local.LastRunAt.IsZero() && t.Local.LastSuccessAt.IsZero() &&
		t.Local.TicksSinceSuccess == 0:
		return stateNever
	}
	return state
}

// in reports whether a timer is among those of a tab.
func (t *timerRow) in(state cluster.TimerState) bool {
	switch state {
	case stateFull:
		return t.Full
	case stateNoStore:
		return t.NoStore
	}
	return t.State == state
}

// attention returns a timer's place in the list: the more urgent, the lower.
func (t *timerRow) attention() int {
	switch {
	case t.State == cluster.TimerFailing:
		return 0
	case t.NoStore:
		return 1
	case t.State == cluster.TimerPaused:
		return 2
	case t.State == cluster.TimerNoHost:
		return 4
	}
	return 3
}

// Tone is the class of the state: what is red needs somebody.
func (t timerRow) Tone() string {
	switch {
	case t.State == cluster.TimerFailing:
		return "bad"
	case t.State == cluster.TimerPaused, t.NoStore:
		return "warn"
	case t.State == cluster.TimerRunning:
		return "busy"
	}
	return ""
}

// texts are what a search looks at.
func (t *timerRow) texts() []string {
	texts := []string{t.Name}
	if t.Last != nil {
		texts = append(texts, t.Last.By)
		if !t.Last.Succeeded() {
			texts = append(texts, t.Last.Err, t.Last.Outcome)
		}
	}
	if t.Pause != nil {
		texts = append(texts, t.Pause.By, t.Pause.Note)
	}
	return texts
}

// RunningFrom is since when a slot is held for longest; zero: none is.
func (t timerRow) RunningFrom() (from time.Time) {
	for _, l := range t.fleet.Held {
		if from.IsZero() || l.AcquiredAt.Before(from) {
			from = l.AcquiredAt
		}
	}
	return from
}

func (t timerRow) lastEnd() time.Time {
	if t.Last == nil {
		return time.Time{}
	}
	return t.Last.EndedAt
}

// NextAt is when a run may start by the schedule; zero: it is not known, or never.
func (t timerRow) NextAt() time.Time {
	if t.Local == nil || t.Pause != nil {
		if t.Pause != nil {
			return t.Pause.Until
		}
		return time.Time{}
	}
	if t.Local.Next.Before(t.BlackoutUntil) {
		return t.BlackoutUntil
	}
	return t.Local.Next
}

// P95Took is how long 19 of 20 of the latest runs took at most; 0: no run is known.
func (t timerRow) P95Took() time.Duration { return percentile(t.Runs, 95) }

// percentile returns how long so many per cent of runs took at most.
func percentile(runs []cluster.HistoryRun, percent int) time.Duration {
	if len(runs) == 0 {
		return 0
	}
	all := make([]time.Duration, len(runs))
	for i := range runs {
		all[i] = runs[i].Took
	}
	slices.Sort(all)
	return all[(len(all)*percent+99)/100-1]
}

// maxSlotMarks is how many slots a row shows one by one.
const maxSlotMarks = 8

// FewSlots reports whether each slot is shown.
func (t timerRow) FewSlots() bool { return len(t.Slots) <= maxSlotMarks }

// SlotMarks are the slots of a row, or nil if there are too many.
func (t timerRow) SlotMarks() []mark {
	if !t.FewSlots() {
		return nil
	}
	var marks []mark
	for i, s := range t.Slots {
		marks = append(marks, mark{12 * i, s.State})
	}
	return marks
}

// MarksWidth is that of the picture of SlotMarks.
func (t timerRow) MarksWidth() int { return 12 * len(t.Slots) }

// HeldPart is how many per cent of the slots are held.
func (t timerRow) HeldPart() int {
	if t.Limit == nil || *t.Limit == 0 {
		return 0
	}
	return min(100, 100*t.Held/(*t.Limit))
}

// A mark is at a place in a picture.
type mark struct {
	X     int
	Class string
}

// Strip are the outcomes of the latest runs, the oldest first.
func (t timerRow) Strip() []mark {
	outcomes := t.Outcomes
	if !t.onlyOutcomes() {
		outcomes = nil
		for _, run := range slices.Backward(t.Runs[:min(len(t.Runs), maxMarks)]) {
			outcomes = append(outcomes, run.Outcome)
		}
	}
	marks := make([]mark, len(outcomes))
	for i, outcome := range outcomes {
		run := cluster.HistoryRun{Run: cluster.Run{Outcome: outcome}}
		marks[i] = mark{4 * i, "ran"}
		if !run.Succeeded() {
			marks[i].Class = "failed"
		}
	}
	return marks
}

// onlyOutcomes reports whether of the latest runs no more than the outcomes are known: the snapshot
// has the latest runs of the whole fleet, and a busy one has few of each timer.
func (t timerRow) onlyOutcomes() bool { return len(t.Runs) < len(t.Outcomes) && len(t.Runs) < maxMarks }

// StripText says the same in words.
func (t timerRow) StripText() string {
	if marks := t.Strip(); t.onlyOutcomes() {
		failed := 0
		for _, m := range marks {
			if m.Class == "failed" {
				failed++
			}
		}
		if len(marks) == 1 {
			return []string{"the only run that is known succeeded", "the only run that is known failed"}[failed]
		}
		return fmt.Sprintf("of the last %d runs %d failed", len(marks), failed)
	}
	if len(t.Runs) == 0 {
		return "no run is known"
	}
	n, shortest, longest, failed := min(len(t.Runs), maxMarks), t.Runs[0].Took, t.Runs[0].Took, 0
	for _, run := range t.Runs[:n] {
		shortest, longest = min(shortest, run.Took), max(longest, run.Took)
		if !run.Succeeded() {
			failed++
		}
	}
	if n == 1 {
		return "the only run that is known took " + pagekit.Took(longest)
	}
	return fmt.Sprintf("the last %d runs took %s to %s, %d of them failed", n, pagekit.Took(shortest),
		pagekit.Took(longest), failed)
}

// overrides are what the store keeps of a timer. For one of the first it is read with the others.
func (t *timers) overrides(ctx context.Context, rows []timerRow, name string) readcache.Result[driver.ControlState] {
	at := slices.IndexFunc(rows, func(r timerRow) bool { return r.Name == name })
	if at >= 0 && at < maxPauses {
		all := t.pausesOf(ctx, rows)
		state, known := all.Value.states[name]
		if !known {
			return readcache.Result[driver.ControlState]{Err: cmp.Or(all.Err, all.Value.err)}
		}
		return readcache.Result[driver.ControlState]{Value: state, At: all.Value.at, Err: all.Err}
	}
	return t.states.Get(ctx, name, func(ctx context.Context) (driver.ControlState, error) {
		return t.config.Control.Inspect(ctx, name)
	})
}

// forget has the next page show what was just changed.
func (t *timers) forget() {
	t.states.Forget()
	t.pauses.Forget()
	t.triggers.Forget()
}
