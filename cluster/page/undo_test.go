package page_test

import (
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster/page"
)

var undoForm = regexp.MustCompile(`<form class="undo" method="post" action="([^"]*)">(.*?)<button>Undo</button>`)

// undone posts the Undo form of the page that follows a change; it fails the test if there is none.
func (f *fleet) undone(after *httptest.ResponseRecorder) *httptest.ResponseRecorder {
	f.t.Helper()
	text := f.getDone(after).Body.String()
	form := undoForm.FindStringSubmatch(text)
	if form == nil {
		f.t.Fatalf("nothing can be undone: %s", text)
	}
	fields := url.Values{}
	for _, field := range regexp.MustCompile(`name="([^"]*)" value="([^"]*)"`).FindAllStringSubmatch(form[2], -1) {
		fields.Set(field[1], html.UnescapeString(field[2]))
	}
	return f.post(html.UnescapeString(form[1]), fields)
}

// What was done can be undone by one click without a script: a pause ends, a pause that was ended
// is there again for as long as it would have been, and a limit is the one of before. A change that
// has no inverse offers nothing. The dialog offers lengths of time.
//
// Fails when undo forgets what was set before, or is offered for a trigger.
func TestAChangeCanBeUndone(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{Authorize: allow(operator)})
	f.timersAre("a&b", "c")
	f.has("timers", "All 2")
	f.has("confirm?action=pause&name=c", `list="for-presets"`, `<option value="24h">until tomorrow, this time</option>`)
	pause := func(name string) time.Duration {
		state, err := f.locks.Inspect(t.Context(), "timer:"+name)
		if err != nil || state[0].Err != nil {
			t.Fatal(state, err)
		}
		if state[0].Pause == nil {
			return 0
		}
		return state[0].Pause.For.Round(time.Hour)
	}
	limit := func() int {
		state, err := f.locks.Inspect(t.Context(), "timer:c")
		if err != nil || state[0].Limit == nil {
			return -1
		}
		return state[0].Limit.Slots
	}
	paused := f.post("do?action=pause&name=a%26b", url.Values{"for": {"3h"}})
	resumed := f.undone(paused)
	if got := pause("a&b"); got != 0 {
		t.Errorf("after the undo of a pause it is paused for %v", got)
	}
	f.undone(resumed)
	if got := pause("a&b"); got != 3*time.Hour {
		t.Errorf("after the undo of that, it is paused for %v, not 3h", got)
	}
	f.undone(f.post("do?action=pause&name=a%26b", url.Values{"for": {"9h"}}))
	if got := pause("a&b"); got != 3*time.Hour {
		t.Errorf("after the undo of a longer pause, it is paused for %v, not 3h", got)
	}
	f.undone(f.post("do?action=limit&name=c", url.Values{"n": {"2"}}))
	if got := limit(); got != -1 {
		t.Errorf("after the undo of a limit it is %d", got)
	}
	f.post("do?action=limit&name=c", url.Values{"n": {"2"}})
	f.undone(f.post("do?action=limit&name=c", url.Values{"n": {"5"}}))
	if got := limit(); got != 2 {
		t.Errorf("after the undo of a second limit it is %d, not 2", got)
	}
	f.undone(f.post("do?action=unlimit&name=c", nil))
	if got := limit(); got != 2 {
		t.Errorf("after the undo of a reset it is %d, not 2", got)
	}
	f.post("do?action=resume&name=a%26b", nil)
	f.post("do?action=unlimit&name=c", nil)
	f.undone(f.post("do?action=pause&name=a%26b&name=c", url.Values{"for": {"3h"}}))
	if pause("a&b") != 0 || pause("c") != 0 {
		t.Error("after the undo of two pauses, one is left")
	}
	text := f.getDone(f.post("do?action=trigger&name=c", url.Values{"expires": {"1h"}})).Body.String()
	if strings.Contains(text, ">Undo<") || !strings.Contains(text, "Done: Trigger c") {
		t.Errorf("a trigger can be undone: %s", text)
	}
}

// The cookie may be anybody's, from another program of the same host: it offers no action but the
// inverse of what the URL says, for the same timer, and none to a reader who may not act. The form
// is refused from another site.
//
// Fails when the values of the cookie are believed.
func TestUndoBelievesNoCookie(t *testing.T) {
	t.Parallel()
	act := operator
	f := newFleet(t, page.Config{Authorize: func(*http.Request) page.Access { return act }})
	f.timersAre("a", "b")
	f.has("timers", "All 2")
	for cookie, offered := range map[string]bool{
		"pause?action=resume&name=a":           true,
		"pause?action=resume&name=b":           false,
		"pause?action=resume&name=a&name=b":    false,
		"pause?action=cancelrun&name=a&id=0-1": false,
		"pause?action=trigger&name=a":          false,
		"pause?action=%zz":                     false,
		"resume?action=resume&name=a":          false,
		"pause":                                false,
	} {
		r := request("GET", "timer?name=a&done=pause", "")
		r.AddCookie(&http.Cookie{Name: "tickslot-done", Value: cookie})
		if text := serve(f.page, r).Body.String(); strings.Contains(text, ">Undo<") != offered {
			t.Errorf("%s: offered is not %v: %s", cookie, offered, text)
		}
	}
	r := request("POST", "do?action=resume&name=a", "note=undo")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if w := serve(f.page, r); w.Code != http.StatusForbidden {
		t.Errorf("from another site: %d", w.Code)
	}
	done := f.post("do?action=pause&name=a", url.Values{"for": {"1h"}})
	act.Act = false
	act.Read = true
	text := f.getDone(done).Body.String()
	if strings.Contains(text, ">Undo<") || !strings.Contains(text, "Done: Pause a") {
		t.Errorf("a reader may undo: %s", text)
	}
}
