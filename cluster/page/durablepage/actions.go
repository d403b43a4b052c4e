package durablepage

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/durable"
)

// What changes mean, on the pages that ask once more.
const (
	cancelMeans = "It ends for good. If it is running, its context ends within a third of the lease, and it is not " +
		"tried again; it may still succeed."
	requeueMeans    = "It is due at once, with as many attempts as its handler allows."
	requeueAllMeans = "All dead letters of the handler are due at once, each with as many attempts as the handler " +
		"allows."
	triggerMeans = "One more run of the handler is queued, due at once."
	pauseMeans   = "None of its runs is started until then. Runs that go on are not ended, and what is due waits."
	resumeMeans  = "The pause ends."
	limitMeans   = "So many of its runs may go on at once in the fleet, in place of what the code says. With 0 " +
		"nothing " +
		"starts."
	unlimitMeans       = "What the code says is in force again."
	pauseScheduleMeans = "Its ticks queue no runs until then, and are not caught up. Runs that are queued are not " +
		"affected."
)

type change func(ctx context.Context, v url.Values, by driver.Cause) (done string, err error)

// action makes one that is about the value of a name in the URL.
func (s *section) action(title, about, description string, back func(v url.Values) string, do change,
	fields ...page.Field) page.Action {
	many := "" // a handler or schedule is not chosen from a list
	if about == "id" {
		many = about
	}
	return page.Action{
		Title:       func(v url.Values) string { return pagekit.About(title, v[about]) },
		Description: description, Fields: fields, Back: back, Many: many,
		Known: func(ctx context.Context, v url.Values) bool { return s.knows(ctx, about, v.Get(about)) },
		Do: func(ctx context.Context, v url.Values, by driver.Cause) (string, error) {
			defer s.forget()
			done, err := do(ctx, v, by)
			if errors.Is(err, durable.ErrNoRun) {
				err = fmt.Errorf("%w: %w", page.ErrNotFound, err)
			}
			return done, err
		},
	}
}

// knows reports whether the database knows a handler, or a schedule; true if that cannot be found
// out. Do says what is wrong with an ID, and with a name that is none.
func (s *section) knows(ctx context.Context, about, name string) bool {
	var found bool
	var err error
	switch about {
	case "handler":
		var list []durable.HandlerRecord
		list, err = s.store.Handlers(ctx)
		found = slices.ContainsFunc(list, func(h durable.HandlerRecord) bool { return h.Name == name })
	case "schedule":
		var list []durable.ScheduleRecord
		list, err = s.store.Schedules(ctx)
		found = slices.ContainsFunc(list, func(r durable.ScheduleRecord) bool { return r.Name == name })
	default:
		return true
	}
	return found || err != nil || name == ""
}

func (s *section) actions() map[string]page.Action {
	toRun := func(v url.Values) string {
		if len(v["id"]) != 1 {
			return "durable?state=dead"
		}
		return page.URL("durablerun", "id", v.Get("id"))
	}
	toHandler := func(v url.Values) string { return page.URL("durable", "handler", v.Get("handler")) }
	toSchedule := func(v url.Values) string { return page.URL("durable", "schedule", v.Get("schedule")) }
	pause := page.PauseField()
	c := changes{s.control}
	end := s.action("Cancel run", "id", cancelMeans, toRun, c.cancel)
	end.Destructive = true
	all := s.action("Queue again all dead letters of", "handler", requeueAllMeans, toHandler, c.requeueAll)
	all.TypeName = "handler"
	return map[string]page.Action{
		"durable-cancel":     end,
		"durable-requeue":    s.action("Queue again run", "id", requeueMeans, toRun, c.requeue),
		"durable-requeueall": all,
		"durable-pause":      s.action("Pause the handler", "handler", pauseMeans, toHandler, c.pause, pause),
		"durable-resume":     s.action("Resume the handler", "handler", resumeMeans, toHandler, c.resume),
		"durable-unlimit":    s.action("Reset the limit of", "handler", unlimitMeans, toHandler, c.unlimit),
		"durable-pauseschedule": s.action("Pause the schedule", "schedule", pauseScheduleMeans, toSchedule,
			c.pauseSchedule, pause),
		"durable-resumeschedule": s.action("Resume the schedule", "schedule", resumeMeans, toSchedule,
			c.resumeSchedule),
		"durable-limit": s.action("Limit the handler", "handler", limitMeans, toHandler, c.limit,
			page.Field{Name: "n", Label: "Runs at once", Required: true, Number: true, Help: "0 to 10000"}),
		"durable-trigger": s.action("Trigger the handler", "handler", triggerMeans, toHandler, c.trigger,
			page.Field{Name: "payload", Label: "Payload", Multiline: true, Help: "Text that the handler gets."},
			page.Field{Name: "key", Label: "Key", Help: "While a run with this key is kept, nothing is queued. " +
				"Usually none."}),
	}
}

// changes change durable runs in the whole fleet.
type changes struct{ control *durable.Control }

func (c changes) cancel(ctx context.Context, v url.Values, by driver.Cause) (string, error) {
	id, err := idOf(v)
	if err != nil {
		return "", err
	}
	was, err := c.control.Cancel(ctx, id, by)
	if err == nil && (was == durable.StateSucceeded || was == durable.StateCanceled) {
		err = &page.BadRequestError{Text: fmt.Sprintf("it had ended before, as %s", was)}
	}
	return fmt.Sprintf("canceled, it was %s", was), err
}

func (c changes) requeue(ctx context.Context, v url.Values, by driver.Cause) (string, error) {
	id, err := idOf(v)
	if err != nil {
		return "", err
	}
	n, err := c.control.Requeue(ctx, durable.RunFilter{IDs: []int64{id},
		States: []durable.State{durable.StateDead, durable.StateCanceled}}, by)
	if err == nil && n == 0 {
		err = &page.BadRequestError{Text: "it is neither a dead letter nor canceled"}
	}
	return "queued again", err
}

func (c changes) requeueAll(ctx context.Context, v url.Values, by driver.Cause) (string, error) {
	if v.Get("handler") == "" { // no filter would mean those of all handlers
		return "", &page.BadRequestError{Text: "say of which handler"}
	}
	n, err := c.control.Requeue(ctx, durable.RunFilter{Handler: v.Get("handler")}, by)
	return fmt.Sprintf("%d runs queued again", n), err
}

func (c changes) pause(ctx context.Context, v url.Values, by driver.Cause) (string, error) {
	until, err := untilOf(v)
	if err != nil {
		return "", err
	}
	return "paused until " + until.UTC().Format(time.RFC3339), c.control.Pause(ctx, v.Get("handler"), until, by)
}

func (c changes) resume(ctx context.Context, v url.Values, by driver.Cause) (string, error) {
	return "resumed", c.control.Resume(ctx, v.Get("handler"), by)
}

func (c changes) pauseSchedule(ctx context.Context, v url.Values, by driver.Cause) (string, error) {
	until, err := untilOf(v)
	if err != nil {
		return "", err
	}
	return "paused until " + until.UTC().Format(time.RFC3339),
		c.control.PauseSchedule(ctx, v.Get("schedule"), until, by)
}

func (c changes) resumeSchedule(ctx context.Context, v url.Values, by driver.Cause) (string, error) {
	return "resumed", c.control.ResumeSchedule(ctx, v.Get("schedule"), by)
}

func (c changes) limit(ctx context.Context, v url.Values, by driver.Cause) (string, error) {
	n, err := strconv.Atoi(v.Get("n"))
	if err != nil || n < 0 || n > driver.MaxSlots {
		return "", &page.BadRequestError{Text: fmt.Sprintf("%q: use a number from 0 to %d", v.Get("n"),
			driver.MaxSlots)}
	}
	return fmt.Sprintf("limited to %d runs at once", n), c.control.SetMaxConcurrency(ctx, v.Get("handler"), n, by)
}

func (c changes) unlimit(ctx context.Context, v url.Values, by driver.Cause) (string, error) {
	return "limit reset", c.control.ResetMaxConcurrency(ctx, v.Get("handler"), by)
}

func (c changes) trigger(ctx context.Context, v url.Values, by driver.Cause) (string, error) {
	if n := len(v.Get("payload")); n > durable.MaxPayloadLen {
		return "", &page.BadRequestError{Text: fmt.Sprintf("Payload: %d bytes: use %d at most", n,
			durable.MaxPayloadLen)}
	}
	id, err := c.control.Trigger(ctx, v.Get("handler"), []byte(v.Get("payload")),
		durable.TriggerOptions{By: by, Key: v.Get("key")})
	return fmt.Sprintf("run %d queued", id), err
}

func untilOf(v url.Values) (time.Time, error) {
	d, err := page.Duration(v.Get("for"))
	return time.Now().Add(d), err
}
