package page_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/timer"
)

// A timer that no host and no store knows is changed only after the user has confirmed it once
// more. If a field has a wrong value, the form says so and keeps all values; it is no fault of the
// store.
//
// Fails when do does not ask Known, or answers what is wrong without the form.
func TestWhatIsTypedWrongIsAskedAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{Authorize: allow(operator)})
	f.host("h", cluster.Heartbeat{}, cluster.HostDetail{Timers: []cluster.TimerDetail{{Name: "report",
		MaxConcurrency: 1}}})
	f.has("timers", "report")
	const typed = "the database is moved"
	for what, c := range map[string]struct {
		action, name string
		fields       url.Values
		want         string
	}{
		"a misspelt name":     {"pause", "reprot", url.Values{"for": {"2h"}}, "No host and no store knows it"},
		"a control character": {"pause", "a\x01b", url.Values{"for": {"2h"}}, "has a control character"},
		"one in a field":      {"pause", "report", url.Values{"for": {"2\x01h"}}, "For how long: "},
		"no length of time":   {"pause", "report", url.Values{"for": {"soon"}}, "is not a length of time"},
		"an empty field":      {"pause", "report", nil, "For how long: fill it in"},
		"a negative limit":    {"limit", "report", url.Values{"n": {"-1"}}, "use a number from 0"},
		"a long payload": {"trigger", "report", url.Values{"expires": {"1h"},
			"payload": {strings.Repeat("x", timer.MaxPayloadLen+1)}}, "payload"},
	} {
		fields := url.Values{"note": {typed}}
		for name, values := range c.fields {
			fields[name] = values
		}
		target := page.URL("do", "action", c.action, "name", c.name)
		w := f.post(target, fields)
		html := w.Body.String()
		if w.Code != http.StatusBadRequest || !strings.Contains(html, c.want) || !strings.Contains(html, typed) ||
			!strings.Contains(html, `method="post"`) || !strings.Contains(html, "Change nothing") {
			t.Errorf("%s: %d: %.2000s", what, w.Code, html)
		}
		r := request("POST", target, fields.Encode())
		r.Header.Set("Accept", "application/json")
		if w := serve(f.page, r); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), `"error"`) {
			t.Errorf("%s, as JSON: %d %s", what, w.Code, w.Body)
		}
	}
	if state, err := f.locks.Inspect(t.Context(), "timer:reprot"); err != nil || state[0].Pause != nil {
		t.Errorf("it is paused: %+v, %v", state, err)
	}
	if w := f.post("do?action=pause&name=reprot", url.Values{"for": {"2h"}, "force": {"yes"}}); w.Code != 303 {
		t.Errorf("asked for once more: %d %s", w.Code, w.Body)
	}
	if html := serve(f.page, request("GET", "nothing", "")).Body.String(); !strings.Contains(html, `href="."`) ||
		!strings.Contains(html, "To the overview") {
		t.Errorf("no way back: %s", html)
	}
}

// If an action changes everything of a name and cannot be undone, the user has to type the name
// first, as it is or as the page shows it. Programs, which ask for JSON, have it in the URL.
//
// Fails when do does not look at what was typed.
func TestANameIsTyped(t *testing.T) {
	t.Parallel()
	done := 0
	title := func(v url.Values) string { return "Empty " + v.Get("box") }
	f := newFleet(t, page.Config{Authorize: allow(operator), Sections: []page.Section{{Actions: map[string]page.Action{
		"empty": {Title: title, TypeName: "box", Back: func(url.Values) string { return "timers" },
			Do: func(context.Context, url.Values, driver.Cause) (string, error) { done++; return "emptied", nil }},
	}}}})
	const name = "mail\u202e"
	target := page.URL("do", "action", "empty", "box", name)
	f.has(page.URL("confirm", "action", "empty", "box", name), "Type its name", `name="typed"`, `The name is mail\u202e`)
	for _, typed := range []string{"", "mail", "Mail\u202e", "*"} {
		w := f.post(target, url.Values{"typed": {typed}, "note": {"spring"}})
		if w.Code != http.StatusBadRequest || done > 0 || !strings.Contains(w.Body.String(), `value="spring"`) {
			t.Errorf("%q: %d: %s", typed, w.Code, w.Body)
		}
	}
	for _, typed := range []string{name, `mail\u202e`, " " + name} {
		if w := f.post(target, url.Values{"typed": {typed}}); w.Code != http.StatusSeeOther {
			t.Errorf("%q: %d: %s", typed, w.Code, w.Body)
		}
	}
	r := request("POST", target, "")
	r.Header.Set("Accept", "application/json")
	if w := serve(f.page, r); w.Code != http.StatusOK || done != 4 {
		t.Errorf("a program: %d, %d: %s", w.Code, done, w.Body)
	}
}
