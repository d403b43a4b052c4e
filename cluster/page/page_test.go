package page_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/timer"
)

// has fails the test if a text does not come to be on a page: what others have read is shared for a
// second.
func (f *fleet) has(target string, want ...string) {
	f.t.Helper()
	for _, text := range want {
		html := ""
		err := testkit.Poll(5*time.Second, "the text is there", func() bool {
			html = f.get(target)
			return strings.Contains(html, text)
		})
		if err != nil {
			f.t.Fatalf("%s has no %s: %s", target, text, html[strings.Index(html, "<main"):])
		}
	}
}

// New returns all faults at once: a page of which nobody has said who may read it is one.
//
// Fails when New returns with the first fault, or demands more.
func TestNewReturnsEveryFault(t *testing.T) {
	t.Parallel()
	view := map[string]page.View{"timers": nil}
	_, err := page.New(page.Config{RefreshInterval: 1, Hosts: []string{"https://ops.example.com"},
		Sections: []page.Section{{Views: view}}})
	for _, want := range []string{"Registry", "Authorize: page.Loopback", "RefreshInterval", "Hosts", `a page called "timers"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %s in: %v", want, err)
		}
	}
}

// The overview says in words what needs attention: hosts that are silent or gone, with what they
// hold, loops that fail, clocks that are off, limits that differ, and timers that fail, with who
// has their slot.
//
// Fails when a sort of notice is left out.
func TestOverviewSaysWhatNeedsAttention(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{})
	f.has("", "Nothing.")
	report := func(limit int) cluster.HostDetail {
		return cluster.HostDetail{Timers: []cluster.TimerDetail{{Name: "report", MaxConcurrency: limit}}}
	}
	f.host("fast", cluster.Heartbeat{ClockOffset: 3 * time.Second, AppVersion: "v1"}, report(2))
	loops := report(3)
	loops.Runners = []cluster.RunnerDetail{{Kind: "prober", Name: "redis", State: "store_down",
		Err: "connection refused"}}
	f.host("sad", cluster.Heartbeat{AppVersion: "v2"}, loops)
	if _, err := f.session.Semaphore("timer:report", 2).TryAcquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		f.registry.RecordRun(cluster.Run{Timer: "report", Outcome: "error", Err: fmt.Sprint("disk full ", i)})
	}
	f.host("dead", cluster.Heartbeat{TTL: time.Millisecond}, cluster.HostDetail{})
	f.host("stranger", cluster.Heartbeat{Environment: "staging"}, cluster.HostDetail{Refused: true})
	testkit.Eventually(t, 25*time.Second, "all is seen", func() bool {
		return strings.Contains(f.get(""), "report is failing since ")
	})
	f.has("", "dead/1/x is gone without having stopped in good order", "The clock of fast/1/x is 3 s off",
		"prober redis on sad/1/x: store_down: "+
			"connection refused", "Hosts differ in the limit of report: 2 on 1, 3 on 1", "different versions",
		"stranger/1/x is of environment staging and was refused: it takes no work", "slot 0 is held by host-1",
		"disk full", ", 3 in a row: ",
		`href="timer?name=report"`)
	f.has("hosts?state=refused", "stranger/1/x", `<span class="state bad">refused</span>`)
	v := f.json("")
	notices := v["attention"].([]any)
	if first := notices[0].(map[string]any); first["urgent"] != true || v["leases_held"] != 1.0 {
		t.Errorf("%+v", v)
	}
}

// The page of a timer shows its slots with holder and fence, its runs, its ticks, and what was
// changed; each change asks for confirmation, is made in the fleet, and is recorded with the name
// of who made it.
//
// Fails when an action calls another method, when the actor is not told, and when what was changed
// is not shown at once.
func TestTimerIsShownAndChanged(t *testing.T) {
	t.Parallel()
	began, end := make(chan struct{}), make(chan error, 1)
	var once sync.Once
	work := func(ctx context.Context) error {
		once.Do(func() { close(began) })
		<-ctx.Done()
		end <- context.Cause(ctx)
		return nil
	}
	config := page.Config{Authorize: allow(operator)}
	f := newFleet(t, config)
	scheduler := f.startTimers(work)
	config.Registry, config.Timers, config.Logger = f.registry, scheduler, slog.New(slog.DiscardHandler)
	var err error
	if f.page, err = page.New(config); err != nil {
		t.Fatal(err)
	}
	if _, err := scheduler.Trigger(t.Context(), "report", timer.TriggerOptions{}); err != nil {
		t.Fatal(err)
	}
	<-began
	testkit.Eventually(t, 5*time.Second, "its slot is seen", func() bool {
		return strings.Contains(f.get("timer?name=report"), "1 of 3 slots are held")
	})
	f.has("timer?name=report", `<a href="timers" aria-current="true">`, "Next ticks", "every 1 h<",
		`class="held"`, "host-1/11/a", "Pause…")
	f.has("timers", "1 of 3", `href="timer?name=report"`)
	f.has("timers?q=REP&state=running", "report")
	if html := f.get("timers?q=other"); strings.Contains(html, "report") {
		t.Error("a timer is found that was not searched for")
	}
	id := scheduler.Status().Timers[0].Running[0].ID
	f.has("timer?name=report", "action=cancelrun&amp;id="+id)

	if html := f.get("confirm?action=pause&name=report"); strings.Contains(html, "aria-current") {
		t.Error("a page that is in no section is shown as one that is")
	}
	f.has("confirm?action=pause&name=report", "No host starts it until then", `method="post"`, `name="for"`,
		`name="note"`,
		"do?action=pause&amp;name=report")
	change := func(action string, fields url.Values) *httptest.ResponseRecorder {
		t.Helper()
		w := f.post(page.URL("do", "action", action, "name", "report", "id", id), fields)
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "timer?done="+action+"&name=report" {
			t.Fatalf("%s: %d %v: %s", action, w.Code, w.Header(), w.Body)
		}
		return w
	}
	f.get("timer?name=report") // what was read before is not shown after a change
	paused := change("pause", url.Values{"for": {"2h"}, "note": {"the database is moved"}})
	if html := f.getDone(paused).Body.String(); !strings.Contains(html, "by ann: the database is moved") ||
		!strings.Contains(html, "Done: Pause report") {
		t.Errorf("the pause is not shown at once: %s", html)
	}
	f.has("timer?name=report&done=pause", "by ann: the database is moved", "Resume…")
	change("resume", nil)
	if html := f.get("timer?name=report"); strings.Contains(html, "the database is moved, until") {
		t.Error("it is still paused")
	}
	change("limit", url.Values{"n": {"2"}})
	f.has("timer?name=report", "The limit is set to 2 <bdi>by ann")
	change("unlimit", nil)
	change("limit", url.Values{"n": {"0"}})
	change("trigger", url.Values{"payload": {"all of it"}, "expires": {"1m"}})
	f.has("timer?name=report", "Triggers that wait", "9 bytes")
	change("cancelrun", nil)
	if err := scheduler.CancelRun("report", id, driver.Cause{By: "test"}); err != nil &&
		!errors.Is(err, timer.ErrNoRun) {
		t.Error(err) // it may have heard of it meanwhile: a heartbeat is a third of a TTL away
	}
	if cause := <-end; !errors.Is(cause, timer.ErrCanceled) {
		t.Errorf("the run ended because of %v", cause)
	}
	for _, c := range []struct {
		action string
		fields url.Values
		want   int
	}{{"pause", url.Values{"for": {"soon"}}, 400}, {"pause", nil, 400}, {"limit", url.Values{"n": {"-1"}}, 400},
		{"limit", url.Values{"n": {"x"}}, 400}, {"nothing", nil, 404}, {"resume", url.Values{"note": {"\x00"}}, 400},
		{"cancelrun", nil, 409}} {
		w := f.post(page.URL("do", "action", c.action, "name", "report", "id", "7-1"), c.fields)
		if w.Code != c.want {
			t.Errorf("%s %v: %d, want %d: %s", c.action, c.fields, w.Code, c.want, w.Body)
		}
	}
	testkit.Eventually(t, 5*time.Second, "events name the operator", func() bool {
		html := f.get("events?state=operator")
		return strings.Contains(html, "by ann: Pause report: paused until") && strings.Contains(html,
			": the database is moved")
	})
}

// The page of a timer says what this host decided about its latest ticks, and why.
//
// Fails when addLocal leaves the decisions out.
func TestDecisionsAreShownWithReasons(t *testing.T) {
	t.Parallel()
	config := page.Config{Authorize: allow(operator)}
	f := newFleet(t, config)
	config.Registry, config.Logger = f.registry, slog.New(slog.DiscardHandler)
	release := make(chan struct{})
	config.Timers = f.startTimersEvery(100*time.Millisecond, func(context.Context) error { <-release; return nil })
	t.Cleanup(func() { close(release) }) // before the scheduler is drained
	var err error
	if f.page, err = page.New(config); err != nil {
		t.Fatal(err)
	}
	f.has("timer?name=report", ">running</span>", "in slot 0", ">host_full</span>",
		"MaxPerHost (3) runs were active")
	if list := f.json("timer?name=report")["decisions"].([]any); len(list) < 4 {
		t.Error(list)
	}
}

// A pause is on the list of timers and on the overview, with who made it, also if this process does
// not run the timer; and it is gone at once when it was ended here.
//
// Fails when pausedRows looks only at what this process knows, or forget leaves the pauses out.
func TestPausesAreSeenWithoutAScheduler(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{Authorize: allow(operator)})
	f.host("h", cluster.Heartbeat{}, cluster.HostDetail{Timers: []cluster.TimerDetail{{Name: "report",
		MaxConcurrency: 1}, {Name: "other", MaxConcurrency: 1}}})
	f.has("timers?state=idle", "report")
	f.post("do?action=pause&name=report", url.Values{"for": {"1h"}, "note": {"the database is moved"}})
	f.has("timers?state=paused", "by ann: the database is moved", "1 to 1 of 1")
	f.has("", "report is paused by ann: the database is moved, for another 59 min", `state=paused">1 paused`)
	f.post("do?action=resume&name=report", nil)
	if html := f.get("timers"); strings.Contains(html, "the database is moved") {
		t.Errorf("it is still paused: %s", html)
	}
	f.post("do?action=limit&name=other", url.Values{"n": {"0"}})
	f.has("timers?state=paused", "other", "1 to 1 of 1")
	f.has("timer?name=other", "until its limit is changed")
	f.has("", "other is paused by ann, until its limit, which is 0, is changed.")
}

// A change is in the log, with who made it, and so is one that failed.
//
// Fails when tell is not called, or only after success.
func TestChangesAreLogged(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{Authorize: allow(operator)})
	f.host("h", cluster.Heartbeat{}, cluster.HostDetail{Timers: []cluster.TimerDetail{{Name: "report",
		MaxConcurrency: 1}}})
	f.has("timers", "report")
	r := request("POST", "do?action=pause&name=report", "for=1h&note=why+not")
	r.Header.Set("Accept", "application/json")
	if w := serve(f.page, r); w.Code != 200 || !strings.Contains(w.Body.String(), `"done": "paused until `) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	f.post("do?action=cancelrun&name=report&id=0-1", nil)
	log := f.log.String()
	for _, want := range []string{"an operator changed something", "action=pause", `what="Pause report"`, "by=ann",
		`note="why not"`, "peer=127.0.0.1:1234", "an operator's change failed", "action=cancelrun"} {
		if !strings.Contains(log, want) {
			t.Errorf("no %s in %s", want, log)
		}
	}
}

// A list shows what the URL asks for, a hundred rows at a time, and says so in the URLs of the
// others.
//
// Fails when pageOf forgets the filter, and when a filter is not looked at.
func TestFiltersAreInTheURL(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{})
	var detail cluster.HostDetail
	for i := range 250 {
		detail.Timers = append(detail.Timers, cluster.TimerDetail{Name: fmt.Sprintf("t%03d", i), MaxConcurrency: -1})
	}
	f.host("big", cluster.Heartbeat{}, detail)
	if _, err := f.session.Mutex("leader:relay").TryAcquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.has("timers?q=t", "1 to 100 of 250", `href="timers?page=1&amp;q=t"`)
	f.has("timers?q=t&page=2", "201 to 250 of 250", `href="timers?page=1&amp;q=t"`, "t249")
	f.has("timers?page=99&q=t24", "1 to 10 of 10")
	f.has("hosts?state=alive&q=big", "big/1/x")
	if html := f.get("hosts?state=gone"); strings.Contains(html, "big/1/x") {
		t.Error("a host that is alive is shown as gone")
	}
	f.has("leaders", "leader:relay", "host-1/11/a", "this process")
	f.has("leases?kind=leader&state=held&q=RELAY&host=host-1%2F11%2Fa", "leader:relay")
	if html := f.get("leases?kind=timer"); strings.Contains(html, "leader:relay") {
		t.Error("a leader is shown as a timer")
	}
}

// All viewers together cost at most five calls to stores per second and page, whatever they look
// at; a store that is down is said, with the age of what is shown.
//
// Fails when a view reads by itself, or when what is wrong is not shown.
func TestViewersShareWhatIsRead(t *testing.T) {
	t.Parallel()
	f := newFleetThatReads(t, page.Config{Authorize: allow(operator)}, snapshotAge)
	f.host("h", cluster.Heartbeat{}, cluster.HostDetail{Timers: []cluster.TimerDetail{{Name: "report",
		MaxConcurrency: 1}}})
	for _, target := range []string{"", "timers", "timer?name=report", "hosts", "leases", "leaders", "events"} {
		time.Sleep(snapshotAge) // until what was read is old
		began := time.Now()
		rows, locks := f.rows.calls.Load(), f.locks.calls.Load()
		var viewers sync.WaitGroup
		for range 20 {
			viewers.Go(func() { serve(f.page, request("GET", target, "")) })
		}
		viewers.Wait()
		calls := f.rows.calls.Load() - rows + f.locks.calls.Load() - locks
		seconds := 1 + int64(time.Since(began)/time.Second)
		if calls > 5*seconds || calls == 0 {
			t.Errorf("%q: %d calls in %v", target, calls, time.Since(began))
		}
	}
	f.rows.down.Store(true)
	testkit.Eventually(t, 5*time.Second, "it is said", func() bool {
		return strings.Contains(f.get("hosts"), "A store does not answer")
	})
	f.has("hosts", "the registry is down", "This is as of", "h/1/x")
	f.has("", "The store does not answer (the registry is down).", "Stale")
	if text := f.json("hosts")["err"]; !strings.Contains(fmt.Sprint(text), "the registry is down") {
		t.Error(text)
	}
}

// The page stands under any prefix, whether the mux strips it or not, and changes lead back to it.
//
// Fails when a URL is absolute.
func TestAnyPrefix(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{Authorize: allow(operator)})
	mux := http.NewServeMux()
	mux.Handle("/ops/", f.page)
	mux.Handle("/a/b/", http.StripPrefix("/a/b", f.page))
	for _, prefix := range []string{"/ops/", "/a/b/"} {
		for _, name := range []string{"", "timers", "page.css", "page.js", "openapi.json"} {
			if w := serve(mux, request("GET", prefix+name, "")); w.Code != 200 || w.Body.Len() == 0 {
				t.Errorf("%s%s: %d", prefix, name, w.Code)
			}
		}
		w := serve(mux, request("POST", prefix+"do?action=pause&name=report", "for=1h&force=yes"))
		if to := w.Header().Get("Location"); w.Code != 303 || to != "timer?done=pause&name=report" {
			t.Errorf("%s: %d, to %q", prefix, w.Code, to)
		}
		if w := serve(mux, request("GET", prefix+"nothing", "")); w.Code != 404 {
			t.Errorf("%d", w.Code)
		}
	}
}
