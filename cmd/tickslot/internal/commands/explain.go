package commands

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/fleet"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/show"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/timer/control"
)

const explainedRuns = 5

// An explanation is what the store knows about a timer.
type explanation struct {
	*fleet.Timer
	Because  []string                 `json:"because"` // why it does not run, or what delays it; empty if unknown
	LastTick time.Time                `json:"last_tick,omitzero"`
	Claimed  string                   `json:"claimed_by,omitempty"`
	Ahead    bool                     `json:"last_tick_ahead,omitempty"` // in the future, and therefore ignored
	Waiting  []control.PendingTrigger `json:"triggers"`
	Runs     []cluster.HistoryRun     `json:"runs"` // newest first
}

func (a *app) explain() *cobra.Command {
	c := &cobra.Command{
		Use: "explain TIMER", Short: "Say why a timer runs, or does not", Args: takes(1), GroupID: groupView,
		Long: "What the store knows about a timer: pause and limit, who holds its slots, waiting triggers, its\n" +
			"latest tick and runs, and what follows from that. When it is due next, and what a host decided about\n" +
			"a tick, only its hosts know: see timer.Scheduler.Explain, their log and their page.",
		Example: "  tickslot explain report\n  tickslot explain report -o json",
	}
	c.RunE = a.withStore(func(ctx context.Context, args []string) error {
		format, err := show.ParseFormat(a.format)
		if err != nil {
			return err
		}
		x, err := a.explained(ctx, args[0])
		if err != nil {
			return err
		}
		if format == show.FormatJSON || format == show.FormatYAML {
			return (&show.Table{Data: x}).Print(a.Out, format, 0)
		}
		return x.print(a.Out)
	})
	a.formatFlags(c)
	return a.completes(c, a.timerNames)
}

func (a *app) explained(ctx context.Context, name string) (*explanation, error) {
	list, err := a.known(ctx, name)
	if err != nil {
		return nil, err
	}
	x := &explanation{Because: []string{}, Waiting: []control.PendingTrigger{}}
	for _, r := range list {
		if r.Name == name {
			x.Timer = r
		}
	}
	ctl := a.timerControl()
	if x.Timer == nil {
		if err := a.checkTimer(ctx, name); err != nil {
			return nil, err
		}
		x.Timer = fleet.Unregistered(name, a.unregistered)
		fleet.Inspect(ctx, a.store.Locks, []*fleet.Timer{x.Timer}, a.text)
	}
	state, err := ctl.Inspect(ctx, name)
	if err != nil {
		return nil, err
	}
	x.LastTick, x.Claimed, x.Ahead = state.LastTick, holderText(state.ClaimedBy), state.LastTickAhead
	waiting, err := ctl.Triggers(ctx, name)
	if err != nil {
		return nil, err
	}
	x.Waiting = append(x.Waiting, waiting...)
	x.Runs, err = a.registry.Runs(ctx, name)
	if err != nil {
		return nil, err
	}
	unregistered := ""
	if a.unregistered {
		unregistered = a.noHosts("which hosts have it and how its runs ended is not known")
	}
	x.reason(time.Now(), unregistered)
	return x, nil
}

// reason derives the reasons from the other fields. unregistered says that no process writes to the
// registry; it is "" if some do.
func (e *explanation) reason(now time.Time, unregistered string) {
	because := func(format string, args ...any) { e.Because = append(e.Because, fmt.Sprintf(format, args...)) }
	if p := e.Pause; p != nil {
		because("it is paused for another %s, %s: \"tickslot resume\" ends that", show.Span(p.Left), p.Cause)
	}
	limit := e.Limit
	if l := e.Set; l != nil {
		limit = l.Limit
		because("its limit was set to %d %s: \"tickslot limit %s reset\" ends that", *l.Limit, l.Cause, e.Name)
	}
	switch {
	case e.Hosts > 0:
	case unregistered != "":
		because("%s", unregistered)
	default:
		because("no live host has it registered")
	}
	for _, limit := range slices.Sorted(maps.Keys(e.Differ)) {
		because("hosts differ in its limit: %d of them have %s", e.Differ[limit], limitText(limit))
	}
	if limit != nil && *limit > 0 && len(e.Held) >= *limit {
		because("all %d slots are held: a tick that comes due is skipped, or waits, as its OnFull says", *limit)
	}
	for _, l := range e.Held {
		if l.HostState == cluster.HostGone || l.HostState == cluster.HostSuspect {
			because("slot %d is held by %s, which is %s: it is free within %s unless that host renews it", l.Slot,
				l.Holder, l.HostState, show.Span(l.ExpiresAt.Sub(now)))
		}
	}
	if e.Failed > 0 && e.Last != nil {
		because("it is %s; the latest: %s", e.FailingText(now), strings.TrimRight(e.Last.Outcome+": "+e.Last.Err, ": "))
	}
	if len(e.Waiting) > 0 {
		because("%d triggers wait for a host with room", len(e.Waiting))
	}
}

func limitText(n int) string {
	if n < 0 {
		return "none"
	}
	return fmt.Sprint(n)
}

func (e *explanation) print(w io.Writer) error {
	now := time.Now()
	line(w, "%s: %s", e.Name, e.StateText(now))
	if len(e.Because) == 0 {
		line(w, "Nothing in the store keeps it from running.")
	}
	for _, text := range e.Because {
		line(w, "- %s", text)
	}
	line(w, "")
	line(w, "hosts that have it: %d, limit: %s", e.Hosts, orNone(e.LimitText()))
	if text := e.WithoutStoreText(); text != "" {
		line(w, "while no host reaches the store: %s", text)
	}
	switch {
	case e.Ahead:
		line(w, "latest tick claimed: %s, while the store's clock was ahead: it is ignored",
			instant(e.LastTick))
	case !e.LastTick.IsZero():
		line(w, "latest tick claimed: %s (%s ago) by %s", instant(e.LastTick), show.Ago(e.LastTick, now), e.Claimed)
	}
	for _, l := range e.Held {
		line(w, "slot %d: %s (%s) for %s, ends in %s unless renewed, fence %d", l.Slot, l.Holder,
			stateText(l.HostState), show.Ago(l.AcquiredAt, now), show.Span(l.ExpiresAt.Sub(now)), l.Fence)
	}
	for _, t := range e.Waiting {
		taken := ""
		if t.TakenBy != (dlock.Holder{}) {
			taken = ", taken by " + t.TakenBy.String()
		}
		line(w, "trigger %s: waits for %s, expires in %s%s", t.By, show.Span(t.Age), show.Span(t.ExpiresIn), taken)
	}
	for _, r := range e.Runs[:min(len(e.Runs), explainedRuns)] {
		line(w, "run %s ago by %s: %s in %s %s", show.Ago(r.EndedAt, now), r.Holder, r.Outcome, show.Span(r.Took),
			r.Err)
	}
	return nil
}

func orNone(text string) string {
	if text == "" {
		return "not known"
	}
	return text
}
