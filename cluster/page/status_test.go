package page_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
)

// What is above each page says how many problems there are, how many hosts are there, and how many
// runs end and fail per minute; the title and the icon of the window say it, too. Who may not read
// the page is not told.
//
// Fails when one of them is left out or counted wrongly, and when a refusal tells anything.
func TestEachPageSaysHowTheFleetIs(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{Authorize: allow(operator)})
	f.has("hosts", `class="well"`, "All well", "hosts <b>1/1</b>", "runs <b>0/min</b>", "<title>Hosts · tickslot</title>",
		`<link rel="icon" type="image/svg+xml" href="dot-well.svg">`)
	f.host("sad", cluster.Heartbeat{}, cluster.HostDetail{Runners: []cluster.RunnerDetail{
		{Kind: "leader", Name: "a", State: "failing", Err: "no"}, {Kind: "leader", Name: "b", State: "stuck"}}})
	f.host("dead", cluster.Heartbeat{TTL: time.Millisecond}, cluster.HostDetail{})
	f.has("hosts", "dead", "gone")
	for _, target := range []string{"", "timers", "events", "confirm?action=pause&name=report"} {
		f.has(target, `class="bad"`, "3 problems", "hosts <b>2/3</b>", "failures <b>0/min</b>", "<title>(3) ",
			"dot-bad.svg")
	}
	w := serve(f.page, request("GET", "nothing", ""))
	if !strings.Contains(w.Body.String(), "3 problems") {
		t.Error(w.Body)
	}
	for icon, color := range map[string]string{"dot-well.svg": "#1a7f37", "dot-bad.svg": "#cf222e",
		"dot-stale.svg": "#bf8700"} {
		w := serve(f.page, request("GET", icon, ""))
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "image/svg+xml" ||
			!strings.Contains(w.Body.String(), color) {
			t.Errorf("%s: %d %v %s", icon, w.Code, w.Header(), w.Body)
		}
	}
	stranger := request("GET", "", "")
	stranger.Host = "example.com"
	if w := serve(f.page, stranger); w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), "problem") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// How many runs there are per minute follows from those that are known, also if these are the last
// 50 of a busy timer, or the last 200 of a busy fleet.
//
// Fails when those that are known count as all of the minute, or when older ones count, too.
func TestRunsPerMinute(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	runs := func(n int, timers int, pace time.Duration) (list []cluster.HistoryRun) {
		for i := range n {
			run := cluster.Run{Timer: fmt.Sprint(i % timers), Outcome: "ok"}
			if i%10 < 2 { // a fifth
				run.Outcome = "error"
			}
			list = append(list, cluster.HistoryRun{Run: run, EndedAt: at.Add(-time.Duration(i+1) * pace)})
		}
		return list
	}
	for _, c := range []struct {
		name        string
		runs        []cluster.HistoryRun
		all, failed string
	}{
		{"none", nil, "0", "0"},
		{"a quiet fleet", runs(10, 1, time.Minute), "1", "1"},
		{"a young fleet", runs(10, 2, time.Second), "10", "2"},
		{"a busy timer", runs(50, 1, 100*time.Millisecond), "600", "120"},
		{"a busy fleet", runs(200, 200, 100*time.Millisecond), "600", "120"},
		{"all at once", runs(200, 200, 0), "12000", "2400"},
	} {
		if all, failed := page.PerMinute(c.runs, at); all != c.all || failed != c.failed {
			t.Errorf("%s: %s, %s failed, want %s, %s", c.name, all, failed, c.all, c.failed)
		}
	}
}
