package torture

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Figures are the results of an examination of all logs.
type Figures struct {
	Runs             int   // valid runs, by fence
	Terms            int   // valid terms of leaders; below, runs include terms
	Degraded         int   // runs that were ever without the store
	DegradedMost     int   // most at once of one timer
	LeasesLost       int   // runs whose context ended
	Ticks            int64 // due ticks
	NReachedShare    float64
	OverLimit        int // times one more valid run started than the limit allows
	SameSlot         int // two valid runs in one slot
	FenceRegressions int // later runs of a slot without a higher fence
	StartAfterLost   int // runs that were valid after their context had ended because of a lost lease
	NotTold          int // runs whose context did not end within a second of losing the lease
	OverTick         int // starts of a tick beyond MaxPerTick
	OverRate         int // windows, each beginning with a start, that exceed the rate
	OverBound        int // times more degraded runs of a timer than hosts × MaxPerHost
	Unaccounted      int64
	Leaked           int
	Stuck            int // handlers that did not return
	Rated            int // starts of limits with a rate
	// RateUsed is the used share of the least used rate since Settled, or 0 if unknown.
	RateUsed    float64
	RateWindows int // number of windows in which that was measured
	Silent      []string

	Warnings       int // about a failing registry
	WarnedTwice    int // repeated warnings for one change
	LostByRegistry int // leases lost while only the registry had faults
	LostToSlowness int // the same, when the host or the store was slow

	// Declared counts what no lease can prevent on a store that fails over without its latest
	// writes.
	Declared Declared
	Examples []string
}

// Declared counts violations during a failover, by at most N runs on either side.
type Declared struct {
	OverLimit        int `json:"over_limit"`
	SameSlot         int `json:"two_in_one_slot"`
	FenceRegressions int `json:"fence_regressions"`
	OverRate         int `json:"over_rate"`
	Most             int `json:"most_at_once_over_limit"`
}

// Violations is the sum of the findings that must be zero.
func (f Figures) Violations() int {
	return f.OverLimit + f.SameSlot + f.FenceRegressions + f.StartAfterLost + f.NotTold + f.OverTick + f.OverRate +
		f.OverBound +
		int(f.Unaccounted) + f.Leaked + f.Stuck + len(f.Silent) + f.WarnedTwice + f.LostByRegistry
}

// Rules are the parameters of an examination.
type Rules struct {
	TTL time.Duration
	// Settled is the instant at which all faults had been over for long enough that every timer
	// must run again, or 0.
	Settled int64
	// CalmUntil is the end of the time, from Settled on, in which only the registry had faults.
	CalmUntil int64
	// Bound is the time awake within which a tick must be accounted for. Default: a second.
	Bound time.Duration
}

const (
	// sampling is how often to check whether all of a timer's slots are taken.
	sampling = 20 * int64(time.Millisecond)
	// maxStatusGap is how much of the time between two status lines counts as awake. They come
	// every 100 ms, so after a longer gap the process was paused.
	maxStatusGap = 300 * int64(time.Millisecond)
)

// An examiner has the parsed and sorted lines.
type examiner struct {
	Figures
	rules   Rules
	lines   []Line
	lives   []life
	windows []Line // faults during which leases may be lost
	wipes   []Line
	stepped bool // the store's clock was set
	from    int64
	to      int64
	roles   map[string]bool // names of leaders' roles
	sharing map[string]bool // timers with a shared limit
	shares  int             // the size of the shared limit
	rated   map[string]rate // by limit
}

// A life is the time in which one process may have been alive, and its declarations.
type life struct {
	host       string
	born, dead int64
	limits     map[string]TimerLine
}

// Examine checks the lines of all logs.
func Examine(lines []Line, rules Rules) Figures {
	if rules.Bound == 0 {
		rules.Bound = time.Second
	}
	e := &examiner{rules: rules, lines: lines, sharing: map[string]bool{}, roles: map[string]bool{},
		rated: map[string]rate{}}
	slices.SortStableFunc(e.lines, func(a, b Line) int { return cmp.Compare(a.At, b.At) })
	e.readLives()
	e.runs()
	e.degraded()
	e.rates()
	e.registry()
	byHost := map[string][]Line{}
	for _, l := range e.lines {
		switch l.Kind {
		case Begin, Status, Jump, Drain, End:
			byHost[l.Host] = append(byHost[l.Host], l)
		}
	}
	for _, host := range slices.Sorted(maps.Keys(byHost)) {
		e.accounts(host, byHost[host])
	}
	return e.Figures
}

func (e *examiner) example(format string, args ...any) {
	if len(e.Examples) < 20 {
		e.Examples = append(e.Examples, fmt.Sprintf(format, args...))
	}
}

func (e *examiner) readLives() {
	index := map[string]int{}
	for _, l := range e.lines {
		switch l.Kind {
		case Born:
			of := map[string]TimerLine{}
			for _, t := range l.Timers {
				of[t.Name] = t
				if t.Shared > 0 {
					e.sharing[t.Name] = true
					e.shares = max(e.shares, t.Shared)
				}
				if t.Rated != "" {
					e.rated[t.Rated] = rate{t.Rate, t.Per}
				}
			}
			for _, r := range l.Roles {
				of[r.Name] = r
				e.roles[r.Name] = true
			}
			index[l.Target] = len(e.lives)
			e.lives = append(e.lives, life{l.Target, l.At, 1<<63 - 1, of})
		case Dead:
			if i, ok := index[l.Target]; ok {
				e.lives[i].dead = l.At
			}
		case Fault:
			switch l.Fault {
			case Failover:
				e.windows = append(e.windows, l)
				e.wipes = append(e.wipes, l)
			case Wiped, Replaced:
				e.wipes = append(e.wipes, l)
			case Stepped:
				if e.stepped = true; l.By > 0 {
					e.windows = append(e.windows, l)
				}
				e.wipes = append(e.wipes, l)
			}
		case Status, End:
			if e.from == 0 {
				e.from = l.At
			}
			e.to = l.At
		}
	}
}

// limit returns the largest value declared by a process that may have been alive at that instant,
// because hosts with different limits together keep to the largest.
func (e *examiner) limit(timer string, at int64, of func(TimerLine) int) (most int) {
	if strings.HasPrefix(timer, "the limit of ") {
		return e.shares
	}
	for _, l := range e.lives {
		if t, ok := l.limits[timer]; ok && l.born <= at && at <= l.dead {
			most = max(most, of(t))
		}
	}
	return most
}

func limitOf(t TimerLine) int { return t.Limit }

// failingOver reports whether leases may have been lost at an instant: from a failover until two
// TTLs after its end.
func (e *examiner) failingOver(at int64) bool {
	return slices.ContainsFunc(e.windows, func(w Line) bool {
		return w.First <= at && at <= w.Last+2*int64(e.rules.TTL)
	})
}

// A stint is a stretch of one run, merged from its pieces.
type stint struct {
	Line
	first, last int64
}

// stints merges the logged pieces of runs.
func stints(lines []Line, kind string) (byTimer map[string][]stint) {
	type id struct {
		host string
		run  int64
	}
	byTimer = map[string][]stint{}
	open := map[id]int{}
	for _, l := range lines {
		if l.Kind != kind {
			continue
		}
		all := byTimer[l.Timer]
		if i, ok := open[id{l.Host, l.Run}]; ok && all[i].last == l.First {
			all[i].last = l.Last
			all[i].Lost = all[i].Lost || l.Lost
			continue
		}
		open[id{l.Host, l.Run}] = len(all)
		byTimer[l.Timer] = append(all, stint{l, l.First, l.Last})
	}
	return byTimer
}

// remembers is how long Redis at least keeps the fences of a name without claimed ticks: three
// quarters of redislock's shortRetention.
const remembers = 45 * time.Minute

// forgottenBetween reports whether the store may have lost fences in between, because it lost its
// data, or its clock jumped so far ahead that they expired.
func (e *examiner) forgottenBetween(from, to int64) bool {
	return slices.ContainsFunc(e.wipes, func(w Line) bool {
		return (w.Fault == Wiped || w.Fault == Stepped && w.By > int64(remembers)) && w.First <= to && from <= w.Last
	})
}

func (e *examiner) runs() {
	samples, full := 0, 0
	byTimer := stints(e.lines, Seen)
	for _, l := range e.lines {
		switch l.Kind {
		case LeaseEnd:
			e.LeasesLost++
		case Untold:
			e.NotTold++
			e.example("%s slot %d fence %d on %s: lost, and its context goes on", l.Timer, l.Slot, l.Fence, l.Host)
		}
	}
	for _, l := range e.lives {
		for name := range l.limits {
			if _, ok := byTimer[name]; !ok {
				byTimer[name] = nil
			}
		}
	}
	for _, timer := range slices.Sorted(maps.Keys(byTimer)) {
		all := byTimer[timer]
		// A rate keeps slots free.
		if s, f := e.sweep(timer, all); !e.roles[timer] && !e.isRated(timer) {
			samples, full = samples+s, full+f
		}
		bySlot := map[int][]stint{}
		settled := false
		for _, s := range all {
			bySlot[s.Slot] = append(bySlot[s.Slot], s)
			settled = settled || s.last >= e.rules.Settled
			if s.Lost {
				e.StartAfterLost++
				e.example("%s slot %d fence %d on %s: valid after its lease was lost", timer, s.Slot, s.Fence, s.Host)
			}
		}
		if e.rules.Settled != 0 && !settled {
			e.Silent = append(e.Silent, timer)
			e.example("%s: no valid run after all faults had ended", timer)
		}
		for _, slot := range slices.Sorted(maps.Keys(bySlot)) {
			e.order(timer, slot, bySlot[slot])
		}
		e.starts(timer, all)
	}
	e.shared(byTimer)
	e.NReachedShare = float64(full) / float64(max(samples, 1))
}

// shared checks the limit that several timers share.
func (e *examiner) shared(byTimer map[string][]stint) {
	var all []stint
	for timer := range e.sharing {
		all = append(all, byTimer[timer]...)
	}
	e.sweep("the limit of "+strings.Join(slices.Sorted(maps.Keys(e.sharing)), ", "), all)
}

// sweep goes through time, counts a timer's valid runs, and samples whether they reach the limit.
func (e *examiner) sweep(timer string, all []stint) (samples, full int) {
	type edge struct {
		at    int64
		delta int
		stint
	}
	edges := make([]edge, 0, 2*len(all))
	for _, s := range all {
		edges = append(edges, edge{s.first, +1, s}, edge{s.last, -1, s})
	}
	// Ends before starts: two stretches that touch at one instant do not overlap.
	slices.SortFunc(edges, func(a, b edge) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.delta, b.delta))
	})
	open, next := 0, e.from
	sample := func(until int64) {
		for ; next < until; next += sampling {
			if n := e.limit(timer, next, limitOf); n > 0 {
				samples++
				if open >= n {
					full++
				}
			}
		}
	}
	for _, x := range edges {
		sample(min(x.at, e.to))
		open += x.delta
		if x.delta < 0 {
			continue
		}
		n := e.limit(timer, x.at, limitOf)
		switch {
		case open <= n:
		case e.failingOver(x.at) && open <= 2*n:
			e.Declared.OverLimit++
			e.Declared.Most = max(e.Declared.Most, open-n)
		default:
			e.OverLimit++
			e.example("%s: %d valid runs, limit %d: slot %d, fence %d on %s at %d", timer, open, n, x.Slot, x.Fence,
				x.Host, x.at)
		}
	}
	sample(e.to)
	return samples, full
}

// order checks that the stretches of one slot do not overlap and have growing fences.
func (e *examiner) order(timer string, number int, slot []stint) {
	slices.SortStableFunc(slot, func(a, b stint) int { return cmp.Compare(a.first, b.first) })
	fences := map[int64]bool{}
	for i, s := range slot {
		fences[s.Fence] = true
		if i == 0 || s.Fence == slot[i-1].Fence && s.Host == slot[i-1].Host {
			continue // the same run, after a gap
		}
		before := slot[i-1]
		declared := e.failingOver(s.first)
		if s.Fence <= before.Fence {
			if declared || e.stepped && e.forgottenBetween(before.first, s.first) {
				e.Declared.FenceRegressions++
			} else {
				e.FenceRegressions++
				e.example("%s slot %d: fence %d on %s after %d on %s", timer, number, s.Fence, s.Host, before.Fence,
					before.Host)
			}
		}
		if s.first < before.last {
			if declared {
				e.Declared.SameSlot++
			} else {
				e.SameSlot++
				e.example("%s slot %d: fences %d and %d at once for %v, on %s and %s", timer, number, before.Fence,
					s.Fence,
					time.Duration(before.last-s.first), before.Host, s.Host)
			}
		}
	}
	if e.roles[timer] {
		e.Terms += len(fences)
	} else {
		e.Runs += len(fences)
	}
}

// starts counts the starts of each tick. A store that lost data may start a tick again.
func (e *examiner) starts(timer string, all []stint) {
	type run struct {
		slot  int
		fence int64
	}
	type tick struct {
		runs        map[run]bool
		first, last int64
	}
	ticks := map[int64]*tick{}
	for _, s := range all {
		if s.Tick == 0 {
			continue
		}
		t := ticks[s.Tick]
		if t == nil {
			t = &tick{runs: map[run]bool{}, first: s.first}
			ticks[s.Tick] = t
		}
		t.runs[run{s.Slot, s.Fence}] = true
		t.first, t.last = min(t.first, s.first), max(t.last, s.first)
	}
	for at, t := range ticks {
		// A host with a larger number may start more of a tick that others considered done.
		most := max(e.limit(timer, t.first, perTickOf), e.limit(timer, t.last, perTickOf))
		if extra := len(t.runs) - most; extra > 0 && !e.forgotten(t.first, t.last) {
			e.OverTick += extra
			e.example("%s: tick %d started %d times, allowed %d", timer, at, len(t.runs), most)
		}
	}
}

func perTickOf(t TimerLine) int { return t.PerTick }

func (e *examiner) forgotten(from, to int64) bool {
	slack := int64(e.rules.TTL)
	return slices.ContainsFunc(e.wipes, func(w Line) bool { return w.First-slack <= to && from <= w.Last+slack })
}

// degraded checks the runs without the store against their bound.
func (e *examiner) degraded() {
	for timer, all := range stints(e.lines, Degraded) {
		type edge struct {
			at    int64
			delta int
		}
		var edges []edge
		runs := map[string]bool{}
		for _, s := range all {
			edges = append(edges, edge{s.first, +1}, edge{s.last, -1})
			runs[fmt.Sprint(s.Host, s.Run)] = true
		}
		e.Degraded += len(runs)
		slices.SortFunc(edges, func(a, b edge) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.delta, b.delta))
		})
		open := 0
		for _, x := range edges {
			open += x.delta
			e.DegradedMost = max(e.DegradedMost, open)
			bound := 0
			for _, l := range e.lives {
				if t, ok := l.limits[timer]; ok && l.born <= x.at && x.at <= l.dead {
					bound += t.PerHost
				}
			}
			if x.delta > 0 && open > bound {
				e.OverBound++
				e.example("%s: %d degraded runs, hosts × MaxPerHost is %d", timer, open, bound)
			}
		}
	}
}
