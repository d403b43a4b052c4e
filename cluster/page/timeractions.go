package page

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/timer/control"
)

// What changes mean, on the pages that ask once more.
const (
	pauseMeans = "No host starts it until then. Runs that go on are not ended, and ticks that come due are skipped, " +
		"not caught up."
	resumeMeans = "The pause ends: hosts start it from its next tick on."
	limitMeans  = "So many runs may go on at once in the fleet, in place of what the code says. Runs that go on are " +
		"not ended. With 0 nothing starts."
	unlimitMeans = "What the code says is in force again."
	triggerMeans = "One host runs it once, at most once, as soon as there is room. Its schedule goes on as before."
	cancelMeans  = "The context of the run ends, on whichever host it is. Its slot is free when the handler has " +
		"returned, or when the lease ends."
)

// A change is what an action on a timer does.
type change func(ctx context.Context, name string, v url.Values, by driver.Cause) (done string, err error)

// timerActions are what an operator may do to timers.
func (p *Page) timerActions() map[string]Action {
	if p.config.Control == nil {
		return nil
	}
	c := timerChanges{p.config.Control}
	action := func(title, description string, do change, fields ...Field) Action {
		return Action{
			Title:       func(v url.Values) string { return title + " " + pagekit.Chosen(v["name"], "timer") },
			Description: description, Fields: fields, Many: "name",
			Known: func(ctx context.Context, v url.Values) bool { return p.knows(ctx, v.Get("name")) },
			Back: func(v url.Values) string {
				if len(v["name"]) != 1 {
					return "timers"
				}
				return URL("timer", "name", v.Get("name"))
			},
			About: func(v url.Values) string { return timerPrefix + v.Get("name") },
			Do: func(ctx context.Context, v url.Values, by driver.Cause) (string, error) {
				if err := driver.CheckName(timerPrefix + v.Get("name")); err != nil {
					return "", &BadRequestError{err.Error()}
				}
				defer p.timers.forget()
				return do(ctx, v.Get("name"), v, by)
			},
		}
	}
	inverse := func(a Action, back func(context.Context, url.Values) url.Values) Action {
		a.Inverse = back
		return a
	}
	end := action("Cancel a run of", cancelMeans, c.cancelRun)
	end.Destructive = true
	return map[string]Action{
		"pause":  inverse(action("Pause", pauseMeans, c.pause, PauseField()), c.undoPause),
		"resume": inverse(action("Resume", resumeMeans, c.resume), c.undoResume),
		"limit": inverse(action("Limit", limitMeans, c.limit, Field{Name: "n", Label: "Runs at once", Required: true,
			Number: true, Help: "0 to 10000"}), c.undoLimit),
		"unlimit": inverse(action("Reset the limit of", unlimitMeans, c.unlimit), c.undoLimit),
		"trigger": action("Trigger", triggerMeans, c.trigger,
			Field{Name: "payload", Label: "Payload", Multiline: true,
				Help: "Text that the handler gets; usually none."},
			Field{Name: "expires", Label: "Give up after", Value: "1h", Required: true, Help: "10s, 30m or 2h"}),
		"cancelrun": end,
	}
}

// PauseField asks for how long something is paused.
func PauseField() Field {
	return Field{Name: "for", Label: "For how long", Value: "1h", Required: true, Help: "30m, 2h or 36h",
		Presets: []Preset{{"15m", "15 minutes"}, {"1h", "1 hour"}, {"8h", "8 hours"},
			{"24h", "until tomorrow, this time"}, {"168h", "a week"}}}
}

// knows reports whether a host has a timer, or the store has had one of that name; true if that
// cannot be found out.
func (p *Page) knows(ctx context.Context, name string) bool {
	if driver.CheckName(timerPrefix+name) != nil {
		return true // Do says what is wrong with it
	}
	s, err := p.config.Registry.Snapshot(ctx)
	if err != nil || slices.ContainsFunc(s.Timers(), func(t *cluster.FleetTimer) bool { return t.Name == name }) {
		return true
	}
	known, err := p.config.Control.Known(ctx, name)
	return known || err != nil
}

// timerChanges change timers in the whole fleet.
type timerChanges struct{ control *control.Control }

func (t timerChanges) pause(ctx context.Context, name string, v url.Values, by driver.Cause) (string, error) {
	d, err := Duration(v.Get("for"))
	if err != nil {
		return "", err
	}
	until := time.Now().Add(d)
	return "paused until " + until.UTC().Format(time.RFC3339), t.control.Pause(ctx, name, until, by)
}

func (t timerChanges) resume(ctx context.Context, name string, _ url.Values, by driver.Cause) (string, error) {
	return "resumed", t.control.Resume(ctx, name, by)
}

func (t timerChanges) limit(ctx context.Context, name string, v url.Values, by driver.Cause) (string, error) {
	n, err := strconv.Atoi(v.Get("n"))
	if err != nil || n < 0 || n > driver.MaxSlots {
		return "", &BadRequestError{fmt.Sprintf("%q: use a number from 0 to %d", v.Get("n"), driver.MaxSlots)}
	}
	return fmt.Sprintf("limited to %d runs at once", n), t.control.SetMaxConcurrency(ctx, name, n, by)
}

func (t timerChanges) unlimit(ctx context.Context, name string, _ url.Values, by driver.Cause) (string, error) {
	return "limit reset", t.control.ResetMaxConcurrency(ctx, name, by)
}

func (t timerChanges) trigger(ctx context.Context, name string, v url.Values, by driver.Cause) (string, error) {
	d, err := Duration(v.Get("expires"))
	if err != nil {
		return "", err
	}
	return "triggered", t.control.Trigger(ctx, name, control.TriggerOptions{By: by, ExpiresIn: d,
		Payload: []byte(v.Get("payload"))})
}

func (t timerChanges) cancelRun(ctx context.Context, name string, v url.Values, by driver.Cause) (string, error) {
	id := v.Get("id")
	return "canceled run " + id, t.control.CancelRun(ctx, name, id, by)
}
