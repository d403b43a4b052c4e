package page_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
)

// What was done is said once, to who has done it: not when the page is loaded again, and not by a
// URL that somebody else made. The cookie for that is only for the server, and ends by itself.
//
// Fails when takeDone believes the URL, or leaves the cookie.
func TestWhatWasDoneIsSaidOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{Authorize: allow(operator)})
	f.timersAre("report")
	f.has("timers", ">report<")
	answer := f.post("do?action=pause&name=report", url.Values{"for": {"1h"}})
	cookies := answer.Result().Cookies()
	if len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode ||
		cookies[0].MaxAge != 60 || cookies[0].Path != "" {
		t.Fatalf("%d: %+v", answer.Code, cookies)
	}
	const said = `<p class="done" role="status">Done: Pause report.`
	first := f.getDone(answer)
	if !strings.Contains(first.Body.String(), said) {
		t.Errorf("it is not said: %s", first.Body)
	}
	if gone := first.Result().Cookies(); len(gone) != 1 || gone[0].Name != cookies[0].Name || gone[0].MaxAge >= 0 {
		t.Errorf("the browser keeps the cookie: %+v", gone)
	}
	if html := f.get(answer.Header().Get("Location")); strings.Contains(html, "Done:") {
		t.Errorf("it is said without the cookie: %s", html)
	}
	answer.Header().Set("Location", "timer?name=report&done=limit")
	if html := f.getDone(answer).Body.String(); strings.Contains(html, "Done:") {
		t.Errorf("another change is said: %s", html)
	}
}

// Style and script have a URL of their own for each version, under which browsers keep them for a
// year. Under another one they are not kept, and pages never are.
//
// Fails when the URL has no version, or when another version is kept under it.
func TestAssetsAreKept(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{})
	found := regexp.MustCompile(`"(page\.(?:css|js)\?v=[0-9a-f]{16})"`).FindAllStringSubmatch(f.get("timers"), -1)
	if len(found) != 2 {
		t.Fatal(found)
	}
	for _, match := range found {
		for target, want := range map[string]string{match[1]: "private, max-age=31536000, immutable",
			match[1] + "0": "no-store", strings.Split(match[1], "?")[0]: "no-store", "timers": "no-store"} {
			w := serve(f.page, request("GET", target, ""))
			if got := w.Header().Get("Cache-Control"); w.Code != http.StatusOK || got != want {
				t.Errorf("%s: %d, %q, want %q", target, w.Code, got, want)
			}
		}
	}
}

// A page is compressed for who accepts that, and only for him; 100 timers are less than 100 KB
// then.
//
// Fails when write compresses for everybody, forgets Vary, or leaves a writer open.
func TestPagesAreCompressed(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{Authorize: allow(operator)})
	var names []string
	for i := range 100 {
		names = append(names, strings.Repeat("n", i+1))
		f.registry.RecordRun(cluster.Run{Timer: names[i], Outcome: "error", Err: "disk full"})
	}
	f.timersAre(names...)
	f.has("timers", "Failing 0", "1 to 100 of 100")
	for accept, want := range map[string]bool{"": false, "gzip": true, "br, gzip;q=0.5": true, "deflate, GZIP": true,
		"gzip;q=0": false, "gzip; q=0.0, br": false, "identity": false, "*": false} {
		for _, target := range []string{"timers", "page.css"} {
			r := request("GET", target, "")
			r.Header.Set("Accept-Encoding", accept)
			w := serve(f.page, r)
			if zipped := w.Header().Get("Content-Encoding") == "gzip"; zipped != want || w.Header().Get("Vary") !=
				"Accept-Encoding" {
				t.Errorf("%s, %q: %v", target, accept, w.Header())
			}
			if !want || target != "timers" {
				continue
			}
			if w.Body.Len() > 100_000 {
				t.Errorf("%d bytes", w.Body.Len())
			}
			z, err := gzip.NewReader(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			html, err := io.ReadAll(z)
			if err != nil || !strings.HasSuffix(string(html), "</html>\n") {
				t.Errorf("%v: %s", err, html)
			}
		}
	}
}
