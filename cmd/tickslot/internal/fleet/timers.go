// Package fleet derives the timers of a fleet, their states, and what needs attention from a
// snapshot.
package fleet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
)

// TimerPrefix is the prefix of the lock names of timers.
const TimerPrefix = "timer:"

const (
	inspectBatch = 500 // maximum number of timers whose overrides are read in one call
)

// A Timer is a timer as known to the store.
type Timer struct {
	Name  string `json:"name"`
	State string `json:"state"` // a cluster.TimerState, or unknown
	Hosts int    `json:"hosts"` // live hosts that have it registered
	// Limit is the most frequent limit of hosts. It is nil if that is no limit, or if no host has
	// the timer.
	Limit *int `json:"max_concurrency,omitempty"`
	// Differ counts hosts by their limit. It is empty if all limits are equal.
	Differ map[int]int `json:"differing,omitempty"`
	// Set and Pause are overrides by operators, or nil.
	Set    *Override           `json:"set,omitempty"`
	Pause  *Override           `json:"pause,omitempty"`
	Held   []cluster.Lease     `json:"held"`
	Last   *cluster.HistoryRun `json:"last_run,omitempty"`
	Failed int                 `json:"failed_in_a_row"`
	// FailingSince is when the first failure of the current streak ended, or zero if the last run
	// did not fail.
	FailingSince time.Time `json:"failing_since,omitzero"`
	Unknown      string    `json:"overrides_err,omitempty"` // why pause and override are not known
	// How many runs may be in progress at once while no host reaches the store; -1: any number, 0:
	// the timer waits for the store, nil: the timer does not need the store, or no host has it.
	WithoutStore *int `json:"max_runs_without_store,omitempty"`

	fleet      *cluster.FleetTimer
	outage     *cluster.TimerOutage // nil: the timer does not need the store, or no host has it
	noRegistry bool                 // no process writes to it, so it is not known whether a host has the timer
}

// An Override is a pause or a limit set by an operator.
type Override struct {
	driver.Cause
	Limit *int          `json:"max_concurrency,omitempty"` // for a limit
	For   float64       `json:"seconds_left,omitempty"`    // for a pause
	Left  time.Duration `json:"-"`                         // the same time
}

// LimitText describes how many runs may be in progress at the same time.
func (t *Timer) LimitText() string {
	switch {
	case t.Set != nil:
		return fmt.Sprintf("%d (set)", *t.Set.Limit)
	case t.Hosts == 0:
		return ""
	}
	text := "none"
	if t.Limit != nil {
		text = fmt.Sprint(*t.Limit)
	}
	if len(t.Differ) > 0 {
		text += " (hosts differ)"
	}
	return text
}

// Timers returns, by name, all timers that a host has registered, that hold a slot, or that ran.
func Timers(s *cluster.Snapshot) []*Timer {
	all := s.Timers()
	list := make([]*Timer, len(all))
	for i, f := range all {
		list[i] = newTimer(f)
		list[i].noRegistry = len(s.Hosts) == 0
	}
	return list
}

// Unregistered returns a timer that no host has registered. noRegistry says that no process writes
// to the registry.
func Unregistered(name string, noRegistry bool) *Timer {
	t := newTimer(&cluster.FleetTimer{Name: name})
	t.noRegistry = noRegistry
	return t
}

func newTimer(f *cluster.FleetTimer) *Timer {
	r := &Timer{Name: f.Name, Hosts: f.Hosts, Held: make([]cluster.Lease, len(f.Held)), Last: f.Last(), fleet: f}
	r.Failed, r.FailingSince = f.Failing()
	for i, l := range f.Held {
		r.Held[i] = *l
	}
	if limit := f.MaxConcurrency(); limit >= 0 {
		r.Limit = &limit
	}
	if f.HostsDiffer() {
		r.Differ = f.Limits
	}
	if o, ok := f.Outage(); ok {
		r.outage, r.WithoutStore = &o, &o.MaxRuns
	}
	return r
}

// Outage says what timers do if no host reaches the store either; "": none is known to need it.
func Outage(timers []*Timer) string {
	var list []cluster.TimerOutage
	for _, t := range timers {
		if t.outage != nil && t.Pause == nil && (t.Set == nil || *t.Set.Limit != 0) {
			list = append(list, *t.outage)
		}
	}
	text := cluster.OutageText(list)
	if text != "" {
		text = "unless hosts still reach the store, " + text
	}
	return text
}

// WithoutStoreText says how many runs there may be while no host reaches the store; "": it is not
// known, or the timer does not need the store.
func (t *Timer) WithoutStoreText() string {
	switch n := t.WithoutStore; {
	case n == nil:
		return ""
	case *n < 0:
		return "any number of runs at once"
	case *n == 0:
		return "none, it waits"
	default:
		return fmt.Sprintf("up to %d runs at once", *n)
	}
}

// Inspect reads the overrides of timers, and sets their states. text returns the text of an error
// without passwords.
func Inspect(ctx context.Context, locks dlock.DistributedLock, list []*Timer, text func(error) string) {
	controller := driver.CapabilitiesOf(locks).Controller
	proper := make([]*Timer, 0, len(list))
	for _, r := range list {
		// The registry may contain invalid names, and a store rejects a whole call if one name is
		// invalid.
		if err := driver.CheckName(TimerPrefix + r.Name); err != nil {
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
					r.Pause = &Override{Cause: p.Cause, For: p.For.Seconds(), Left: p.For}
				}
				if l := states[i].Limit; l != nil {
					r.Set = &Override{Cause: l.Cause, Limit: &l.Slots}
				}
			}
			r.SetState()
		}
	}
}

// Keep gives timers the overrides of an earlier read and sets their states.
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

// SetState derives the timer's state from its other fields and its overrides.
func (t *Timer) SetState() {
	if t.Unknown != "" {
		t.State = "unknown"
		return
	}
	state := t.fleet.State(t.Pause != nil || t.Set != nil && *t.Set.Limit == 0, false)
	t.State = string(state)
	if state == cluster.TimerNoHost && t.noRegistry {
		t.State = "unknown"
	}
}

// StateText returns the state. For a failing timer it includes since when and how often it has
// failed.
func (t *Timer) StateText(now time.Time) string {
	if t.State == string(cluster.TimerFailing) {
		return t.FailingText(now)
	}
	return t.State
}

// FailingText describes since when runs fail and how many in a row, or returns "" if the last one
// succeeded.
func (t *Timer) FailingText(now time.Time) string { return t.fleet.FailingText(now) }

// Slots returns the number of slots, or -1 if there is no limit or it is unknown.
func (t *Timer) Slots() int {
	switch {
	case t.Set != nil:
		return *t.Set.Limit
	case t.Limit != nil:
		return *t.Limit
	}
	return -1
}
