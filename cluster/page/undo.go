package page

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
	"github.com/tickslot/tickslot/dlock/driver"
)

// A doneBar says what was just done, and has a form that takes it back.
type doneBar struct {
	Text string
	Post string // URL of the form; "": it cannot be taken back
	// Fields are those of the form.
	Fields []Field
}

// inverse returns the values of the action that takes back what is about to be done; nil: there is
// none, or they are too many for a cookie and a URL.
func (a *Action) inverse(ctx context.Context, v url.Values) url.Values {
	if a.Inverse == nil {
		return nil
	}
	back := a.Inverse(ctx, maps.Clone(v))
	if back == nil || len(back.Encode()) > pagekit.MaxURL {
		return nil
	}
	return back
}

// undo adds the form that takes back what was done. The values come from a cookie, so they are
// checked: only an action that has an inverse itself is offered, and only for what was changed. The
// form is a POST like that of any change, and refused from other sites.
func (d *doneBar) undo(actions map[string]Action, a Action, q url.Values, encoded string) {
	v, err := url.ParseQuery(encoded)
	back, known := actions[v.Get("action")]
	if err != nil || !known || back.Inverse == nil || back.Many != a.Many {
		return
	}
	if q.Has(a.Many) && (len(v[a.Many]) != 1 || v.Get(a.Many) != q.Get(a.Many)) {
		return
	}
	for _, f := range back.Fields {
		d.Fields = append(d.Fields, Field{Name: f.Name, Value: v.Get(f.Name)})
		v.Del(f.Name)
	}
	d.Fields = append(d.Fields, Field{Name: "note", Value: "undo"})
	d.Post = "do?" + v.Encode()
}

// takeDone says what was just done, once: not when the page is loaded again, and not by a URL that
// anybody may have made.
func (p *Page) takeDone(w http.ResponseWriter, r *http.Request, access Access) *doneBar {
	cookies, q := r.CookiesNamed(doneCookie), r.URL.Query()
	a, known := p.actions[q.Get("done")]
	if !known || len(cookies) != 1 {
		return nil
	}
	action, back, _ := strings.Cut(cookies[0].Value, "?")
	if action != q.Get("done") {
		return nil
	}
	setDone(w, "", -1)
	d := &doneBar{Text: "Done: " + a.Title(q) + ". Hosts follow within seconds."}
	if access.Act {
		d.undo(p.actions, a, q, back)
	}
	return d
}

// undoPause ends the pause, or sets the one again that was there before.
func (t timerChanges) undoPause(ctx context.Context, v url.Values) url.Values {
	before, known := t.before(ctx, v)
	switch {
	case !known:
		return nil
	case before.Pause != nil:
		return pauseAgain(v, before)
	}
	return url.Values{"action": {"resume"}, "name": v["name"]}
}

// undoResume sets the pause again that is about to end.
func (t timerChanges) undoResume(ctx context.Context, v url.Values) url.Values {
	before, known := t.before(ctx, v)
	if !known || before.Pause == nil {
		return nil
	}
	return pauseAgain(v, before)
}

func pauseAgain(v url.Values, before driver.ControlState) url.Values {
	return url.Values{"action": {"pause"}, "name": v["name"],
		"for": {max(before.Pause.For, time.Second).Truncate(time.Second).String()}}
}

// undoLimit sets the override again that was there before, or resets the limit.
func (t timerChanges) undoLimit(ctx context.Context, v url.Values) url.Values {
	before, known := t.before(ctx, v)
	switch {
	case !known:
		return nil
	case before.Limit != nil:
		return url.Values{"action": {"limit"}, "name": v["name"], "n": {strconv.Itoa(before.Limit.Slots)}}
	case v.Get("action") == "unlimit": // there was none
		return nil
	}
	return url.Values{"action": {"unlimit"}, "name": v["name"]}
}

// before returns what operators have set for a timer. known is false if that cannot be read. Of
// several timers it is known only if nothing is set for any of them.
func (t timerChanges) before(ctx context.Context, v url.Values) (before driver.ControlState, known bool) {
	for _, name := range v["name"] {
		if driver.CheckName(timerPrefix+name) != nil {
			return before, false
		}
	}
	states, err := t.control.InspectAll(ctx, v["name"]...)
	if err != nil || len(states) != len(v["name"]) {
		return before, false
	}
	for _, state := range states {
		if state.Err != nil || len(states) > 1 && (state.Pause != nil || state.Limit != nil) {
			return before, false
		}
		before = state
	}
	return before, len(states) > 0
}
