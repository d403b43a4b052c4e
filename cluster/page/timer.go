package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
	"github.com/tickslot/tickslot/cluster/page/internal/readcache"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/mask"
	"github.com/tickslot/tickslot/timer/control"
)

// A timerView is what there is to know of one timer.
type timerView struct {
	pagekit.Seen
	timerRow
	On            []hostTimer              `json:"on"` // hosts that have it
	Last50        []cluster.HistoryRun     `json:"runs"`
	Ticks         []time.Time              `json:"next_ticks,omitempty"`
	Why           string                   `json:"ticks_here,omitempty"` // how they went on this host
	Decided       []decisionView           `json:"decisions,omitempty"`  // of this host, the newest first
	Override      *limitView               `json:"limit_override,omitempty"`
	LastTick      time.Time                `json:"last_tick,omitzero"` // that any host claimed
	Claimer       string                   `json:"claimed_by,omitempty"`
	LastTickAhead bool                     `json:"last_tick_ahead,omitempty"` // it counts for nothing
	Triggers      []control.PendingTrigger `json:"triggers,omitempty"`
	Events        []cluster.HistoryEvent   `json:"events"`
	Faults        []string                 `json:"faults,omitempty"` // why some of it is not known
	Failures      []failureGroup           `json:"failures"`         // of the runs, by their errors
	Lanes         plot                     `json:"-"`                // who has had which slot
	Durations     plot                     `json:"-"`
	Chart         runChart                 `json:"-"`
	Newest, Older []cluster.HistoryRun     `json:"-"` // runs
	Control       bool                     `json:"-"`
}

type hostTimer struct {
	Holder string            `json:"holder"`
	State  cluster.HostState `json:"state"`
	cluster.TimerDetail
}

// A decisionView is what this host decided about a tick.
type decisionView struct {
	Tick    time.Time `json:"tick"`
	Outcome string    `json:"outcome"` // of the run, running, or the reason why there is none
	Ran     bool      `json:"ran"`
	Text    string    `json:"text"`
}

type pauseView struct {
	driver.Cause
	Until time.Time `json:"until,omitzero"` // zero: until the limit, which was set to 0, is changed
}

type limitView struct {
	driver.Cause
	Limit int `json:"limit"`
}

// timer shows one timer. It makes up to three calls to stores besides the Snapshot and the pauses.
func (p *Page) timer(ctx context.Context, q url.Values) (Content, error) {
	name := q.Get("name")
	s := p.snapshot(ctx)
	v := timerView{Seen: seenOf(s), timerRow: timerRow{Name: name}, Control: p.config.Control != nil,
		On: []hostTimer{}, Events: []cluster.HistoryEvent{}}
	known := false
	rows := p.timers.rows(ctx, s)
	for _, row := range rows {
		if row.Name == name {
			v.timerRow, known = row, true
		}
	}
	switch {
	case !known && s.ReadAt.IsZero():
		return Content{}, fmt.Errorf("timer %q: %w", name, cmp.Or(s.Err, readcache.ErrNoAnswer))
	case !known:
		return Content{}, fmt.Errorf("%w: no host has a timer %q, and no run of it is kept", ErrNotFound, name)
	}
	p.timers.buckets.Begin(name, p.readBuckets(name))
	for _, h := range s.Hosts {
		for _, d := range h.Timers {
			if d.Name == name {
				v.On = append(v.On, hostTimer{h.Holder.String(), h.State, d})
			}
		}
	}
	for _, e := range s.Events {
		if e.Name == timerPrefix+name {
			v.Events = append(v.Events, e)
		}
	}
	runs := p.timers.runs.Get(ctx, name, p.readRuns(name))
	v.fault(runs.Err)
	if v.Last50 = runs.Value; v.Last50 == nil {
		v.Last50 = []cluster.HistoryRun{}
	} else {
		v.takeRuns(runs.Value)
	}
	p.addOverrides(ctx, &v, rows)
	p.addLocal(ctx, &v)
	v.State = v.state()
	c := &clock{v.AsOf()}
	v.Failures = failuresOf(v.Last50)
	v.Lanes, v.Durations = lanesOf(&v.timerRow, v.Last50, c), durationsOf(v.Last50, c)
	v.Chart = p.chart(ctx, q, name)
	n := min(len(v.Last50), maxLatest)
	v.Newest, v.Older = v.Last50[:n], v.Last50[n:]
	return Content{"Timer " + name, v}, nil
}

func (t *timerView) fault(err error) {
	if err != nil && !errors.Is(err, control.ErrNoControl) {
		t.Faults = append(t.Faults, mask.Text(err.Error()))
	}
}

// addOverrides adds what the store of locks keeps: one call besides that for all timers, if the
// timer was ever triggered.
func (p *Page) addOverrides(ctx context.Context, v *timerView, rows []timerRow) {
	if p.config.Control == nil {
		return
	}
	state := p.timers.overrides(ctx, rows, v.Name)
	v.fault(state.Err)
	if o := state.Value; !state.At.IsZero() {
		v.Pause = pauseOf(o, state.At) // newer than what this host knows
		if o.Limit != nil {
			v.Override = &limitView{o.Limit.Cause, o.Limit.Slots}
		}
		if v.LastTick, v.LastTickAhead = o.LastTick, o.LastTickAhead; !v.LastTick.IsZero() {
			v.Claimer = o.ClaimedBy.String()
		}
	}
	if !state.At.IsZero() && state.Value.Trigger == nil { // there was none, so none waits
		return
	}
	triggers := p.timers.triggers.Get(ctx, v.Name, func(ctx context.Context) ([]control.PendingTrigger, error) {
		return p.config.Control.Triggers(ctx, v.Name)
	})
	v.fault(triggers.Err)
	v.Triggers = triggers.Value
}

// nextTicks is how many are shown.
const nextTicks = 5

// addLocal adds what this process knows, without a call to the store.
func (p *Page) addLocal(ctx context.Context, v *timerView) {
	local := v.Local
	if local == nil {
		return
	}
	ticks := p.timers.ticks.Get(ctx, v.Name, func(context.Context) ([]time.Time, error) {
		return local.NextTicks(nextTicks)
	})
	if ticks.Err != nil {
		v.fault(fmt.Errorf("the next ticks are not known: %w", ticks.Err))
	}
	v.Ticks = slices.DeleteFunc(slices.Clone(ticks.Value), func(t time.Time) bool { // others share them
		return t.Before(v.BlackoutUntil)
	})
	if v.Local.Ticks != 0 {
		v.Why = skippedText(v.timerRow)
	}
	for _, x := range v.Local.Decisions() {
		d := decisionView{Tick: x.Tick, Ran: x.Reason == "", Outcome: string(x.Reason), Text: x.Text}
		switch {
		case d.Ran && x.Run == nil:
			d.Outcome = "running"
		case d.Ran:
			d.Outcome = string(x.Run.Outcome)
		}
		v.Decided = append(v.Decided, d)
	}
}

// P50Took is how long half of the runs took at most.
func (t timerView) P50Took() time.Duration { return percentile(t.Runs, 50) }

// A skipView is a reason why ticks did not run on this host.
type skipView struct {
	skipCount
	Text string // of the latest such decision; "": it is forgotten
}

// Skips are the reasons why ticks did not run here, the most frequent first.
func (t timerView) Skips() (list []skipView) {
	for _, s := range t.Skipped() {
		v := skipView{skipCount: s}
		for _, d := range t.Decided {
			if !d.Ran && d.Outcome == s.Reason {
				v.Text = d.Text
				break
			}
		}
		list = append(list, v)
	}
	return list
}

// skippedText says how ticks went on this host.
func skippedText(r timerRow) string {
	text := fmt.Sprintf("Of %d ticks on this host %d started a run", r.Local.Ticks, r.Local.Started)
	for i, s := range r.Skipped() {
		if i == 0 {
			text += "; skipped: "
		} else {
			text += ", "
		}
		text += fmt.Sprintf("%s %d", s.Reason, s.Count)
	}
	return text + "."
}
