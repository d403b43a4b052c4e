package sharedtest

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/testkit"
)

// Hostile is text that is a script where it is not escaped, and turns the writing direction.
const Hostile = `<script>alert("1")</script>` + "\u202e"

// A Visitor looks at a page and changes what it shows, as the operator ann.
type Visitor struct {
	t    testing.TB
	page *page.Page
}

// Visit returns a visitor of a page with one more section, about a registry without hosts.
func Visit(t testing.TB, section page.Section) *Visitor {
	t.Helper()
	registry, err := cluster.New(cluster.Options{Store: cluster.NewMemoryStore(),
		Holder: dlock.Holder{Host: "h", PID: 1, ID: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := page.New(page.Config{Registry: registry, Logger: slog.New(slog.DiscardHandler),
		Sections:  []page.Section{section},
		Authorize: func(*http.Request) page.Access { return page.Access{Act: true, By: "ann"} }})
	if err != nil {
		t.Fatal(err)
	}
	return &Visitor{t, p}
}

// Get returns the answer to a request for a page, in a format: "text/html", "application/json".
func (v *Visitor) Get(target, format string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "http://localhost/"+target, nil)
	r.Header.Set("Accept", format)
	w := httptest.NewRecorder()
	v.page.ServeHTTP(w, r)
	return w
}

// Sees waits until a page has all texts, because what is read is shared for a second. No name on it
// may be alive.
func (v *Visitor) Sees(target string, want ...string) {
	v.t.Helper()
	html := ""
	err := testkit.Poll(5*time.Second, "all texts are there", func() error {
		w := v.Get(target, "text/html")
		html = w.Body.String()
		for _, text := range append(want, "<main") {
			if w.Code != http.StatusOK || !strings.Contains(html, text) {
				return fmt.Errorf("%d, no %s", w.Code, text)
			}
		}
		return nil
	})
	if err != nil {
		v.t.Fatalf("%s: %v: %s", target, err, html)
	}
	if strings.Contains(html, "<script>alert") || strings.Contains(html, "\u202e") {
		v.t.Errorf("%s: a name is alive: %s", target, html)
	}
}

// Posts sends the form of an action, and fails the test if the answer has another status.
func (v *Visitor) Posts(status int, action, name, value string, fields url.Values) {
	v.t.Helper()
	r := httptest.NewRequest("POST", "http://localhost/"+page.URL("do", "action", action, name, value),
		strings.NewReader(fields.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	v.page.ServeHTTP(w, r)
	if w.Code != status {
		v.t.Fatalf("%s: %d, want %d: %s", action, w.Code, status, w.Body)
	}
}

// FindsDescribed fails the test if the description of the JSON lacks a field of a page.
func (v *Visitor) FindsDescribed(path, target string) {
	v.t.Helper()
	const format = "application/json"
	missing, err := Undescribed(v.Get("openapi.json", format).Body.Bytes(), path, v.Get(target, format).Body.Bytes())
	if err != nil || len(missing) > 0 {
		v.t.Errorf("%v are not described: %v", missing, err)
	}
}
