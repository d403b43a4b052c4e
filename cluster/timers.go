package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// FailingRuns is the number of consecutive failures after which a timer counts as failing.
const FailingRuns = 3

// A TimerState is the state of a timer in the fleet.
type TimerState string

// The first state that applies is used. A paused timer is not shown as failing, because an operator
// is already handling it.
const (
	TimerPaused  TimerState = "paused"  // an operator has paused it; a limit of 0 is a pause without an end
	TimerFailing TimerState = "failing" // the last FailingRuns runs failed, or it has not succeeded for too long
	TimerRunning TimerState = "running" // a slot is held
	TimerNoHost  TimerState = "no host" // no live host has it registered
	TimerIdle    TimerState = "idle"
)

// A FleetTimer is a timer in a Snapshot. It does not include operators' overrides, which the store
// of locks keeps.
type FleetTimer struct {
	Name  string
	Hosts int // live hosts that have it registered
	// Limits counts these hosts by their MaxConcurrency (-1 for no limit). During a rolling
	// deployment there may be several.
	Limits map[int]int
	Held   []*Lease     // its held slots
	Runs   []HistoryRun // newest first; Registry.Runs returns more
	// History summarizes all its runs, or is nil if none was counted.
	History *TimerHistory

	needsStore bool // a live host does
	alone      int  // how many runs these hosts start at once without the store; -1: any number
}

// newer reports whether a run is not included in History. Hosts of an older version write runs
// without counting them. If a run is written again to be counted, it may seem to have ended
// slightly earlier than the first time.
func (f *FleetTimer) newer(r *HistoryRun) bool {
	return f.History == nil || r.EndedAt.After(f.History.Last.EndedAt.Add(time.Second))
}

// Failing returns the number of consecutive failures among the newest runs, and when the first of
// them ended, or the zero time if there are none. Without a History, only Runs are considered.
func (f *FleetTimer) Failing() (failed int, since time.Time) {
	for i := range f.Runs {
		r := &f.Runs[i]
		if !f.newer(r) {
			break
		}
		if r.Succeeded() {
			return failed, since
		}
		failed, since = failed+1, r.EndedAt
	}
	if h := f.History; h != nil && h.Failures > 0 {
		return failed + h.Failures, h.FailingSince
	}
	return failed, since
}

// Failed returns the number of consecutive failures among the newest runs: see Failing.
func (f *FleetTimer) Failed() int {
	failed, _ := f.Failing()
	return failed
}

// FailingText describes the result of Failing in words. It returns "" if the last run succeeded or
// none is known.
func (f *FleetTimer) FailingText(now time.Time) string {
	failed, since := f.Failing()
	if failed == 0 {
		return ""
	}
	since, now = since.UTC(), now.UTC()
	format := "15:04 UTC"
	if since.YearDay() != now.YearDay() || since.Year() != now.Year() {
		format = "2006-01-02 15:04 UTC"
	}
	return fmt.Sprintf("failing since %s, %d in a row", since.Format(format), failed)
}

// MaxConcurrency returns the most frequent limit among the hosts, and the lowest of them in a tie.
// It returns -1 if that is no limit, or if no host has the timer.
func (f *FleetTimer) MaxConcurrency() int {
	limit, most := -1, 0
	for _, l := range slices.Sorted(maps.Keys(f.Limits)) {
		if n := f.Limits[l]; n > most {
			limit, most = l, n
		}
	}
	return limit
}

// HostsDiffer reports whether hosts have different limits.
func (f *FleetTimer) HostsDiffer() bool { return len(f.Limits) > 1 }

// Last returns the newest run, or nil if none is known.
func (f *FleetTimer) Last() *HistoryRun {
	switch {
	case len(f.Runs) > 0 && (f.History == nil || !f.Runs[0].EndedAt.Before(f.History.Last.EndedAt)):
		return &f.Runs[0]
	case f.History != nil:
		return &f.History.Last
	}
	return nil
}

// State returns the state of a timer. paused says that an operator has paused it, and late that a
// host running it reports no success for too long.
func (f *FleetTimer) State(paused, late bool) TimerState {
	switch {
	case paused:
		return TimerPaused
	case late || f.Failed() >= FailingRuns:
		return TimerFailing
	case len(f.Held) > 0:
		return TimerRunning
	case f.Hosts == 0:
		return TimerNoHost
	default:
		return TimerIdle
	}
}

// ranLately is how long a timer remains listed after its last run when no host has it registered.
const ranLately = 24 * time.Hour

// Timers returns, by name, all timers that a live host has registered, that hold a slot, or that
// ran within the last day.
func (s *Snapshot) Timers() []*FleetTimer {
	all := map[string]*FleetTimer{}
	of := func(name string) *FleetTimer {
		t := all[name]
		if t == nil {
			t = &FleetTimer{Name: name, Limits: map[int]int{}}
			all[name] = t
		}
		return t
	}
	for i := range s.Hosts {
		if h := &s.Hosts[i]; h.State.Live() {
			for _, d := range h.Timers {
				of(d.Name).add(d)
			}
		}
	}
	for i := range s.Leases {
		if l := &s.Leases[i]; l.State == LeaseHeld && KindOf(l.Name) == KindTimer {
			t := of(strings.TrimPrefix(l.Name, timerPrefix))
			t.Held = append(t.Held, l)
		}
	}
	for i := range s.Runs {
		t := of(s.Runs[i].Timer)
		t.Runs = append(t.Runs, s.Runs[i])
	}
	for i := range s.History {
		h := &s.History[i]
		if all[h.Timer] != nil || h.Last.EndedAt.After(s.ReadAt.Add(-ranLately)) {
			of(h.Timer).History = h
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *FleetTimer) int { return strings.Compare(a.Name, b.Name) })
}
