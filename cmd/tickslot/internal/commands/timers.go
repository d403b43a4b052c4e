package commands

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/show"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/timer"
)

const (
	timerPrefix = "timer:" // of the lock of a timer
	failedAlarm = 3        // runs in a row that have to fail until a timer is failing
	inspectAt   = 500      // timers whose overrides are read in one call
)

// A timerRow is a timer as the store knows it.
type timerRow struct {
	Name  string `json:"name"`
	State string `json:"state"` // running, idle, paused, stopped, failing, no host, unknown
	Hosts int    `json:"hosts"` // that are there and have it
	// As most hosts have it; nil: no limit, or no host has it.
	Limit *int `json:"max_concurrency,omitempty"`
	// Limits that hosts differ in, with how many have each; empty: they agree.
	Differ map[int]int `json:"differing,omitempty"`
	// What operators have set; nil: nothing.
	Set     *override           `json:"set,omitempty"`
	Pause   *override           `json:"pause,omitempty"`
	Held    []cluster.Lease     `json:"held"`
	Last    *cluster.HistoryRun `json:"last_run,omitempty"`
	Failed  int                 `json:"failed_in_a_row"`
	Unknown string              `json:"overrides_err,omitempty"` // why pause and override are not known

	limits map[int]int
	passed bool // one of its latest runs has succeeded
}

// An override is what an operator has set.
type override struct {
	dlock.Origin
	Limit *int          `json:"max_concurrency,omitempty"` // of a limit
	For   float64       `json:"seconds_left,omitempty"`    // of a pause
	left  time.Duration // the same
}

func (r *timerRow) limitText() string {
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

// timersOf returns all timers that a host has, that hold a slot, or that ran, by name.
func timersOf(s *cluster.Snapshot) []*timerRow {
	all := map[string]*timerRow{}
	of := func(name string) *timerRow {
		if all[name] == nil {
			all[name] = &timerRow{Name: name, Held: []cluster.Lease{}, limits: map[int]int{}}
		}
		return all[name]
	}
	for _, h := range s.Hosts {
		if h.State == cluster.HostGone {
			continue
		}
		for _, d := range h.Timers {
			r := of(d.Name)
			r.Hosts++
			r.limits[d.MaxConcurrency]++
		}
	}
	for _, l := range s.Who(cluster.KindTimer) {
		r := of(strings.TrimPrefix(l.Name, timerPrefix))
		r.Held = append(r.Held, l)
	}
	for i := range s.Runs {
		run := &s.Runs[i]
		r := of(run.Timer)
		if r.Last == nil {
			r.Last = run
		}
		r.passed = r.passed || run.Outcome == string(timer.OutcomeOK)
		if !r.passed {
			r.Failed++
		}
	}
	list := make([]*timerRow, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		r := all[name]
		most := 0
		for _, limit := range slices.Sorted(maps.Keys(r.limits)) {
			if n := r.limits[limit]; n > most {
				most = n
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

// inspect reads the overrides of timers.
func (a *app) inspect(ctx context.Context, list []*timerRow) {
	controller := dlock.CapabilitiesOf(a.store.Locks).Controller
	for part := range slices.Chunk(list, inspectAt) {
		names := make([]string, len(part))
		for i, r := range part {
			names[i] = timerPrefix + r.Name
		}
		states, err := controller.Inspect(ctx, names...)
		for i, r := range part {
			switch {
			case err != nil:
				r.Unknown = a.text(err)
			case states[i].Err != nil:
				r.Unknown = a.text(states[i].Err)
			default:
				if p := states[i].Pause; p != nil {
					r.Pause = &override{Origin: p.Origin, For: p.For.Seconds(), left: p.For}
				}
				if l := states[i].Limit; l != nil {
					r.Set = &override{Origin: l.Origin, Limit: &l.Slots}
				}
			}
		}
	}
}

func (r *timerRow) setState() {
	switch {
	case r.Unknown != "":
		r.State = "unknown"
	case r.Pause != nil:
		r.State = "paused"
	case r.Set != nil && *r.Set.Limit == 0:
		r.State = "stopped"
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

// known returns the timers whose names contain the filter, with their overrides.
func (a *app) known(ctx context.Context, filter string) ([]*timerRow, error) {
	s, err := a.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	a.warnMore(s)
	list := slices.DeleteFunc(timersOf(s), func(r *timerRow) bool { return !strings.Contains(r.Name, filter) })
	a.inspect(ctx, list)
	for _, r := range list {
		r.setState()
	}
	return list, nil
}

func (a *app) timers(ctx context.Context, filter string) (*show.Table, error) {
	list, err := a.known(ctx, filter)
	if err != nil {
		return nil, err
	}
	t := &show.Table{None: "no timer is known: none holds a slot, and no process of this store runs a cluster.Registry",
		Data: list,
		Columns: []string{"TIMER", "STATE", "LIMIT", "HELD", "HOSTS", "LAST RUN", "OUTCOME", "TOOK", "+ERROR",
			"+SET BY"}}
	now := time.Now()
	for _, r := range list {
		ago, outcome, took, fault := "", "", "", ""
		if run := r.Last; run != nil {
			ago, outcome, took, fault = show.Ago(run.EndedAt, now), run.Outcome, show.Span(run.Took), run.Err
		}
		by := r.Unknown
		switch {
		case r.Pause != nil:
			by = r.Pause.Origin.String()
		case r.Set != nil:
			by = r.Set.Origin.String()
		}
		t.Add(r.Name, r.State, r.limitText(), fmt.Sprint(len(r.Held)), fmt.Sprint(r.Hosts), ago, outcome, took,
			fault, by)
	}
	return t, nil
}
