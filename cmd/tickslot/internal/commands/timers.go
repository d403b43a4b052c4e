package commands

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/cmd/tickslot/internal/fleet"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/show"
)

// known returns the timers whose names contain the filter, with their overrides.
func (a *app) known(ctx context.Context, filter string) ([]*fleet.Timer, error) {
	s, err := a.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	a.warnMore(s)
	a.warnUnregistered(s, "only timers that hold a slot now are listed")
	list := slices.DeleteFunc(fleet.Timers(s), func(r *fleet.Timer) bool { return !strings.Contains(r.Name, filter) })
	fleet.Inspect(ctx, a.store.Locks, list, a.text)
	return list, nil
}

func (a *app) timers(ctx context.Context, filter string) (*show.Table, error) {
	list, err := a.known(ctx, filter)
	if err != nil {
		return nil, err
	}
	t := &show.Table{None: a.none("no timer is known", "only timers that hold a slot now are listed"),
		Data: list,
		Columns: []string{"TIMER", "STATE", "LIMIT", "HELD", "HOSTS", "LAST RUN", "OUTCOME", "TOOK",
			"FAILING", "+ERROR", "+SET BY"}}
	now := time.Now()
	for _, r := range list {
		ago, outcome, took, fault := "", "", "", ""
		if run := r.Last; run != nil {
			ago, outcome, took, fault = show.Ago(run.EndedAt, now), run.Outcome, show.Span(run.Took), run.Err
		}
		by := r.Unknown
		switch {
		case r.Pause != nil:
			by = r.Pause.Cause.String()
		case r.Set != nil:
			by = r.Set.Cause.String()
		}
		t.Add(r.Name, r.State, r.LimitText(), fmt.Sprint(len(r.Held)), fmt.Sprint(r.Hosts), ago, outcome, took,
			strings.TrimPrefix(r.FailingText(now), "failing "), fault, by)
	}
	return t, nil
}
