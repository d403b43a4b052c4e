package page_test

import (
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/cluster/page/internal/pagetest"
	"github.com/tickslot/tickslot/dlock"
)

// The page of a timer counts runs that ended with the same error, draws who has had which slot, a
// lane for each slot and one for runs without, and how long runs took; what a run says is only text
// there, too.
//
// Fails when failuresOf makes a group for each run, and when lanesOf leaves out a slot.
func TestATimersRunsAreGroupedAndDrawn(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{Authorize: allow(operator)})
	f.timersAre("report", "long")
	f.has("timers", ">report<", ">long<")
	for i := range 3 {
		f.registry.RecordRun(cluster.Run{Timer: "report", Outcome: "error", Err: "<b>full</b>", Slot: i,
			Took: time.Second})
	}
	f.registry.RecordRun(cluster.Run{Timer: "report", Outcome: "panic", Err: "x", Slot: -1, Took: 2 * time.Second})
	f.registry.RecordRun(cluster.Run{Timer: "report", Outcome: "ok", Took: 4 * time.Second})
	f.has("timer?name=report", "of the last 5 runs", "3 ×", "1 ×", "&lt;b&gt;full&lt;/b&gt;", "<li>slot 0</li>",
		"<li>slot 2</li>", "<li>no slot</li>", "<title>error on host-1, took 1 s", "<title>ok on host-1, took 4 s",
		`class="h0 not-ok"`, "<dd>1 s / 4 s</dd>", `<p class="soft">4 s</p>`)
	html := f.get("timer?name=report")
	if strings.Contains(html, "<li>slot 3</li>") || strings.Count(html, `r="4"`) != 5 ||
		strings.Contains(html, "<b>full") {
		t.Error(html)
	}
	groups := f.json("timer?name=report")["failures"].([]any)
	if len(groups) != 2 {
		t.Fatal(groups)
	}
	for _, g := range groups {
		if g := g.(map[string]any); g["err"] == "<b>full</b>" && g["count"] != 3.0 {
			t.Error(g)
		}
	}
	for slot := range 2 {
		if _, err := f.session.Semaphore("timer:long", 2).TryAcquire(t.Context()); err != nil {
			t.Fatal(slot, err)
		}
	}
	f.has("timer?name=long", "2 of 1 slots are held", "<title>held by host-1 for", "<li>slot 1</li>")
}

var p50Bars = regexp.MustCompile(`<path class="p50" d="M\d+ 80v-8h1v8zM\d+ 80v-8h1v8z"`)

// The overview and the page of a timer draw how many runs ended when and how many of them failed,
// by five minutes for a day and by the hour for a month, with a tooltip for each and all of it in
// words. The page of a timer draws p50, p95 and the longest run beside it. What has never been read
// is said to be unknown, and not that there was nothing.
//
// Fails when chartOf leaves out a bucket or takes those of another width, when a chart takes those
// of all timers for one, and when an error of the registry is not shown.
func TestRunsAreDrawnByTime(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{Authorize: allow(operator)})
	f.timersAre("report", "idle")
	var buckets []cluster.Bucket
	add := func(timer string, width, ago time.Duration, bin, runs, failed int, each time.Duration) {
		buckets = append(buckets, cluster.Bucket{Timer: timer, Interval: width, Ago: ago, Bin: bin, Runs: runs,
			Failed: failed, Took: time.Duration(runs) * each, LongestTook: each})
	}
	count := func(timer string, width, ago time.Duration, runs, failed int) {
		switch {
		case timer == "":
			add(timer, width, ago, 0, runs, failed, time.Second)
		case runs == 40:
			add(timer, width, ago, 11, 37, failed, time.Second)
			add(timer, width, ago, 13, 2, 0, 4*time.Second)
			add(timer, width, ago, 15, 1, 0, 9*time.Second)
		default:
			add(timer, width, ago, 11, runs, failed, time.Second)
		}
	}
	for _, timer := range []string{"", "report"} {
		count(timer, cluster.FineBucket, 2*time.Hour, 40, 1)
		count(timer, cluster.FineBucket, 3*time.Hour, 10, 0)
		count(timer, cluster.CoarseBucket, 20*24*time.Hour, 500, 7)
	}
	count("", cluster.FineBucket, 2*time.Hour, 20, 0)
	if _, err := f.rows.Write(t.Context(), cluster.Batch{Number: 1, Buckets: buckets, Host: &cluster.Heartbeat{
		Holder: dlock.Holder{Host: "h", PID: 1, ID: "x"}, TTL: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	f.has("timers", ">idle<")
	f.rows.down.Store(true)
	f.has("timer?name=report", "It is not known how many ended when: ", "the registry is down")
	f.rows.down.Store(false)
	f.has("timer?name=report", `aria-label="Runs by when they ended, within a day: 50, of which 1 failed; at most 40 in `+
		`5 min"`, "> 49 succeeded<", "> 1 failed<", ": 40 runs, 1 failed</title>", ": 10 runs, 0 failed</title>",
		": p50 1 s, p95 4 s, longest 9 s</title>", ": p50 1 s, p95 1 s, longest 1 s</title>",
		`aria-label="How long runs took, by when they ended, within a day: p50 1 s, p95 4 s, longest 9 s"`,
		`"p50"/></svg> p50 1 s<`, `"p95"/></svg> p95 4 s<`, `"longest"/></svg> longest 9 s<`, `href="timer?chart=month&amp;name=report"`)
	f.has("timer?name=report&chart=month", "within a month: 500, of which 7 failed", ": 500 runs, 7 failed</title>",
		"within a month: p50 1 s, p95 1 s, longest 1 s")
	f.has("timer?name=idle", "No run ended within a day.")
	f.has("", "within a day: 70, of which 1 failed; at most 60 in 5 min", `href=".?chart=month"`)
	f.has("?chart=month", "within a month: 500, of which 7 failed")
	html := f.get("timer?name=report&chart=nonsense")
	// A second is a ninth of 80 pixels, and the lower bar is drawn over the higher ones.
	longest := strings.Index(html, `<path class="longest"`)
	if !p50Bars.MatchString(html) {
		t.Error("the bars of p50 do not end at a second")
	}
	if p95, p50 := strings.Index(html, `<path class="p95"`), strings.Index(html, `<path class="p50"`); longest < 0 ||
		p95 < longest || p50 < p95 {
		t.Error(html[max(longest, 0):])
	}
	if tips := strings.Count(html, "failed</title>"); tips != 2 || strings.Contains(html, "style=") {
		t.Errorf("%d tooltips: %s", tips, html)
	}
}

// A run has a page of its own, to which the list of runs links: with its error, its attempts, and
// the stack of a panic, whose secrets are hidden like those of errors. The stack is shown as text.
//
// Fails when the stack is not kept or not masked, or its lines are joined.
func TestARunHasAPage(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{})
	f.registry.RecordRun(cluster.Run{Timer: "feeds", Outcome: "panic", Err: "index out of range", Attempts: 3,
		Stack: "goroutine 7 [running]:\nmain.parse(<nil>)\n\t/src/feeds.go:88\n" +
			"main.open(postgres://app:s3cr3t@db/shop)"})
	f.has("timers", "feeds")
	f.has("timer?name=feeds", `<a href="run?id=`)
	link := regexp.MustCompile(`<a href="(run[^"]*)"`).FindStringSubmatch(f.get("timer?name=feeds"))
	target := html.UnescapeString(link[1])
	f.has(target, "index out of range", "<dt>Attempts</dt><dd>3</dd>",
		"goroutine 7 [running]:\nmain.parse(&lt;nil&gt;)\n", "/src/feeds.go:88", "***")
	if text := f.get(target); strings.Contains(text, "s3cr3t") {
		t.Errorf("a secret is shown: %s", text)
	}
	r := request("GET", target, "")
	r.Header.Set("Accept", "application/json")
	missing, err := pagetest.MissingInOpenAPI([]byte(f.get("openapi.json")), "/run", serve(f.page, r).Body.Bytes())
	if err != nil || len(missing) > 0 {
		t.Errorf("%v are not described: %v", missing, err)
	}
	if w := serve(f.page, request("GET", "run?name=feeds&id=x", "")); w.Code != http.StatusNotFound {
		t.Errorf("a run that is not kept: %d", w.Code)
	}
}
