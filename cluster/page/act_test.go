package page_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
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
