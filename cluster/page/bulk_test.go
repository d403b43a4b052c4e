package page_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/internal/testkit"
)

// timersAre adds a host with timers.
func (f *fleet) timersAre(names ...string) {
	f.t.Helper()
	var detail cluster.HostDetail
	for _, name := range names {
		detail.Timers = append(detail.Timers, cluster.TimerDetail{Name: name, MaxConcurrency: 1})
	}
	f.host("h", cluster.Heartbeat{}, detail)
}

// order returns the timers of a list as they are shown.
func order(html string) (names []string) {
	for _, row := range strings.Split(html, `<bdi title="`)[1:] {
		name, _, _ := strings.Cut(row, `"`)
		names = append(names, name)
	}
	return names
}

// The list of timers begins with what needs attention, has a tab for each state with how many there
// are, sorts by what is asked for, and finds a timer by its error, and by who has paused it.
//
// Fails when sortRows, tabsOf or texts leave one of these out.
func TestTimersAreSortedAndFound(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{Authorize: allow(operator)})
	f.timersAre("b", "c", "a", "d")
	f.has("timers", "All 4")
	for range 3 {
		f.registry.RecordRun(cluster.Run{Timer: "d", Outcome: "error", Err: "disk <full>", Took: time.Second})
	}
	f.registry.RecordRun(cluster.Run{Timer: "a", Outcome: "ok", Took: time.Minute})
	f.post("do?action=pause&name=c", url.Values{"for": {"1h"}, "note": {"the moon"}})
	f.has("timers", "Failing 1", "Paused 1", "All 4", "disk &lt;full&gt;", "3 in a row",
		"the last 3 runs took 1 s to 1 s")
	for target, want := range map[string]string{"timers": "[d c a b]", "timers?sort=name": "[a b c d]",
		"timers?sort=-name": "[d c b a]", "timers?sort=p95": "[a d b c]", "timers?q=FULL": "[d]",
		"timers?q=moon": "[c]", "timers?q=ann": "[c]",
		"timers?state=failing": "[d]", "timers?sort=nothing": "[d c a b]"} {
		testkit.Eventually(t, 5*time.Second, target, func() error {
			if got := fmt.Sprint(order(f.get(target))); got != want {
				return fmt.Errorf("%s, want %s", got, want)
			}
			return nil
		})
	}
	f.has("timers?q=d&sort=p95&state=failing", `href="timers?q=d&amp;sort=-p95&amp;state=failing"`,
		`aria-sort="ascending"`, `href="timers?q=d&amp;sort=p95&amp;state=paused"`)
	f.has("timers?q=zzz", `No timer matches. <a href="timers">Show all timers</a>`)
}

// Several timers are paused, resumed and triggered at once, after one question that names each, and
// each change is in the log and among the events by itself. If some of it fails, the answer says
// how much was done; without a choice nothing is done.
//
// Fails when each or record is left out, or when a failure ends it before the others.
func TestSeveralTimersAreChangedAtOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{Authorize: allow(operator)})
	f.timersAre("a", "b", "c")
	f.has("timers", `<input type="checkbox" name="name" value="a"`, `name="action" value="pause"`)
	f.has("confirm?action=pause&name=a&name=b", "Pause 2 timers", "<li><bdi>a</bdi></li><li><bdi>b</bdi></li>",
		`action="do?action=pause&amp;name=a&amp;name=b"`)
	w := f.post("do?action=pause&name=a&name=b", url.Values{"for": {"1h"}})
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "timers?done=pause" {
		t.Fatalf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	if html := f.getDone(w).Body.String(); !strings.Contains(html, "Done: Pause timers") {
		t.Errorf("it is not said: %s", html)
	}
	f.has("timers?state=paused", "1 to 2 of 2")
	for _, want := range []string{`what="Pause a"`, `what="Pause b"`} {
		if !strings.Contains(f.log.String(), want) {
			t.Errorf("no %s in %s", want, f.log.String())
		}
	}
	f.has("events?state=operator", "Pause a: paused until", "Pause b: paused until")
	bad := strings.Repeat("x", 1000) // no store has such a name
	w = f.post(page.URL("do", "action", "resume", "name", bad)+"&name=a", nil)
	if w.Code < 400 || !strings.Contains(w.Body.String(), "done to 1 of 2: Resume xxx") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	f.has("timers?state=paused", "1 to 1 of 1")
	for _, target := range []string{"confirm?action=pause", "confirm?action=pause&name="} {
		if w := serve(f.page, request("GET", target, "")); w.Code != http.StatusBadRequest ||
			!strings.Contains(w.Body.String(), "nothing is chosen") {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
	if w := f.post("do?action=trigger", url.Values{"expires": {"1h"}}); w.Code != http.StatusBadRequest {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Timers that fail for one cause are one card on the overview, which says since when, and pauses
// all of them; what is only good to know is folded.
//
// Fails when problemsOf makes a card for each, or a notice says the same again.
func TestProblemsAreGroupedByCause(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{Authorize: allow(operator)})
	f.timersAre("a", "b", "c", "d")
	f.has("timers", "All 4")
	f.registry.RecordRun(cluster.Run{Timer: "b", Outcome: "ok"})
	for range 3 {
		for _, name := range []string{"a", "b"} {
			f.registry.RecordRun(cluster.Run{Timer: name, Outcome: "error", Err: "connection <refused>"})
		}
		f.registry.RecordRun(cluster.Run{Timer: "c", Outcome: "panic", Err: "boom"})
	}
	f.post("do?action=pause&name=d", url.Values{"for": {"1h"}})
	f.has("", "</a> and 1 more", "one cause", `href="confirm?action=pause&amp;name=a&amp;name=b"`,
		`%3Crefused%3E&amp;state=failing"`, "connection &lt;refused&gt;",
		`href="confirm?action=trigger&amp;name=c"`, "2 more to know", "different versions", "d is paused by ann")
	html := f.get("")
	if cards := strings.Count(html, `<article class="card">`); cards != 2 || strings.Contains(html, `class="urgent"`) {
		t.Errorf("%d cards: %s", cards, html)
	}
	if notices := f.json("")["attention"].([]any); len(notices) != 5 {
		t.Errorf("the JSON has %v", notices)
	}
}

// Of very many problems the overview has as many cards as anybody reads, and says how many more
// there are. Of a timer whose latest runs are not among those of the fleet, the outcomes are shown.
//
// Fails when each problem has a card, when the others are not counted, and when a strip has only
// the runs.
func TestVeryManyProblemsAreCounted(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{Authorize: allow(operator)})
	var names []string
	for i := range 70 {
		names = append(names, fmt.Sprint("t", i))
		for range 3 {
			f.registry.RecordRun(cluster.Run{Timer: names[i], Outcome: "error", Err: fmt.Sprint("fault ", i)})
		}
	}
	f.timersAre(names...)
	f.has("timers", "Failing 70", "of the last 3 runs 3 failed")
	f.has("", "And 20 more.", "1 more to know")
	if cards := strings.Count(f.get(""), `<article class="card">`); cards != 50 {
		t.Errorf("%d cards", cards)
	}
}

// What is chosen may be more than fits into a URL: then a form sends it, to the page that asks and
// from there, and names of any text arrive as they are. No URL is longer than all proxies take.
// Another site may not send it.
//
// Fails when Link has no bound, when the page that asks forgets what was chosen, or takes it from
// another site.
func TestMuchIsChosenByAForm(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{Authorize: allow(operator)})
	var names []string
	for i := range 99 {
		names = append(names, fmt.Sprint("billing.recalculate-all-open-positions-", i))
	}
	names = append(names, "a&b=ü; +%\u202e")
	for _, name := range names {
		for range 3 {
			f.registry.RecordRun(cluster.Run{Timer: name, Outcome: "error", Err: "connection refused"})
		}
	}
	f.timersAre(names...)
	f.has("timers", "Failing 100")
	f.has("", "and 99 more", "Pause all…</button>")
	overview := f.get("")
	for _, link := range regexp.MustCompile(`(?:href|action)="([^"]*)"`).FindAllStringSubmatch(overview, -1) {
		if len(link[1]) > 2000 {
			t.Errorf("a URL has %d characters: %s", len(link[1]), link[1])
		}
	}
	found := regexp.MustCompile(`action="(confirm\?action=pause)"><button name="chosen" value="([^"]*)"`).
		FindStringSubmatch(overview)
	if found == nil {
		t.Fatal(overview)
	}
	w := f.post(found[1], url.Values{"chosen": {html.UnescapeString(found[2])}})
	asked := regexp.MustCompile(`action="(do\?action=pause)"`).FindStringSubmatch(w.Body.String())
	kept := regexp.MustCompile(`<input type="hidden" name="chosen" value="([^"]*)"`).FindStringSubmatch(w.Body.String())
	if w.Code != http.StatusOK || asked == nil || kept == nil || strings.Count(w.Body.String(), "<li><bdi>") != 100 {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	fields := url.Values{"chosen": {html.UnescapeString(kept[1])}, "for": {"soon"}}
	if w := f.post(asked[1], fields); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), kept[0]) {
		t.Errorf("what was chosen is forgotten: %d: %s", w.Code, w.Body)
	}
	fields.Set("for", "1h")
	w = f.post(asked[1], fields)
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "timers?done=pause" {
		t.Fatalf("%d: %v: %s", w.Code, w.Header(), w.Body)
	}
	for _, name := range []string{names[0], names[99]} {
		if state, err := f.locks.Inspect(t.Context(), "timer:"+name); err != nil || state[0].Pause == nil {
			t.Errorf("%q is not paused: %+v, %v", name, state, err)
		}
	}
	w = f.post("confirm", url.Values{"action": {"resume"}, "name": names[:2]}) // of the list
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "Resume 2 timers") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
	r := request("POST", "confirm", url.Values{"action": {"resume"}, "name": names[:2]}.Encode())
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if w := serve(f.page, r); w.Code != http.StatusForbidden {
		t.Errorf("from another site: %d", w.Code)
	}
	if w := f.post("confirm?action=pause", url.Values{"chosen": {"name=%zz"}}); w.Code != http.StatusBadRequest {
		t.Errorf("no query: %d", w.Code)
	}
}
