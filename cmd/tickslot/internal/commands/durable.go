package commands

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/cmd/tickslot/internal/show"
	"github.com/tickslot/tickslot/durable"
)

func (r *runLists) handlers(ctx context.Context, filter string) (*show.Table, error) {
	if r.store.Durable == nil {
		return nil, errNoDurable
	}
	list, err := r.store.Durable.Handlers(ctx)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(append([]durable.HandlerRecord{}, list...), func(h durable.HandlerRecord) bool {
		return !strings.Contains(h.Name, filter)
	})
	t := &show.Table{None: "no worker has a handler", Data: list, Columns: []string{"HANDLER", "STATE", "LIMIT",
		"QUEUED", "RUNNING", "DEAD", "LAST RUN", "LAST SUCCESS", "FAILING", "SEEN", "SET", "+OUTCOMES", "+LAST ERROR"}}
	now := time.Now()
	for _, h := range list {
		name, set := h.Name, []string{}
		if name == "" {
			name = "(all together)"
		}
		if h.Override != nil {
			set = append(set, "limit "+h.Override.String())
		}
		state, by := pausedText(h.Pause)
		t.Add(name, state, handlerLimits(h), fmt.Sprint(h.Queued), fmt.Sprint(h.Running), fmt.Sprint(h.Dead),
			show.Ago(h.EndedAt, now), show.Ago(h.SucceededAt, now), failingText(h.Failures, h.FailingFrom, now),
			show.Ago(h.SeenAt, now), strings.Join(append(set, by...), "; "),
			strings.Join(initials(h.Outcomes), ""), h.LastError)
	}
	return t, nil
}

func (r *runLists) schedules(ctx context.Context, filter string) (*show.Table, error) {
	if r.store.Durable == nil {
		return nil, errNoDurable
	}
	list, err := r.store.Durable.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(append([]durable.ScheduleRecord{}, list...), func(s durable.ScheduleRecord) bool {
		return !strings.Contains(s.Name, filter)
	})
	t := &show.Table{None: "no worker has a schedule", Data: list, Columns: []string{"SCHEDULE", "HANDLER", "STATE",
		"TEXT", "=NEXT DUE", "QUEUED", "SKIPPED", "SEEN", "SET", "+COALESCED", "+WHILE PAUSED"}}
	now := time.Now()
	for _, s := range list {
		state, by := pausedText(s.Pause)
		t.Add(s.Name, s.Handler, state, s.Text, instant(s.NextDueAt), fmt.Sprint(s.Queued), fmt.Sprint(s.Skipped),
			show.Ago(s.SeenAt, now), strings.Join(by, ""), fmt.Sprint(s.Coalesced), fmt.Sprint(s.PausedTicks))
	}
	return t, nil
}

// handlerLimits describes the limits of a handler: concurrent runs in total and per partition, and
// starts per period.
func handlerLimits(h durable.HandlerRecord) string {
	var limits []string
	switch {
	case h.Override != nil:
		limits = append(limits, fmt.Sprintf("%d (set)", h.Override.Limit))
	case h.MaxConcurrency > 0:
		limits = append(limits, fmt.Sprint(h.MaxConcurrency))
	}
	if h.MaxPerPartition > 0 {
		limits = append(limits, fmt.Sprintf("%d per partition", h.MaxPerPartition))
	}
	if h.Rate > 0 {
		limits = append(limits, fmt.Sprintf("%d starts in %s", h.Rate, show.Span(h.Per)))
	}
	return cmp.Or(strings.Join(limits, ", "), "none")
}

// pausedText describes whether something is paused, until when, and by whom.
func pausedText(p *durable.PauseRecord) (state string, by []string) {
	if p == nil {
		return "active", nil
	}
	return "paused", []string{"paused until " + instant(p.Until) + " " + p.String()}
}
