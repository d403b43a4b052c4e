package page_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/cluster/page/durablepage"
	"github.com/tickslot/tickslot/cluster/page/internal/pagetest"
	"github.com/tickslot/tickslot/cluster/page/outboxpage"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/timer/control"
)

// With Loopback nobody but the machine itself reads a page, neither directly nor through a proxy,
// and nobody changes anything.
//
// Fails when Loopback does not look at the peer, or at what proxies add.
func TestLoopback(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{Authorize: page.Loopback})
	for what, c := range map[string]struct {
		peer, host, header string
		want               int
	}{
		"this machine":             {"127.0.0.1:99", "localhost:8080", "", 200},
		"this machine, IPv6":       {"[::1]:99", "[::1]:8080", "", 200},
		"IPv4 in IPv6":             {"[::ffff:127.0.0.1]:99", "127.0.0.1", "", 200},
		"another machine":          {"10.0.0.7:99", "localhost", "", 403},
		"another, by our address":  {"10.0.0.7:99", "10.0.0.1:8080", "", 403},
		"a proxy":                  {"127.0.0.1:99", "localhost", "X-Forwarded-For", 403},
		"another proxy":            {"127.0.0.1:99", "localhost", "Forwarded", 403},
		"a socket without address": {"@", "localhost", "", 403},
		"DNS rebinding":            {"127.0.0.1:99", "evil.example:8080", "", 403},
		"no Host":                  {"127.0.0.1:99", "", "", 403},
		"a name that looks alike":  {"127.0.0.1:99", "localhost.evil.example", "", 403},
	} {
		for _, target := range []string{"", "timers", "page.js", "openapi.json", "confirm?action=pause&name=a"} {
			r := request("GET", target, "")
			r.RemoteAddr, r.Host = c.peer, c.host
			if c.header != "" {
				r.Header.Set(c.header, "for=10.0.0.7")
			}
			want := c.want
			if strings.HasPrefix(target, "confirm") {
				want = http.StatusForbidden
			}
			w := serve(f.page, r)
			if w.Code != want {
				t.Errorf("%s: %s: %d, want %d", what, target, w.Code, want)
			}
			if w.Code == 403 && strings.Contains(w.Body.String(), "host-1") && c.want == 403 {
				t.Errorf("%s: the refusal tells what it should not: %s", what, w.Body)
			}
		}
	}
	if w := f.post("do?action=pause&name=report", url.Values{"for": {"1h"}}); w.Code != http.StatusForbidden {
		t.Errorf("changed with Loopback: %d %s", w.Code, w.Body)
	}
}

// With Authorize, it decides; names of the page have to be known, so that a name of somebody else
// which points here (DNS rebinding) reads nothing.
//
// Fails when checkHost takes any name, and when do does not look at Act, or acts without a name.
func TestAuthorize(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		access    page.Access
		host      string
		read, act int
	}{
		"nothing":                {page.Access{By: "eve"}, "ops.example.com", 403, 403},
		"read":                   {page.Access{Read: true, By: "bob"}, "ops.example.com", 200, 403},
		"act":                    {operator, "OPS.example.com:8443", 200, 303},
		"act without a name":     {page.Access{Act: true}, "ops.example.com", 200, 403},
		"act, by an address":     {operator, "10.0.0.1:8080", 200, 303},
		"act, by a foreign name": {operator, "evil.example", 403, 403},
	} {
		f := newFleet(t, page.Config{Authorize: allow(c.access), Hosts: []string{"ops.example.com"}})
		r := request("GET", "timers", "")
		r.Host, r.RemoteAddr = c.host, "10.0.0.7:99"
		if w := serve(f.page, r); w.Code != c.read {
			t.Errorf("%s: read: %d, want %d", what, w.Code, c.read)
		}
		r = request("POST", "do?action=pause&name=report", "for=1h&force=yes")
		r.Host, r.RemoteAddr = c.host, "10.0.0.7:99"
		if w := serve(f.page, r); w.Code != c.act {
			t.Errorf("%s: act: %d, want %d: %s", what, w.Code, c.act, w.Body)
		}
	}
}

// A user logs in with his own password, and no other; who does not is asked for it, and reads
// nothing. What would let nobody in, or everybody, is an error.
//
// Fails when BasicAuth takes any name or password, or when the page does not call Deny.
func TestBasicAuth(t *testing.T) {
	t.Parallel()
	authorize, err := page.BasicAuth(page.User{Name: "ann", Password: "secret", Act: true},
		page.User{Name: "bob", Password: "hidden"})
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, page.Config{Authorize: authorize})
	for _, c := range []struct {
		user, password string
		read, act      int
	}{
		{"ann", "secret", 200, 303}, {"bob", "hidden", 200, 403}, {"ann", "hidden", 401, 401}, {"bob", "", 401, 401},
		{"eve", "secret", 401, 401}, {"eve", "", 401, 401}, {"", "", 401, 401},
	} {
		for method, want := range map[string]int{"GET": c.read, "POST": c.act} {
			target := map[string]string{"GET": "timers", "POST": "do?action=pause&name=report"}[method]
			r := request(method, target, "for=1h&force=yes")
			if c.user+c.password != "" {
				r.SetBasicAuth(c.user, c.password)
			}
			w := serve(f.page, r)
			asked := strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Basic ")
			told := want == 401 && strings.Contains(w.Body.String(), "host-1")
			if w.Code != want || asked != (want == 401) || told {
				t.Errorf("%s as %q, %q: %d, want %d: %v %s", method, c.user, c.password, w.Code, want, w.Header(),
					w.Body)
			}
		}
	}
	for what, users := range map[string][]page.User{
		"no user": nil, "Password": {{Name: "ann"}}, "Name": {{Password: "x"}}, "colon": {{Name: "a:b", Password: "x"}},
		"twice": {{Name: "ann", Password: "x"}, {Name: "ann", Password: "y"}},
	} {
		if _, err := page.BasicAuth(users...); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A header names the user only if the proxy has sent it.
//
// Fails when ProxyHeader does not look at the peer, or takes the client's own header beside that of
// the proxy.
func TestProxyHeader(t *testing.T) {
	t.Parallel()
	const header = "X-Forwarded-User"
	authorize, err := page.ProxyHeader(header, "10.1.2.0/24", "127.0.0.1", "fd00::/8")
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, page.Config{Authorize: authorize})
	for what, c := range map[string]struct {
		peer   string
		values []string
		want   int
	}{
		"the proxy":              {"10.1.2.9:99", []string{"ann"}, 200},
		"IPv4 in IPv6":           {"[::ffff:10.1.2.9]:99", []string{"ann"}, 200},
		"IPv6":                   {"[fd00::1]:99", []string{"ann"}, 200},
		"by its address":         {"127.0.0.1:99", []string{"ann"}, 200},
		"a neighbour":            {"10.1.3.9:99", []string{"ann"}, 403},
		"an address like it":     {"127.0.0.2:99", []string{"ann"}, 403},
		"a socket":               {"@", []string{"ann"}, 403},
		"nobody":                 {"10.1.2.9:99", nil, 403},
		"an empty name":          {"10.1.2.9:99", []string{""}, 403},
		"the client's, too":      {"10.1.2.9:99", []string{"root", "ann"}, 403},
		"a name that is no text": {"10.1.2.9:99", []string{"a\x01b"}, 403},
	} {
		r := request("GET", "timers", "")
		r.RemoteAddr = c.peer
		r.Header[header] = c.values
		if w := serve(f.page, r); w.Code != c.want {
			t.Errorf("%s: %d, want %d", what, w.Code, c.want)
		}
		r = request("POST", "do?action=pause&name=report", "for=1h")
		r.RemoteAddr = c.peer
		r.Header[header] = c.values
		if w := serve(f.page, r); w.Code != 403 {
			t.Errorf("%s: changed something: %d", what, w.Code)
		}
	}
	for _, wrong := range [][]string{{header}, {"", "10.0.0.0/8"}, {header, "10.0.0"}, {"X_User", "10.0.0.0/8"}} {
		if _, err := page.ProxyHeader(wrong[0], wrong[1:]...); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}

// A function of the user's own may send a browser to its log-in.
//
// Fails when the page answers by itself although there is a Deny.
func TestDeny(t *testing.T) {
	t.Parallel()
	login := http.RedirectHandler("/login", http.StatusSeeOther)
	f := newFleet(t, page.Config{Authorize: allow(page.Access{Deny: login})})
	if w := serve(f.page, request("GET", "timers", "")); w.Code != 303 || w.Header().Get("Location") != "/login" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

// A page of another site can make a browser send nothing that changes anything, and no link does.
//
// Fails when do does not ask the guard, or answers GET.
func TestCrossSiteRequestsChangeNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{Authorize: allow(operator)})
	for what, header := range map[string][2]string{
		"cross-site": {"Sec-Fetch-Site", "cross-site"}, "same-site": {"Sec-Fetch-Site", "same-site"},
		"an old browser": {"Origin", "https://evil.example"}, "a sandbox": {"Origin", "null"},
	} {
		r := request("POST", "do?action=pause&name=report", "for=1h")
		r.Header.Set(header[0], header[1])
		if w := serve(f.page, r); w.Code != http.StatusForbidden {
			t.Errorf("%s: %d", what, w.Code)
		}
	}
	for _, target := range []string{"do?action=pause&name=report&for=1h", "confirm?action=pause&name=report&for=1h"} {
		serve(f.page, request("GET", target, ""))
		serve(f.page, request("HEAD", target, ""))
	}
	if w := serve(f.page, request("GET", "do?action=pause&name=report", "")); w.Code != 405 ||
		w.Header().Get("Allow") != "POST" {
		t.Errorf("GET: %d %v", w.Code, w.Header())
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
		if w := serve(f.page, request(method, "timers", "")); w.Code != 405 {
			t.Errorf("%s of a page: %d", method, w.Code)
		}
	}
	if state, err := f.locks.Inspect(t.Context(), "timer:report"); err != nil || state[0].Pause != nil {
		t.Errorf("it is paused: %+v, %v", state, err)
	}
}

// hostileNames are such as a store may have.
var hostileNames = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `javascript:alert(1)`,
	"invoice\u202egpj.exe", "a\u2066b\u2069\u200b\ufeffc", "]]>--><!--", "{{.Data}}", "../../etc?a=b&c=d#e",
	"a b+c%20d",
	strings.Repeat("ж", 100), // 200 bytes
}

// Names, errors and notes are only text: in HTML, in JSON, and in the log. What is not seen, or
// turns the direction, is shown; and a name leads to its own page, whatever it is.
//
// Fails when a template has an unescaped text, when inert.Bytes or inert.JSON lets something
// through, and when a URL is made without escapes.
func TestHostileNamesAreOnlyText(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{Authorize: allow(operator)})
	for _, name := range hostileNames {
		if _, err := f.session.Semaphore("timer:"+name, 2).TryAcquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.registry.RecordRun(cluster.Run{Timer: name, Outcome: "error", Err: name + "\x1b[2J\x9b31m\x00", By: name})
		f.registry.RecordEvent(cluster.Event{Kind: cluster.EventOperator, Name: name, Text: name + "\x1b]0;owned\a"})
		f.host(name, cluster.Heartbeat{AppVersion: name, Environment: name}, cluster.HostDetail{
			Timers:  []cluster.TimerDetail{{Name: name, MaxConcurrency: 2}},
			Runners: []cluster.RunnerDetail{{Kind: name, Name: name, State: name, Err: name + "\x1b[31m\xff"}}})
	}
	for _, target := range []string{"", "timers", "hosts", "leases", "leaders", "events"} {
		inertHTML(t, target, f.get(target))
	}
	for i, name := range hostileNames {
		own := page.URL("timer", "name", name)
		inertHTML(t, own, f.get(own))
		if v := f.json(own); v["name"] != name {
			t.Errorf("JSON of %q is that of %q", name, v["name"])
		}
		confirm := page.URL("confirm", "action", "pause", "name", name)
		inertHTML(t, confirm, f.get(confirm))
		for _, q := range []string{"timers?q=", "leases?host=", "events?state=", "confirm?action=", "hosts?page=",
			"timer?done=pause&name=", "?x="} {
			r := request("GET", q+url.QueryEscape(name), "")
			r.AddCookie(&http.Cookie{Name: "tickslot-done", Value: "pause"})
			w := serve(f.page, r)
			inertHTML(t, q+name, w.Body.String())
		}
		if w := f.post(page.URL("do", "action", "pause", "name", name), url.Values{"for": {"1h"}, "note": {
			name}}); w.Code != 303 {
			t.Errorf("pause %q: %d %s", name, w.Code, w.Body)
		} else if u, err := url.Parse(w.Header().Get("Location")); err != nil || u.Query().Get("name") != name ||
			u.Path != "timer" || u.IsAbs() {
			t.Errorf("pause %q leads to %q", name, w.Header().Get("Location"))
		}
		if state, err := f.locks.Inspect(t.Context(), "timer:"+name); err != nil || state[0].Pause == nil ||
			state[0].Pause.Note != name {
			t.Errorf("%d: %q is not paused: %+v, %v", i, name, state, err)
		}
	}
	for _, r := range f.log.String() {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			t.Errorf("%q is in the log", r)
		}
	}
	r := request("GET", "events", "")
	r.Header.Set("Accept", "application/json")
	for _, r := range serve(f.page, r).Body.String() {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			t.Errorf("%q is in the JSON", r)
		}
	}
}

// inertHTML fails the test if a hostile name is more than text.
func inertHTML(t *testing.T, what, html string) {
	t.Helper()
	for _, bad := range []string{"<script>alert", "<img", " onmouseover='", `href="javascript:`, "<!--"} {
		if strings.Contains(html, bad) {
			t.Errorf("%s has %s: %s", what, bad, html)
		}
	}
	for _, r := range html {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			t.Errorf("%s has %q", what, r)
			return
		}
	}
}

// Every answer forbids what a page does not need: scripts and styles of others or in the page,
// frames, guesses at its type, caches. Nothing in it is inline.
//
// Fails when a header is taken out, or a template gets an inline script, handler or style.
func TestStrictPolicy(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{Authorize: allow(operator)})
	f.host("h", cluster.Heartbeat{}, cluster.HostDetail{Timers: []cluster.TimerDetail{{Name: "report",
		MaxConcurrency: 1}}})
	for _, target := range []string{"", "timers", "timer?name=report", "hosts", "leases", "leaders", "events",
		"confirm?action=pause&name=report", "nothing", "page.css", "page.js", "openapi.json"} {
		w := serve(f.page, request("GET", target, ""))
		policy := w.Header().Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; script-src 'self'; style-src 'self';") ||
			!strings.Contains(policy, "frame-ancestors 'none'; base-uri 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %q", target, policy)
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
			"Referrer-Policy": "same-origin", "Cache-Control": "no-store",
			"Cross-Origin-Resource-Policy": "same-origin"} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", target, name, got, want)
			}
		}
		html := w.Body.String()
		if !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
			continue
		}
		for _, bad := range []string{"<style", " style=", " onclick=", "<script>", "http://", "https://", `="/`} {
			if strings.Contains(html, bad) {
				t.Errorf("%s has %s", target, bad)
			}
		}
		if strings.Count(html, "<script") != 1 || !strings.Contains(html, `<script src="page.js?v=`) {
			t.Errorf("%s has other scripts: %s", target, html)
		}
	}
}

// Whatever is in the URL, the page answers, as HTML or JSON, with all of it escaped, and never
// with a fault of its own.
//
// Fails when a view takes a value for a number, or an index, without a check.
func FuzzParameters(f *testing.F) {
	for _, name := range hostileNames {
		text := url.QueryEscape(name)
		for _, target := range []string{"timers?q=", "timer?name=", "confirm?action=pause&name=", "confirm?action=",
			"leases?kind=leader&host=", "events?state=", "timer?done=pause&name=", "?done=", "durable?state=",
			"durable?handler=", "durablerun?id=", "confirm?action=durable-cancel&id=", "outbox?state=", "outbox?topic=",
			"message?id=", "confirm?action=outbox-requeuetopic&topic="} {
			path, query, _ := strings.Cut(target, "?")
			f.Add(path, query+text, len(text)%2 == 0)
		}
		f.Add("timers", name, false) // not escaped
	}
	for _, page := range []string{"99999999999999999999", "-1", "0x10", "1e3", "", "1&page=2"} {
		f.Add("hosts", "page="+page, true)
		f.Add("leases", "q=a;b&page="+page+"&%zz", false)
	}
	locks, rows := memlock.New(), cluster.NewMemoryStore()
	registry, err := cluster.New(cluster.Config{Store: rows, Locks: locks,
		Holder: dlock.Holder{Host: "h", PID: 1, ID: "x"}})
	if err != nil {
		f.Fatal(err)
	}
	if _, err := rows.Write(f.Context(), cluster.Batch{Host: &cluster.Heartbeat{TTL: time.Hour,
		Holder: dlock.Holder{Host: "other", PID: 1, ID: "x"}, Detail: []byte(`{"timers":[{"name":"report",` +
			`"max_concurrency":2}]}`)}}); err != nil {
		f.Fatal(err)
	}
	p, err := page.New(page.Config{Registry: registry, Authorize: allow(operator),
		Control:  control.New(control.Config{Store: locks}),
		Sections: sections(f)})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name, query string, asJSON bool) {
		r := request("GET", "", "")
		r.URL.Path, r.URL.RawQuery = "/"+name, query
		if asJSON {
			r.Header.Set("Accept", "application/json")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		w := serve(p, r.WithContext(ctx))
		if w.Code >= 500 {
			t.Errorf("%d: %s", w.Code, w.Body)
		}
		switch kind := w.Header().Get("Content-Type"); {
		case strings.HasPrefix(kind, "text/html"):
			inertHTML(t, fmt.Sprint(name, query), w.Body.String())
		case kind == "application/json" && !json.Valid(w.Body.Bytes()):
			t.Errorf("%s?%s: no JSON: %s", name, query, w.Body)
		}
	})
}

// sections are about a run and a message with hostile texts, which wait.
func sections(t testing.TB) []page.Section {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "sections.db")+
		"?_pragma=journal_mode(wal)&_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	runs, box := durable.SQLite(db, durable.Options{}), outbox.SQLite(db, outbox.Options{})
	t.Cleanup(func() {
		if err := errors.Join(box.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(runs.Migrate(t.Context()), box.Migrate(t.Context())); err != nil {
		t.Fatal(err)
	}
	payload := []byte(strings.Join(hostileNames, "\n"))
	if _, err := runs.Trigger(t.Context(), nil, "mail", payload, durable.TriggerOptions{}); err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := box.Append(t.Context(), outbox.SQLTx(tx), outbox.Message{ID: outbox.RandomID(), Topic: "mail",
		Key: pagetest.HostileText, Payload: payload}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	return []page.Section{durablepage.New(runs), outboxpage.New(box)}
}
