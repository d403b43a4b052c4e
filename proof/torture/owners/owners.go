// Package owners checks the actions of many workers on durable runs against the promise I14. It
// uses only what handlers, clients and a watch of the database have logged, and the final database.
// It uses nothing from the library.
//
// It cannot see two owners for a time shorter than between two checks, or what a process did in the
// 50 ms before it was killed, except the call of a handler and its return.
package owners

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tickslot/tickslot/proof/torture"
)

// Rules are the promises.
type Rules struct {
	Limits    map[string]int // of handlers in the fleet; other handlers have no limit
	MaxActive int            // of all handlers in the fleet
	MaxRuns   int            // of one worker
	Lease     time.Duration
	// Within is how soon after the end of its lease a healthy worker must reclaim a run. Recovers
	// is how long a worker needs to recover after a fault.
	Within   time.Duration
	Recovers time.Duration
	// TicksWithin is how soon after it is due a tick must be accounted for.
	TicksWithin time.Duration
}

// Figures are the results of an examination. From Lost on, all must be zero.
type Figures struct {
	Runs          int   `json:"runs"`     // ended runs
	Attempts      int   `json:"attempts"` // calls of handlers
	Ticks         int64 `json:"ticks"`    // accounted for
	Reclaimed     int   `json:"reclaimed"`
	Timed         int   `json:"reclaims_timed"` // while a worker was well enough to be blamed
	SlowestMillis int64 `json:"slowest_reclaim_ms"`
	// Excused is the result of torture.Excused. If it is large, SlowReclaims means nothing.
	Excused float64 `json:"excused_by_looks"`
	// Forgotten counts committed runs that were lost with a server because its standby lacked them.
	Forgotten int `json:"lost_with_a_server"`

	// Lost counts committed runs that are missing, did not end, or ended without a handler's
	// result; attempts without a record in the database; and ticks that are not accounted for.
	Lost           int64 `json:"lost"`
	Ghosts         int   `json:"ghosts"` // runs whose transaction did not commit, or only in part
	DuplicateTicks int   `json:"duplicate_ticks"`
	DoubleOwners   int   `json:"double_owners"` // pairs of attempts of a run that were valid at once
	OverHandler    int   `json:"over_handler"`
	OverWorker     int   `json:"over_worker"`
	OverActive     int   `json:"over_active"`
	Zombies        int   `json:"zombie_finishes_counted"`
	SlowReclaims   int   `json:"slow_reclaims"`
	NotTold        int   `json:"not_told"` // lost leases whose context lived on for a second

	Examples []string `json:"examples,omitempty"`
}

// Violations is the sum of the findings that must be zero.
func (f Figures) Violations() int64 {
	return f.Lost + int64(f.Ghosts+f.DuplicateTicks+f.DoubleOwners+f.OverHandler+f.OverWorker+f.OverActive+f.Zombies+
		f.SlowReclaims+f.NotTold)
}

// A key identifies an attempt.
type key struct {
	id      int64
	attempt int
}

// A call identifies an attempt of one of the runs that have had its number.
type call struct {
	key
	run string
}

type span = torture.Span

// An attempt is what handlers have logged about an attempt.
type attempt struct {
	call
	handler  string
	starts   int  // except those that may be lost with a server
	lost     bool // a start may be lost with a server
	valid    []span
	outcomes []string
}

// An examiner has the parsed lines.
type examiner struct {
	Figures
	rules    Rules
	lines    []torture.Line
	gone     []span // commits in that time may be lost
	attempts map[call]*attempt
	rows     map[int64]torture.Work
	tried    map[key]torture.Work
}

// Examine checks the lines of all logs.
func Examine(lines []torture.Line, rules Rules) Figures {
	e := &examiner{rules: rules, lines: slices.Clone(lines), attempts: map[call]*attempt{},
		rows: map[int64]torture.Work{}, tried: map[key]torture.Work{}}
	slices.SortStableFunc(e.lines, func(a, b torture.Line) int { return cmp.Compare(a.At, b.At) })
	e.promotions()
	e.read()
	e.triggered()
	e.ended()
	e.counted()
	e.ticks()
	e.owners()
	e.limits()
	e.places()
	e.reclaims()
	return e.Figures
}

func (e *examiner) example(format string, args ...any) {
	if len(e.Examples) < 20 {
		e.Examples = append(e.Examples, fmt.Sprintf(format, args...))
	}
}

func (e *examiner) lost(format string, args ...any) {
	e.Lost++
	e.example("lost: "+format, args...)
}

func (e *examiner) read() {
	began := map[string]int64{} // by host and attempt
	for _, l := range e.lines {
		if l.Work == nil {
			continue
		}
		k := key{l.Work.ID, l.Work.Attempt}
		c := call{k, identity(*l.Work)}
		a := e.attempts[c]
		if a == nil {
			a = &attempt{call: c, handler: l.Work.Handler}
		}
		here := fmt.Sprint(l.Host, c)
		switch l.Kind {
		case torture.Started:
			began[here] = l.At
			e.Attempts++
			if e.mayBeLost(l.At) {
				a.lost = true
			} else {
				a.starts++
			}
		case torture.Seen:
			s := span{First: l.First, Last: max(l.Last, l.First+1)}
			a.valid = append(a.valid, e.known(began[here], s)...)
		case torture.Returned:
			a.outcomes = append(a.outcomes, l.Work.Outcome)
		case torture.Untold:
			e.NotTold++
			e.example("attempt %d of run %d on %s: lost, and its context goes on", k.attempt, k.id, l.Host)
			continue
		case torture.Row:
			e.rows[k.id] = *l.Work
			continue
		case torture.Tried:
			e.tried[k] = *l.Work
			if l.Work.Outcome == "lease_lost" {
				e.Reclaimed++
			}
			continue
		default:
			continue
		}
		e.attempts[c] = a
	}
}

// triggered checks that the runs triggered by clients exist.
func (e *examiner) triggered() {
	there := map[string]bool{}
	for _, r := range e.rows {
		if r.Key != "" {
			there[r.Key] = true
		}
	}
	for _, l := range e.lines {
		if l.Kind != torture.Triggered {
			continue
		}
		found := 0
		for i := range l.Work.Runs {
			if there[fmt.Sprintf("%s/%d", l.Work.Key, i)] {
				found++
			}
		}
		missing := l.Work.Runs - found
		switch {
		case found == 0 && l.Work.Outcome == torture.Committed && e.during(l.First, l.At):
			e.Forgotten += missing
		case l.Work.Outcome == torture.Committed && missing > 0:
			e.Lost += int64(missing)
			e.example("lost: %d of the %d runs %s are not there, and were committed", missing, l.Work.Runs, l.Work.Key)
		case l.Work.Outcome == torture.RolledBack && found > 0, found > 0 && missing > 0:
			e.Ghosts += found
			e.example("%d of the %d runs %s are there, whose transaction was %s", found, l.Work.Runs, l.Work.Key,
				l.Work.Outcome)
		}
	}
}

// ended checks that every run has ended, and with its handler's result.
func (e *examiner) ended() {
	said := map[string]string{"succeeded": "ok", "dead": "dead"}
	for _, id := range slices.Sorted(maps.Keys(e.rows)) {
		r := e.rows[id]
		want, final := said[r.State]
		switch {
		case !final:
			e.lost("run %d of %s is %s, after %d attempts", id, r.Handler, r.State, r.Attempt)
			continue
		case e.said(call{key{id, r.Attempt}, identity(r)}, want):
		case e.saidBefore(call{key{id, r.Attempt}, identity(r)}, want):
			e.zombie("run %d of %s is %s, as a handler has said before attempt %d", id, r.Handler, r.State, r.Attempt)
		default:
			e.lost("run %d of %s is %s, which the handler did not say in attempt %d", id, r.Handler, r.State, r.Attempt)
		}
		e.Runs++
		for n := 1; n <= r.Attempt; n++ {
			if _, ok := e.tried[key{id, n}]; !ok {
				e.lost("of attempt %d of run %d the database has nothing", n, id)
			}
		}
	}
	for c, a := range e.attempts {
		if r, ok := e.rows[c.id]; (!ok || identity(r) != c.run) && !a.lost {
			e.lost("run %d (%s) is gone, of which there was an attempt %d", c.id, c.run, c.attempt)
		}
	}
}

// said reports whether the handler has returned from an attempt with an outcome.
func (e *examiner) said(c call, outcome string) bool {
	a := e.attempts[c]
	return a != nil && slices.Contains(a.outcomes, outcome)
}

// saidBefore reports the same for an earlier attempt.
func (e *examiner) saidBefore(c call, outcome string) bool {
	for c.attempt--; c.attempt > 0; c.attempt-- {
		if e.said(c, outcome) {
			return true
		}
	}
	return false
}

func (e *examiner) zombie(format string, args ...any) {
	e.Zombies++
	e.example("a zombie's result has counted: "+format, args...)
}

// counted checks that only the owner's result counts. A wrong result belongs to another attempt, or
// the run continued after it.
func (e *examiner) counted() {
	for _, l := range e.lines {
		if l.Kind != torture.Counted || e.during(l.At, l.At) {
			continue
		}
		if t := e.tried[key{l.Work.ID, l.Work.Attempt}]; t.Outcome != l.Work.Outcome || t.Worker != l.Host {
			e.zombie("attempt %d of run %d: %s was told that %q counts, and the database has %q of %s", l.Work.Attempt,
				l.Work.ID, l.Host, l.Work.Outcome, t.Outcome, t.Worker)
		}
	}
	for k, t := range e.tried {
		r, ok := e.rows[k.id]
		last := k.attempt == r.Attempt
		switch {
		case !ok || k.attempt > r.Attempt:
			e.zombie("run %d has an attempt %d", k.id, k.attempt)
		case !last && t.Outcome == "ok":
			e.zombie("run %d has succeeded with attempt %d, and went on to %d", k.id, k.attempt, r.Attempt)
		case last && (t.Outcome == "ok") != (r.State == "succeeded"):
			e.zombie("run %d is %s, and its last attempt %q", k.id, r.State, t.Outcome)
		}
	}
}

// ticks checks that each tick has one run, or is counted as a tick without one.
func (e *examiner) ticks() {
	type tick struct {
		schedule string
		at       int64
	}
	runs, perSchedule := map[tick]map[int64]bool{}, map[string]int64{}
	note := func(w torture.Work) {
		t := tick{w.Schedule, w.Tick}
		if runs[t] == nil {
			runs[t] = map[int64]bool{}
		}
		runs[t][w.ID] = true
	}
	for _, r := range e.rows {
		if r.Schedule != "" {
			note(r)
			perSchedule[r.Schedule]++
		}
	}
	first := map[string]torture.Work{}
	for _, l := range e.lines {
		switch {
		case l.Kind == torture.Started && l.Work.Schedule != "" && !e.mayBeLost(l.At):
			note(*l.Work)
		case l.Kind == torture.Ticks:
			if from, ok := first[l.Work.Schedule]; ok {
				e.schedule(from, *l.Work, perSchedule[l.Work.Schedule])
			} else {
				first[l.Work.Schedule] = *l.Work
			}
		}
	}
	for t, ids := range runs {
		if len(ids) > 1 {
			e.DuplicateTicks += len(ids) - 1
			e.example("the tick %d of %s has the runs %v", t.at, t.schedule, slices.Sorted(maps.Keys(ids)))
		}
		if from := first[t.schedule]; from.Period > 0 && (t.at-from.Next)%from.Period != 0 {
			e.DuplicateTicks++
			e.example("%s has no tick at %d", t.schedule, t.at)
		}
	}
}

// schedule compares the database's counts with the ticks that came due.
func (e *examiner) schedule(from, to torture.Work, runs int64) {
	e.Ticks += to.Queued + to.Passed
	came, counted := (to.Next-from.Next)/to.Period, to.Queued+to.Passed-from.Queued-from.Passed
	if came != counted {
		e.Lost += max(came, counted) - min(came, counted)
		e.example("lost: %d ticks of %s were due, and %d are accounted for", came, to.Schedule, counted)
	}
	if runs != to.Queued {
		e.Lost += max(runs, to.Queued) - min(runs, to.Queued)
		e.example("lost: %d ticks of %s were queued, and %d have a run", to.Queued, to.Schedule, runs)
	}
	if late := to.Now - to.Next - e.rules.TicksWithin.Microseconds(); late > 0 {
		e.Lost += 1 + late/to.Period
		e.example("lost: the tick of %s that is due since %v", to.Schedule, time.Duration(to.Now-to.Next)*1000)
	}
}

// owners checks that no run has two owners.
func (e *examiner) owners() {
	type stretch struct {
		span
		attempt int
	}
	byRun := map[int64][]stretch{}
	for c, a := range e.attempts {
		if a.starts > 1 {
			e.DoubleOwners += a.starts - 1
			e.example("attempt %d of run %d began %d times", c.attempt, c.id, a.starts)
		}
		for _, s := range a.valid {
			byRun[c.id] = append(byRun[c.id], stretch{s, c.attempt})
		}
	}
	for id, all := range byRun {
		slices.SortFunc(all, func(a, b stretch) int {
			return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.attempt, b.attempt))
		})
		latest, blamed := all[0], map[int]bool{} // report an attempt only once
		for _, s := range all[1:] {
			switch {
			case blamed[s.attempt]:
			case s.attempt < latest.attempt:
				blamed[s.attempt] = true
				e.DoubleOwners++
				e.example("run %d: attempt %d was valid after attempt %d", id, s.attempt, latest.attempt)
			case s.attempt > latest.attempt && s.First < latest.Last:
				blamed[s.attempt], blamed[latest.attempt] = true, true
				e.DoubleOwners++
				e.example("run %d: attempts %d and %d were valid at once, for %v", id, latest.attempt, s.attempt,
					time.Duration(min(s.Last, latest.Last)-s.First))
			}
			if s.attempt > latest.attempt || s.attempt == latest.attempt && s.Last > latest.Last {
				latest = s
			}
		}
	}
}

// limits checks the number of concurrently valid runs, and of concurrently running ones according
// to the database.
func (e *examiner) limits() {
	byHandler := map[string][]span{}
	var all []span
	for _, a := range e.attempts {
		byHandler[a.handler] = append(byHandler[a.handler], a.valid...)
		all = append(all, a.valid...)
	}
	for handler, limit := range e.rules.Limits {
		e.OverHandler += e.over(byHandler[handler], limit, handler)
	}
	e.OverActive += e.over(all, e.rules.MaxActive, "all handlers")
	for _, l := range e.lines {
		if l.Kind != torture.Looked {
			continue
		}
		active := 0
		for handler, n := range l.Running {
			active += n
			if limit, ok := e.rules.Limits[handler]; ok && n > limit {
				e.OverHandler++
				e.example("%s: the database has %d that are running, the limit is %d", handler, n, limit)
			}
		}
		if active > e.rules.MaxActive {
			e.OverActive++
			e.example("the database has %d runs that are running, the limit is %d", active, e.rules.MaxActive)
		}
	}
}

// places checks the number of concurrent handlers on each worker, whether their runs were valid or
// not.
func (e *examiner) places() {
	type open struct {
		host string
		key
	}
	gone, began, at := map[string]int64{}, map[open]int64{}, map[string][]span{}
	for _, l := range e.lines {
		switch l.Kind {
		case torture.Dead:
			gone[l.Target] = l.At
		case torture.Started:
			began[open{l.Host, key{l.Work.ID, l.Work.Attempt}}] = l.At
		case torture.Returned:
			o := open{l.Host, key{l.Work.ID, l.Work.Attempt}}
			if from, ok := began[o]; ok {
				at[l.Host] = append(at[l.Host], span{First: from, Last: l.At})
				delete(began, o)
			}
		}
	}
	for o, from := range began { // it never returned
		until, ok := gone[o.host]
		if !ok {
			until = 1<<63 - 1
		}
		at[o.host] = append(at[o.host], span{First: from, Last: until})
	}
	for _, host := range slices.Sorted(maps.Keys(at)) {
		e.OverWorker += e.over(at[host], e.rules.MaxRuns, host)
	}
}

// over returns how often one more started than a limit allows.
func (e *examiner) over(all []span, limit int, what string) (n int) {
	type edge struct {
		at    int64
		delta int
	}
	edges := make([]edge, 0, 2*len(all))
	for _, s := range all {
		edges = append(edges, edge{s.First, +1}, edge{s.Last, -1})
	}
	// Ends before starts: two stretches that touch at one instant do not overlap.
	slices.SortFunc(edges, func(a, b edge) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.delta, b.delta))
	})
	open := 0
	for _, x := range edges {
		if open += x.delta; x.delta > 0 && open > limit {
			n++
			e.example("%s: %d at once at %d, the limit is %d", what, open, x.at, limit)
		}
	}
	return n
}
