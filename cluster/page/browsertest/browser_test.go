package browsertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
)

const (
	howBrowser = "sh scripts/servers.sh browser installs it on Debian; elsewhere install Chromium or Chrome"
	howAxe     = "sh scripts/servers.sh browser gets it, if there is npm; or run npm ci --ignore-scripts in " +
		"cluster/page/browsertest"
	axePath = "node_modules/axe-core/axe.min.js"
)

// browserPath returns where the browser is.
func browserPath() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome-stable", "google-chrome",
		"/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is no chromium or google-chrome")
}

func requireBrowser(t *testing.T) {
	t.Helper()
	_, err := browserPath()
	servertest.Require(t, err, howBrowser)
}

// axe returns the source of axe-core, which finds what keeps people from using a page.
func axe(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(axePath))
	servertest.Require(t, err, howAxe)
	return string(text)
}

// A viewport is the screen and the settings of a browser.
type viewport struct {
	dark      bool
	width     int64
	noScripts bool
}

func (v viewport) String() string {
	name := "light"
	if v.dark {
		name = "dark"
	}
	return fmt.Sprintf("%s, %d px", name, v.width)
}

var wide = viewport{width: 1400}

const height = 900 // of a screen

// A tab of a browser keeps what goes wrong in it.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	faults []string // guarded by mu
	closed bool     // guarded by mu: what is wrong from then on is because of that
}

// browse starts a browser, and returns a function that opens a tab in it.
func browse(t *testing.T) func(viewport) *tab {
	t.Helper()
	path, err := browserPath()
	if err != nil {
		t.Fatal(err)
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), chromedp.ExecPath(path), chromedp.Headless,
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.UserDataDir(t.TempDir()), chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-extensions", true), chromedp.Flag("disable-dev-shm-usage", true))
	t.Cleanup(stop)
	root, end := chromedp.NewContext(allocator)
	t.Cleanup(end)
	if err := chromedp.Do(root); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return func(v viewport) *tab {
		t.Helper()
		b := &tab{t: t}
		ctx, end := chromedp.NewContext(root, chromedp.WithListener(b.hear))
		b.ctx = ctx
		t.Cleanup(func() { b.close(); end() })
		if err := chromedp.Do(ctx); err != nil { // the tab lives as long as this context
			t.Fatal(err)
		}
		scheme := "light"
		if v.dark {
			scheme = "dark"
		}
		send(b, log.Enable, cdp.Empty{})
		send(b, network.Enable, network.EnableParams{})
		send(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "America/New_York"})
		send(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: v.width,
			Height: height, DeviceScaleFactor: 1})
		send(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: v.noScripts})
		send(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		return b
	}
}

// send sends a command to the browser, and returns its answer.
func send[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, testkit.Patience)
	defer cancel()
	answer, err := chromedp.Call(ctx, command, params)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer
}

// hear hears of what goes wrong: errors on the console, which violations of the policy are, too,
// exceptions, and what cannot be loaded.
func (b *tab) hear(event any) {
	text := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text = fmt.Sprintf("exception: %s", asJSON(e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		if slices.Contains([]runtime.ConsoleAPICalledType{runtime.ConsoleAPICalledTypeError,
			runtime.ConsoleAPICalledTypeWarning, runtime.ConsoleAPICalledTypeAssert}, e.Type) {
			text = fmt.Sprintf("console: %s", asJSON(e.Args))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			text = fmt.Sprintf("%s: %s: %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *network.EventLoadingFailed:
		if !e.Canceled {
			text = fmt.Sprintf("%s not loaded: %s", e.Type, e.ErrorText)
		}
	}
	if text == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.faults = append(b.faults, text)
	}
}

func asJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return []byte(err.Error())
	}
	return text
}

// close fails the test if something went wrong.
func (b *tab) close() {
	b.t.Helper()
	b.mu.Lock()
	b.closed = true
	faults := slices.Clone(b.faults)
	b.mu.Unlock()
	for _, text := range faults {
		b.t.Errorf("the browser says: %s", text)
	}
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*testkit.Patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) visit(url string) {
	b.t.Helper()
	b.do(chromedp.Navigate(url))
}

// eval returns what an expression of JavaScript is.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*testkit.Patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%.200s: %v", expression, err)
	}
	return v
}

// sees waits until the text of the page has something in it.
func (b *tab) sees(text string) {
	b.t.Helper()
	b.becomes(fmt.Sprintf("%q is on the page", text), fmt.Sprintf("document.body.innerText.includes(%q)", text))
}

// becomes waits until an expression is true, without a reload.
func (b *tab) becomes(what, expression string) {
	b.t.Helper()
	if err := b.within(testkit.Patience, what, expression); err != nil {
		b.t.Fatalf("%v: %s", err, eval[string](b, "location.href + '\\n' + document.body.innerText"))
	}
}

// within waits until an expression is true, for so long.
func (b *tab) within(patience time.Duration, what, expression string) error {
	return testkit.Poll(patience, what, func(ctx context.Context) error {
		within, cancel := context.WithCancel(b.ctx)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		ok, err := chromedp.Run(within, chromedp.Evaluate[bool](expression))
		if err == nil && !ok {
			err = errors.New("not yet")
		}
		return err
	})
}

// click clicks a link or a button with the mouse, by its text. It holds no node, because what is
// live may replace it.
func (b *tab) click(text string) {
	b.t.Helper()
	at := fmt.Sprintf(`(() => {
		const e = Array.from(document.querySelectorAll("main a, main button")).find(e => e.innerText.trim() === %q);
		if (!e || document.readyState !== "complete") return null;
		e.scrollIntoView({block: "center", inline: "center"});
		const box = e.getClientRects()[0], x = box.left + box.width / 2, y = box.top + box.height / 2;
		return e.contains(document.elementFromPoint(x, y)) ? [x, y] : null;
	})()`, text)
	b.becomes(fmt.Sprintf("%q can be clicked", text), at+" !== null")
	place := eval[[]float64](b, at)
	if len(place) != 2 {
		b.t.Fatalf("%q cannot be clicked any more", text)
	}
	b.do(chromedp.MouseClickXY(place[0], place[1]))
}

// follow clicks a link of a page that is live, until the next page is there: the link may move away
// under the mouse.
func (b *tab) follow(link, there string) {
	b.t.Helper()
	var err error
	for range 5 {
		b.click(link)
		if err = b.within(10*time.Second, "the page behind "+link, there); err == nil {
			return
		}
	}
	b.t.Fatal(err)
}

// fill types into a field of the form, in place of what is in it.
func (b *tab) fill(field, text string) {
	b.t.Helper()
	eval[string](b, fmt.Sprintf(`document.getElementById(%q).value = ""`, field))
	b.do(chromedp.SendKeys(chromedp.CSS("#"+field), text))
}

// A violation is what axe-core found.
type violation struct {
	ID     string `json:"id"`
	Impact string `json:"impact"`
	Help   string `json:"help"`
	Nodes  string `json:"nodes"`
}

// audit returns what keeps people from using the page.
func (b *tab) audit(source string) []violation {
	b.t.Helper()
	eval[int](b, source+"; 0")
	return eval[[]violation](b, `axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.map(v => ({
		id: v.id, impact: v.impact, help: v.help, nodes: v.nodes.slice(0, 3).map(n => n.html.slice(0, 200) + " " +
		(n.failureSummary || "")).join(" | ")})))`)
}

// screenshot writes what is seen to a file.
func (b *tab) screenshot(path string, width, height int64) {
	b.t.Helper()
	yes := true
	picture := send(b, page.CaptureScreenshot, page.CaptureScreenshotParams{CaptureBeyondViewport: &yes,
		Clip: &page.Viewport{Width: float64(width), Height: float64(height), Scale: 1}}).Data
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, picture, 0o644)); err != nil {
		b.t.Fatal(err)
	}
	b.t.Logf("%s: %d bytes", path, len(picture))
}

// faultsOf says what is wrong with the layout of a page: what is wider than the screen, and an axis
// that has its middle elsewhere.
const faultsOf = `(() => {
	const faults = [];
	if (document.documentElement.scrollWidth > innerWidth) {
		const wide = Array.from(document.querySelectorAll("body *")).filter(e =>
			e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll"));
		faults.push("the body scrolls sideways: " + document.documentElement.scrollWidth + " of " + innerWidth +
			" px: " + wide.slice(0, 3).map(e => e.outerHTML.slice(0, 120)).join(" | "));
	}
	const middle = e => { const box = e.getBoundingClientRect(); return box.left + box.width / 2; };
	for (const axis of document.querySelectorAll(".axis"))
		if (axis.children.length === 3 && Math.abs(middle(axis.children[1]) - middle(axis)) > axis.offsetWidth / 20)
			faults.push("the middle of an axis is not in the middle: " + axis.innerText);
	return faults;
})()`
