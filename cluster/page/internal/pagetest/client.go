package pagetest

import (
	"context"
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
	"github.com/tickslot/tickslot/cluster/page/internal/readcache"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/testkit"
)

// HostileText is text that is a script where it is not escaped, and turns the writing direction.
const HostileText = `<script>alert("1")</script>` + "\u202e"

// A Client gets pages and posts actions, as the operator ann.
type Client struct {
	t    testing.TB
	page *page.Page
}

// NewClient returns a client of a page with one more section, about a registry without hosts.
func NewClient(t testing.TB, section page.Section) *Client {
	t.Helper()
	return newClient(t, section, page.Access{Act: true, Payloads: true, By: "ann"})
}

// RequireNoPayload fails the test if a page, its JSON or its stream has a text for an operator who
// may not see payloads.
func RequireNoPayload(t testing.TB, section page.Section, path, target string, texts ...string) {
	t.Helper()
	c := newClient(t, section, page.Access{Act: true, By: "bob"})
	c.RequireInOpenAPI(path, target)
	for _, format := range []string{"text/html", "application/json", "text/event-stream"} {
		w := c.Get(target, format)
		if w.Code != http.StatusOK {
			t.Errorf("%s as %s: %d", target, format, w.Code)
		}
		for _, text := range texts {
			if strings.Contains(w.Body.String(), text) {
				t.Errorf("%s as %s has %q: %s", target, format, text, w.Body)
			}
		}
	}
}

func newClient(t testing.TB, section page.Section, access page.Access) *Client {
	t.Helper()
	registry, err := cluster.New(cluster.Config{Store: cluster.NewMemoryStore(),
		Holder: dlock.Holder{Host: "h", PID: 1, ID: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := page.New(page.Config{Registry: registry, Logger: slog.New(slog.DiscardHandler),
		Sections:  []page.Section{section},
		Authorize: func(*http.Request) page.Access { return access }})
	if err != nil {
		t.Fatal(err)
	}
	return &Client{t, p}
}

// Get returns the answer to a request for a page, in a format: "text/html", "application/json".
func (c *Client) Get(target, format string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "http://localhost/"+target, nil)
	r = r.WithContext(readcache.WithPatience(r.Context(), testkit.Patience)) // a test is not about a busy machine
	r.Header.Set("Accept", format)
	if format == "text/event-stream" { // that ends with its first page
		ctx, stop := context.WithCancel(r.Context())
		stop()
		r = r.WithContext(ctx)
	}
	w := httptest.NewRecorder()
	c.page.ServeHTTP(w, r)
	return w
}

// WaitForTexts waits until a page has all texts, because what is read is shared for a second. It
// fails the test if the page shows HostileText without escaping it.
func (c *Client) WaitForTexts(target string, want ...string) {
	c.t.Helper()
	html := ""
	err := testkit.Poll(5*time.Second, "all texts are there", func() error {
		w := c.Get(target, "text/html")
		html = w.Body.String()
		for _, text := range append(want, "<main") {
			if w.Code != http.StatusOK || !strings.Contains(html, text) {
				return fmt.Errorf("%d, no %s", w.Code, text)
			}
		}
		return nil
	})
	if err != nil {
		c.t.Fatalf("%s: %v: %s", target, err, html)
	}
	if strings.Contains(html, "<script>alert") || strings.Contains(html, "\u202e") {
		c.t.Errorf("%s: a text is not escaped: %s", target, html)
	}
}

// PostAction sends the form of an action, and fails the test if the answer has another status.
func (c *Client) PostAction(status int, action, name, value string, fields url.Values) {
	c.t.Helper()
	r := httptest.NewRequest("POST", "http://localhost/"+page.URL("do", "action", action, name, value),
		strings.NewReader(fields.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	c.page.ServeHTTP(w, r)
	if w.Code != status {
		c.t.Fatalf("%s: %d, want %d: %s", action, w.Code, status, w.Body)
	}
}

// RequireInOpenAPI fails the test if openapi.json lacks a field of the JSON of a page.
func (c *Client) RequireInOpenAPI(path, target string) {
	c.t.Helper()
	const format = "application/json"
	missing, err := MissingInOpenAPI(c.Get("openapi.json", format).Body.Bytes(), path,
		c.Get(target, format).Body.Bytes())
	if err != nil || len(missing) > 0 {
		c.t.Errorf("openapi.json lacks %v: %v", missing, err)
	}
}
