// Package durablepage adds durable runs to the operator's page: handlers, schedules, runs and dead
// letters with their attempts; cancel, queue again, trigger, pause, limit.
//
//	page.New(page.Config{Registry: registry, Authorize: page.Loopback,
//		Sections: []page.Section{durablepage.New(store)}})
//
// All viewers share the result of a read for a second: three calls to the database for the list,
// one for a run. The chart needs two more, at most every 15 s. Errors are shown to everybody who
// may read the page, payloads to those with page.Access.Payloads.
package durablepage

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
	"github.com/tickslot/tickslot/cluster/page/internal/readcache"
	"github.com/tickslot/tickslot/durable"
)

//go:embed templates/*.html
var templates embed.FS

const (
	rowsPerPage = 100
	unseenAfter = 5 * time.Minute
	failedAlarm = 3 // runs that failed in a row
)

// New returns a section for page.Config.Sections. Its pages are called durable and durablerun.
func New(store *durable.Store) page.Section {
	s := &section{store: store, control: store.Control()}
	s.flow.TTL = flowTTL
	return page.Section{
		Links:     []page.Link{{Title: "Durable", Name: "durable"}},
		Views:     map[string]page.View{"durable": s.list, "durablerun": s.one},
		Templates: pagekit.Templates(templates), Actions: s.actions(), Attention: s.attention,
	}
}

// A section reads a store of durable runs, for all viewers together.
type section struct {
	store     *durable.Store
	control   *durable.Control
	handlers  readcache.Cache[[]durable.HandlerRecord]
	schedules readcache.Cache[[]durable.ScheduleRecord]
	runs      readcache.Cache[[]durable.RunRecord]
	run       readcache.Cache[durable.RunRecord]
	flow      readcache.Cache[flowRead]
}

// forget has the next page show what was just changed.
func (s *section) forget() {
	s.handlers.Forget()
	s.schedules.Forget()
	s.runs.Forget()
	s.run.Forget()
	s.flow.Forget()
}

func (s *section) readHandlers(ctx context.Context) readcache.Result[[]durable.HandlerRecord] {
	return s.handlers.Get(ctx, "", s.store.Handlers)
}

func (s *section) readSchedules(ctx context.Context) readcache.Result[[]durable.ScheduleRecord] {
	return s.schedules.Get(ctx, "", s.store.Schedules)
}

// A listView is what is there.
type listView struct {
	pagekit.Seen
	Handlers  []handlerView            `json:"handlers"`
	Schedules []durable.ScheduleRecord `json:"schedules"`
	Runs      []durable.RunRecord      `json:"runs"` // the newest that match
	Filter    runFilter                `json:"filter"`
	Next      string                   `json:"next,omitempty"` // URL of older runs
	States    []pagekit.Option         `json:"-"`
	Dead      pagekit.Failures         `json:"-"` // of Runs, by their errors
	Chart     pagekit.FlowChart        `json:"-"`
}

// A handlerView is a handler with a picture of its outcomes.
type handlerView struct {
	durable.HandlerRecord
	pagekit.Outcomes `json:"-"`
}

func handlerViews(list []durable.HandlerRecord) []handlerView {
	views := make([]handlerView, len(list))
	for i, h := range list {
		views[i] = handlerView{h, pagekit.OutcomesOf(h.HandlerHistory.Outcomes, "runs that ended",
			func(s durable.State) (succeeded, failed bool) {
				return s == durable.StateSucceeded, s == durable.StateDead
			})}
	}
	return views
}

type runFilter struct {
	Handler  string `json:"handler,omitempty"`
	Schedule string `json:"schedule,omitempty"`
	State    string `json:"state,omitempty"`
}

var states = []durable.State{durable.StateQueued, durable.StateRunning, durable.StateDead, durable.StateCanceled,
	durable.StateSucceeded}

func (s *section) list(ctx context.Context, q url.Values) (page.Content, error) {
	v := listView{Filter: runFilter{q.Get("handler"), q.Get("schedule"), q.Get("state")}}
	which := durable.RunFilter{Handler: v.Filter.Handler, Schedule: v.Filter.Schedule}
	for _, state := range states {
		chosen := q.Get("state") == string(state)
		if chosen {
			which.States = []durable.State{state}
		}
		v.States = append(v.States, pagekit.Option{Value: string(state), Chosen: chosen})
	}
	if before, err := strconv.ParseInt(q.Get("before"), 10, 64); err == nil && before > 0 {
		which.BeforeID = before
	}
	s.flow.Begin("", s.readFlow)
	handlers, schedules := s.readHandlers(ctx), s.readSchedules(ctx)
	runs := s.runs.Get(ctx, fmt.Sprintf("%+v", which), func(ctx context.Context) ([]durable.RunRecord, error) {
		return s.store.Runs(ctx, which, rowsPerPage)
	})
	v.Handlers, v.Schedules, v.Runs = handlerViews(handlers.Value), some(schedules.Value), some(runs.Value)
	v.Seen = pagekit.SeenOf(runs.At, cmp.Or(handlers.Err, schedules.Err, runs.Err))
	for _, r := range v.Runs {
		if r.State == durable.StateDead {
			v.Dead.Add(r.LastError, strconv.FormatInt(r.ID, 10))
		}
	}
	v.Dead = v.Dead.Sorted()
	v.Chart = s.chart(ctx, which.Handler)
	if n := len(v.Runs); n == rowsPerPage {
		v.Next = page.URL("durable", "handler", which.Handler, "schedule", which.Schedule, "state", q.Get("state"),
			"before", strconv.FormatInt(v.Runs[n-1].ID, 10))
	}
	return page.Content{Title: "Durable runs", Data: v}, nil
}

func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// A runView is one run.
type runView struct {
	pagekit.Seen
	durable.RunRecord
	Hidden bool `json:"payload_hidden,omitempty"` // the viewer may not see it

	Text string `json:"-"` // the payload, if it is text
	Cut  bool   `json:"-"` // the text is longer
	Over bool   `json:"-"` // it has ended
}

func (s *section) one(ctx context.Context, q url.Values) (page.Content, error) {
	id, err := idOf(q)
	if err != nil {
		return page.Content{}, err
	}
	r := s.run.Get(ctx, strconv.FormatInt(id, 10), func(ctx context.Context) (durable.RunRecord, error) {
		return s.store.Run(ctx, id)
	})
	switch {
	case errors.Is(r.Err, durable.ErrNoRun):
		return page.Content{}, fmt.Errorf("%w: %w", page.ErrNotFound, r.Err)
	case r.Err != nil && r.At.IsZero():
		return page.Content{}, r.Err
	}
	v := runView{Seen: pagekit.SeenOf(r.At, r.Err), RunRecord: r.Value, Over: !r.Value.FinishedAt.IsZero()}
	if v.Hidden = !page.MayReadPayloads(ctx); v.Hidden {
		v.Payload = nil
	}
	v.Text, v.Cut = pagekit.Payload(v.Payload)
	return page.Content{Title: fmt.Sprint("Run ", id), Data: v}, nil
}

func idOf(q url.Values) (int64, error) {
	id, err := strconv.ParseInt(q.Get("id"), 10, 64)
	if err != nil || id <= 0 {
		return 0, fmt.Errorf("%w: %q is no ID of a run", page.ErrNotFound, q.Get("id"))
	}
	return id, nil
}

// attention returns notices of dead letters, of handlers that no worker has, and of pauses.
func (s *section) attention(ctx context.Context) (list []page.Notice) {
	handlers, schedules := s.readHandlers(ctx), s.readSchedules(ctx)
	add := func(urgent bool, url, format string, args ...any) {
		list = append(list, page.Notice{Urgent: urgent, URL: url, Text: fmt.Sprintf(format, args...)})
	}
	if err := cmp.Or(handlers.Err, schedules.Err); err != nil {
		add(true, "durable", "The database of durable runs does not answer: %v", err)
	}
	for _, h := range handlers.Value {
		link := page.URL("durable", "handler", h.Name)
		if h.Dead > 0 {
			add(true, page.URL("durable", "handler", h.Name, "state", "dead"), "%s of %s.",
				pagekit.Count(h.Dead, "dead letter"), h.Name)
		}
		if h.Failures >= failedAlarm {
			add(true, link, "The handler %s has failed for %s, %s in a row: %s", h.Name,
				pagekit.Took(time.Since(h.FailingFrom)), pagekit.Count(h.Failures, "run"),
				cmp.Or(h.LastError, "no error is known"))
		}
		if h.Queued > 0 && !h.SeenAt.IsZero() && time.Since(h.SeenAt) > unseenAfter {
			add(true, link, "%s of %s queued, and no worker has had it for %s.", pagekit.Count(h.Queued, "run"),
				h.Name, pagekit.Took(time.Since(h.SeenAt)))
		}
		if h.Pause != nil {
			add(false, link, "The handler %s is paused %s, with %s queued.", h.Name, h.Pause.Cause,
				pagekit.Count(h.Queued, "run"))
		}
	}
	for _, c := range schedules.Value {
		if c.Pause != nil {
			add(false, page.URL("durable", "schedule", c.Name), "The schedule %s is paused %s.", c.Name,
				c.Pause.Cause)
		}
	}
	return list
}
