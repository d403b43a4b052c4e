package page_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
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
