package browsertest

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/internal/testkit"
)

// heldBox is whether a slot box of the page is lit.
const (
	heldBox = `!!document.querySelector(".slots li.held")`
	noBox   = `document.querySelectorAll(".slots li").length > 0 && !document.querySelector(".slots li.held")`
)

// A viewer of the page of another host sees what happens, without a reload: a slot box lights up
// when a run starts, and goes out when it was canceled. An operator can do everything by the page:
// trigger, cancel, pause, resume, limit; queue a dead letter again, deliver a dead message again.
//
// Fails when the script does not follow the stream, or throws, and when a form has the wrong
// action.
func TestAnOperatorActsInABrowser(t *testing.T) {
	testkit.Long(t)
	onEach(t, func(t *testing.T, f *fleet) {
		newTab := browse(t)
		watcher, operator := newTab(wide), newTab(viewport{width: 380})
		own := page.URL("timer", "name", timerReport)
		watcher.visit(f.url(1, own))
		watcher.becomes("no slot is held", noBox)
		eval[bool](watcher, "window.notReloaded = true")

		operator.visit(f.url(0, own))
		operator.change("Trigger…", "Trigger "+timerReport, map[string]string{"payload": "all of it", "note": "a try"})
		watcher.becomes("a slot box lights up", heldBox)
		operator.becomes("the run can be canceled", `document.body.innerText.includes("Cancel the run…")`)
		operator.change("Cancel the run…", "Cancel a run of "+timerReport, map[string]string{"note": "enough"})
		watcher.becomes("the slot box goes out", noBox)
		watcher.sees("by ann: enough")

		operator.change("Pause…", "Pause "+timerReport, map[string]string{"for": "2h", "note": "the database is moved"})
		operator.sees("Paused by ann: the database is moved")
		watcher.sees("Paused by ann: the database is moved")
		if state := f.json(2, own)["state"]; state != "paused" {
			t.Errorf("it is %v", state)
		}
		operator.change("Resume…", "Resume "+timerReport, nil)
		watcher.becomes("the pause is over", `!document.body.innerText.includes("Paused by ann")`)
		operator.change("Limit…", "Limit "+timerReport, map[string]string{"n": "2"})
		watcher.sees("The limit is set to 2 by ann")
		operator.change("Reset the limit…", "Reset the limit of "+timerReport, nil)
		watcher.becomes("the limit is reset", `!document.body.innerText.includes("The limit is set")`)
		if !eval[bool](watcher, "window.notReloaded") {
			t.Error("the page was loaded again")
		}

		run := fmt.Sprintf("%.0f", list(f.json(0, "durable?state=dead"), "runs")[0]["id"])
		operator.visit(f.url(0, page.URL("durablerun", "id", run)))
		operator.change("Queue again…", "Queue again run "+run, nil)
		operator.becomes("it was tried again", `document.querySelectorAll("tbody tr").length === 2`)
		operator.visit(f.url(0, page.URL("durable", "handler", workExport)))
		operator.change("Trigger…", "Trigger the handler "+workExport, map[string]string{"payload": "hold"})
		testkit.Eventually(t, testkit.Patience, "the run has a worker", func() bool {
			held := list(f.json(0, "durable?state=running"), "runs")
			if len(held) == 1 {
				run = fmt.Sprintf("%.0f", held[0]["id"])
			}
			return len(held) == 1
		})
		operator.visit(f.url(0, page.URL("durablerun", "id", run)))
		operator.change("Cancel…", "Cancel run "+run, nil)
		operator.sees("Canceled\nby ann")

		message := list(f.json(0, "outbox?state=dead"), "messages")[0]["id"].(string)
		operator.visit(f.url(0, page.URL("message", "id", message)))
		operator.change("Deliver again…", "Deliver again message "+message, nil)
		operator.becomes("it was tried again", `document.querySelectorAll("tbody tr").length === 2`)

		operator.visit(f.url(2, "events?state=operator"))
		operator.sees("by ann: Pause report: paused until")
		operator.sees(": the database is moved")
	})
}

// change follows a link to an action, fills in its form, and sends it.
func (b *tab) change(link, button string, fields map[string]string) {
	b.t.Helper()
	b.follow(link, `!!document.querySelector("form[method=post]")`)
	for field, text := range fields {
		b.fill(field, text)
	}
	b.click(button)
	b.sees("Done: " + button)
}

// The page works without scripts: it shows the same content, an operator can make the same changes,
// is told once what was done, and no time is missing.
//
// Fails when something is filled in by the script only.
func TestWithoutScripts(t *testing.T) {
	testkit.Long(t)
	requireBrowser(t)
	f := onRedis(t)
	b := browse(t)(viewport{width: 1400, noScripts: true})
	b.visit(f.url(0, page.URL("timer", "name", timerReport)))
	for _, step := range []string{"Pause…", "Pause " + timerReport} {
		b.click(step)
	}
	done, err := chromedp.Run(b.ctx, chromedp.TextContent(chromedp.CSS("p.done")))
	if err != nil || !contains(done, "Done: Pause "+timerReport) {
		t.Errorf("%q, %v", done, err)
	}
	b.do(chromedp.Reload())
	var text string
	testkit.Eventually(t, testkit.Patience, "the store has answered", func() bool { // else it is to be loaded anew
		var err error
		if text, err = chromedp.Run(b.ctx, chromedp.TextContent(chromedp.CSS("main"))); err != nil {
			t.Fatal(err)
		}
		if contains(text, "no answer yet") || contains(text, "does not answer") {
			b.do(chromedp.Reload())
			return false
		}
		return true
	})
	for _, want := range []string{"Paused by ann", " UTC", "Next ticks"} {
		if !contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if contains(text, "Done:") {
		t.Errorf("it is said again: %s", text)
	}
}

// By keyboard alone: the first key leads to a link that skips the navigation, and what has the
// focus keeps it while the page follows what happens.
//
// Fails when the skip link is gone or cannot be seen, and when the script replaces what is focused.
func TestByKeyboard(t *testing.T) {
	testkit.Long(t)
	requireBrowser(t)
	f := onRedis(t)
	b := browse(t)(wide)
	b.visit(f.url(0, page.URL("timer", "name", timerTick)))
	b.becomes("its runs were read", `!!document.querySelector("#runs ~ .scroll tbody tr time")`)
	b.do(chromedp.KeyEvent("\t"))
	at := eval[string](b, `(e => e.innerText + e.getBoundingClientRect().left)(document.activeElement)`)
	if at != "To the content0" {
		t.Errorf("the first stop is %s", at)
	}
	b.do(chromedp.KeyEvent("\r"), chromedp.KeyEvent("\t"))
	b.becomes("it is the first link of the content", `document.activeElement.innerText === "Pause…"`)
	for range 3 {
		b.do(chromedp.KeyEvent("\t"))
	}
	at = eval[string](b, `document.activeElement.getAttribute("aria-label")`)
	first := eval[string](b, `document.querySelector("#runs ~ .scroll tbody tr time").getAttribute("datetime")`)
	b.becomes("another run has ended", fmt.Sprintf(
		`document.querySelector("#runs ~ .scroll tbody tr time").getAttribute("datetime") !== %q`, first))
	if now := eval[string](b, `document.activeElement.getAttribute("aria-label")`); now != at || at == "" {
		t.Errorf("the focus was on %q, and is on %q", at, now)
	}
}
