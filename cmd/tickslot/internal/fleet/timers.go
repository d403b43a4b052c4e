// Package fleet derives from a snapshot of a fleet which timers there are, their states, and what
// needs attention.
package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
)

// TimerPrefix is that of the lock of a timer.
const TimerPrefix = "timer:"

const (
	failedAlarm  = 3   // a timer is failing if this many runs in a row failed
	inspectBatch = 500 // timers whose overrides are read in one call
)

// A Timer is a timer as the store knows it.
type Timer struct {
	Name  string `json:"name"`
	State string `json:"state"` // running, idle, paused, failing, no host, unknown; see SetState
	Hosts int    `json:"hosts"` // that are alive or suspect, and have it registered
	// As most hosts have it; nil: no limit, or no host has it.
	Limit *int `json:"max_concurrency,omitempty"`
	// Limits that hosts differ in, with how many have each; empty: they agree.
	Differ map[int]int `json:"differing,omitempty"`
	// What operators have set; nil: nothing.
	Set     *Override           `json:"set,omitempty"`
	Pause   *Override           `json:"pause,omitempty"`
	Held    []cluster.Lease     `json:"held"`
	Last    *cluster.HistoryRun `json:"last_run,omitempty"`
	Failed  int                 `json:"failed_in_a_row"`
	Unknown string              `json:"overrides_err,omitempty"` // why pause and override are not known

	limits map[int]int
	passed bool // one of its latest runs has succeeded
}

// An Override is what an operator has set.
type Override struct {
	dlock.Origin
	Limit *int          `json:"max_concurrency,omitempty"` // of a limit
	For   float64       `json:"seconds_left,omitempty"`    // of a pause
	Left  time.Duration `json:"-"`                         // the same
}

// LimitText is how many runs may go on at once.
func (r *Timer) LimitText() string {
	switch {
	case r.Set != nil:
		return fmt.Sprintf("%d (set)", *r.Set.Limit)
	case len(r.Differ) > 0:
		return fmt.Sprintf("%d (hosts differ)", *r.Limit)
	case r.Limit != nil:
		return fmt.Sprint(*r.Limit)
	case r.Hosts > 0:
		return "none"
	}
	return ""
}

// Timers returns all timers that a host has, that hold a slot, or that ran, by name.
func Timers(s *cluster.Snapshot) []*Timer {
	all := map[string]*Timer{}
	of := func(name string) *Timer {
		if all[name] == nil {
			all[name] = &Timer{Name: name, Held: []cluster.Lease{}, limits: map[int]int{}}
		}
		return all[name]
	}
	for _, h := range s.Hosts {
		if !h.State.Live() {
			continue
		}
		for _, d := range h.Timers {
			r := of(d.Name)
			r.Hosts++
			r.limits[d.MaxConcurrency]++
		}
	}
	for _, l := range s.HeldLeases(cluster.KindTimer) {
		r := of(strings.TrimPrefix(l.Name, TimerPrefix))
		r.Held = append(r.Held, l)
	}
	for i := range s.Runs {
		run := &s.Runs[i]
		r := of(run.Timer)
		if r.Last == nil {
			r.Last = run
		}
		r.passed = r.passed || run.Succeeded()
		if !r.passed {
			r.Failed++
		}
	}
	list := make([]*Timer, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		r := all[name]
		maxHosts := 0
		for _, limit := range slices.Sorted(maps.Keys(r.limits)) {
			if n := r.limits[limit]; n > maxHosts {
				maxHosts = n
				r.Limit = nil
				if limit >= 0 {
					r.Limit = &limit
				}
			}
		}
		if len(r.limits) > 1 {
			r.Differ = r.limits
			if r.Limit == nil { // most have none: the highest is worth a look
				highest := slices.Max(slices.Collect(maps.Keys(r.limits)))
				r.Limit = &highest
			}
		}
		list = append(list, r)
	}
	return list
}

// Inspect reads the overrides of timers, and sets their states. text returns the text of an error
// without passwords.
func Inspect(ctx context.Context, locks dlock.DistributedLock, list []*Timer, text func(error) string) {
	controller := dlock.CapabilitiesOf(locks).Controller
	proper := make([]*Timer, 0, len(list))
	for _, r := range list {
		// The registry may have invalid names, and a store refuses a whole call if one of its names
		// is invalid.
		if err := dlock.CheckName(TimerPrefix + r.Name); err != nil {
			r.Unknown = text(err)
			r.SetState()
			continue
		}
		proper = append(proper, r)
	}
	for part := range slices.Chunk(proper, inspectBatch) {
		names := make([]string, len(part))
		for i, r := range part {
			names[i] = TimerPrefix + r.Name
		}
		states, err := controller.Inspect(ctx, names...)
		for i, r := range part {
			switch {
			case err != nil:
				r.Unknown = text(err)
			case states[i].Err != nil:
				r.Unknown = text(states[i].Err)
			default:
				if p := states[i].Pause; p != nil {
					r.Pause = &Override{Origin: p.Origin, For: p.For.Seconds(), Left: p.For}
				}
				if l := states[i].Limit; l != nil {
					r.Set = &Override{Origin: l.Origin, Limit: &l.Slots}
				}
			}
			r.SetState()
		}
	}
}

// Keep gives timers the overrides that were read before, and sets their states.
func Keep(before, list []*Timer) {
	known := map[string]*Timer{}
	for _, t := range before {
		known[t.Name] = t
	}
	for _, t := range list {
		if had := known[t.Name]; had != nil {
			t.Pause, t.Set = had.Pause, had.Set
		}
		t.SetState()
	}
}

// SetState sets the state, as the operator's page and package timer name it: a limit of 0 is a
// pause without an end. A timer that is paused is not failing, because an operator looks after it.
func (r *Timer) SetState() {
	switch {
	case r.Unknown != "":
		r.State = "unknown"
	case r.Pause != nil, r.Set != nil && *r.Set.Limit == 0:
		r.State = "paused"
	case r.Failed >= failedAlarm:
		r.State = "failing"
	case len(r.Held) > 0:
		r.State = "running"
	case r.Hosts == 0:
		r.State = "no host"
	default:
		r.State = "idle"
	}
}

// Slots is how many slots there are; -1: without a limit, or it is not known.
func (r *Timer) Slots() int {
	switch {
	case r.Set != nil:
		return *r.Set.Limit
	case r.Limit != nil:
		return *r.Limit
	}
	return -1
}
