package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// FailingRuns is how many runs in a row have to fail until a timer is failing.
const FailingRuns = 3

// A TimerState is the state of a timer in the fleet.
type TimerState string

// These are in the order in which they count: a timer that is paused is not failing, because an
// operator looks after it.
const (
	TimerPaused  TimerState = "paused"  // an operator has paused it; a limit of 0 is a pause without an end
	TimerFailing TimerState = "failing" // FailingRuns runs in a row failed, or it has not succeeded for long
	TimerRunning TimerState = "running" // a slot is held
	TimerNoHost  TimerState = "no host" // no host that is live has it registered
	TimerIdle    TimerState = "idle"
)

// A FleetTimer is what a Snapshot has of a timer. What operators have set is not part of it: the
// store of the locks keeps that.
type FleetTimer struct {
	Name  string
	Hosts int // that are live, and have it registered
	// Limits has how many of these hosts have which MaxConcurrency (-1: none). In a rolling deploy
	// there may be several.
	Limits map[int]int
	Held   []*Lease     // of its slots that are held
	Runs   []HistoryRun // newest first; Registry.Runs has more
	// History is what all its runs have come to; nil: none was counted.
	History *TimerHistory
}

// newer reports whether a run is not among those of the History: hosts of an older version write no
// more than their runs. A run that is written again to be counted may seem to have ended a little
// earlier than the first time.
func (f *FleetTimer) newer(r *HistoryRun) bool {
	return f.History == nil || r.EndedAt.After(f.History.Last.EndedAt.Add(time.Second))
}

// Failing is how many runs failed in a row, the newest ones, and when the first of them ended, or
// the zero time if there are none. If there is no History, only Runs are known.
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

// Failed is how many of the newest runs failed in a row: see Failing.
func (f *FleetTimer) Failed() int {
	failed, _ := f.Failing()
	return failed
}

// FailingText says in words what Failing returns; "": the last run succeeded, or none is known.
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

// MaxConcurrency is the limit that most hosts have, the lowest of several. It is -1 if that is
// none, or no host has the timer.
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

// Last is the newest run; nil: none is known.
func (f *FleetTimer) Last() *HistoryRun {
	switch {
	case len(f.Runs) > 0 && (f.History == nil || !f.Runs[0].EndedAt.Before(f.History.Last.EndedAt)):
		return &f.Runs[0]
	case f.History != nil:
		return &f.History.Last
	}
	return nil
}

// State is the state of a timer, if an operator has paused it or not, and if a host that runs it
// says that it has not succeeded for long or not.
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

// ranLately is how long a timer is listed after its last run if no host has it any more.
const ranLately = 24 * time.Hour

// Timers returns all timers that a live host has registered, that hold a slot, or that ran within
// the last day, by name.
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
				t := of(d.Name)
				t.Hosts++
				t.Limits[d.MaxConcurrency]++
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
