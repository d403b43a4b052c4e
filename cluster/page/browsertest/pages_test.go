package browsertest

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/internal/testkit"
)

// screenshotsEnv set to 1 writes docs/screenshots anew.
const screenshotsEnv = "TICKSLOT_SCREENSHOTS"

// pagesOf returns all pages of a fleet, by what they are called.
func pagesOf(f *fleet) map[string]string {
	f.t.Helper()
	run := fmt.Sprintf("%.0f", list(f.json(0, "durable?state=dead"), "runs")[0]["id"])
	message := list(f.json(0, "outbox?state=dead"), "messages")[0]["id"].(string)
	return map[string]string{
		"overview": "", "timers": "timers", "hosts": "hosts", "leases": "leases", "leaders": "leaders",
		"events": "events", "durable": "durable", "outbox": "outbox",
		"timer":               page.URL("timer", "name", timerReport),
		"failing timer":       page.URL("timer", "name", timerBroken),
		"many slots":          page.URL("timer", "name", timerLong),
		"busy timer":          page.URL("timer", "name", timerBusy),
		"hostile timer":       page.URL("timer", "name", timerHostile),
		"durablerun":          page.URL("durablerun", "id", run),
		"message":             page.URL("message", "id", message),
		"confirm":             page.URL("confirm", "action", "pause", "name", timerReport),
		"confirm destructive": page.URL("confirm", "action", "outbox-delete", "id", message),
		"confirm fields":      page.URL("confirm", "action", "durable-trigger", "handler", workExport),
		"search":              page.URL("timers", "q", "report", "state", "running"),
		"nothing found":       page.URL("leases", "q", "no such lease"),
	}
}

// Each page can be read and used, in light and dark, narrow and wide: nothing is on the console,
// nothing is against its policy, it does not scroll sideways, and axe-core finds nothing that keeps
// people from using it.
//
// Fails when a template has a field without a label, when the style makes text pale, when something
// is wider than a telephone, when the labels of an axis are put where their lengths allow it, and
// when a script or style is inline.
func TestPagesInABrowser(t *testing.T) {
	testkit.Long(t)
	onEach(t, func(t *testing.T, f *fleet) {
		source := axe(t)
		f.change(page.URL("do", "action", "trigger", "name", timerReport), url.Values{"expires": {"1m"}})
		testkit.Eventually(t, testkit.Patience, "a slot is held", func() bool {
			return f.json(0, page.URL("timer", "name", timerReport))["held"] == 1.0
		})
		newTab := browse(t)
		pages := pagesOf(f)
		for _, l := range []viewport{{width: 1400}, {width: 1400, dark: true}, {width: 380}, {width: 380, dark: true}} {
			b := newTab(l)
			for name, target := range pages {
				b.visit(f.url(0, target))
				b.do(chromedp.WaitReady(chromedp.CSS("main")))
				checkPage(b, source, fmt.Sprintf("%s, %v", name, l), l)
			}
			screenshots(b, f, l)
		}
	})
}

// checkPage checks the page that is shown.
func checkPage(b *tab, source, what string, l viewport) {
	b.t.Helper()
	for _, fault := range eval[[]string](b, faultsOf) {
		b.t.Errorf("%s: %s", what, fault)
	}
	if dark := eval[bool](b, `getComputedStyle(document.body).backgroundColor.match(/\d+/)[0] < 128`); dark != l.dark {
		b.t.Errorf("%s: it is dark: %v", what, dark)
	}
	if eval[bool](b, `!!document.querySelector("main[data-live]")`) {
		b.becomes("it is live", `document.getElementById("live").innerText.startsWith("Live")`)
		b.do(chromedp.Click(chromedp.CSS("#live button"))) // what is looked at does not change meanwhile
	}
	for _, v := range b.audit(source) {
		if v.Impact == "serious" || v.Impact == "critical" {
			b.t.Errorf("%s: %s: %s: %s: %s", what, v.Impact, v.ID, v.Help, v.Nodes)
		} else {
			b.t.Logf("%s: %s: %s: %s: %s", what, v.Impact, v.ID, v.Help, v.Nodes)
		}
	}
}

// screenshots writes the pictures of the documents, if somebody wants them. All pages, if the
// variable is a folder.
func screenshots(b *tab, f *fleet, l viewport) {
	b.t.Helper()
	to := os.Getenv(screenshotsEnv)
	if to == "" {
		return
	}
	suffix := "-light.png"
	if l.dark {
		suffix = "-dark.png"
	}
	if to == "1" {
		if l.width != wide.width || filepath.Base(b.t.Name()) != "Redis" {
			return
		}
		testkit.Eventually(b.t, testkit.Patience, "there are runs, and slots are held", func() bool {
			v := f.json(0, page.URL("timer", "name", timerBusy))
			return len(list(v, "runs")) >= 12 && v["held"].(float64) >= 2
		})
		for name, target := range map[string]string{"overview": "", "timer": page.URL("timer", "name", timerBusy)} {
			b.visit(f.url(0, target))
			b.becomes("it is live", `document.getElementById("live").innerText.startsWith("Live")`)
			b.screenshot(filepath.FromSlash("../../../docs/screenshots/"+name+suffix), l.width, height)
		}
		return
	}
	for name, target := range pagesOf(f) {
		b.visit(f.url(0, target))
		b.becomes("it is there", `document.readyState === "complete"`)
		b.screenshot(filepath.Join(to, fmt.Sprint(name, "-", l.width, suffix)), l.width,
			min(3000, eval[int64](b, "document.documentElement.scrollHeight")))
	}
}
