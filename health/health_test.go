package health_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tickslot/tickslot/health"
)

// get sends a probe. The header arguments are pairs of a name and a value.
func get(h http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	return ask(h, http.MethodGet, path, header...)
}

func ask(h http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func expect(t *testing.T, w *httptest.ResponseRecorder, status int, state, body string) {
	t.Helper()
	if w.Code != status || w.Header().Get("X-Health") != state || w.Body.String() != body {
		t.Errorf("%d %s %q, want %d %s %q", w.Code, w.Header().Get("X-Health"), w.Body, status, state, body)
	}
}

func bad() error { return errors.New("it is bad") }

func good() error { return nil }

// A source is a Source whose methods call these functions. A nil function succeeds.
type source struct {
	live, started, ready func() error
	checks               checks
}

type checks = map[string]func() error

func (s source) Live() error    { return orGood(s.live)() }
func (s source) Started() error { return orGood(s.started)() }
func (s source) Ready() error   { return orGood(s.ready)() }
func (s source) Checks() checks { return s.checks }

func orGood(f func() error) func() error {
	if f == nil {
		return good
	}
	return f
}

// Fails when a check affects the wrong probe, when an optional check makes a host unhealthy, or
// when a failed required check does not.
func TestProbes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                 string
		source               health.Source
		more                 []health.Check
		live, ready, startup int
		state, verbose       string
	}{
		{"nothing to check", nil, nil, 200, 200, 200, "ok",
			"ok\n[+]live ok\n[+]started ok\n[+]ready ok\n"},
		{"dead", source{live: bad}, nil, 503, 503, 200, "unhealthy",
			"unhealthy\n[-]live failed: it is bad\n[+]started ok\n[+]ready ok\n"},
		{"starting", source{started: bad}, nil, 200, 503, 503, "unhealthy",
			"unhealthy\n[+]live ok\n[-]started failed: it is bad\n[+]ready ok\n"},
		{"draining", source{ready: bad}, []health.Check{{Name: "store", Func: bad}}, 200, 503, 200,
			"unhealthy",
			"unhealthy\n[+]live ok\n[+]started ok\n[-]ready failed: it is bad\n[-]store failed: it is bad\n"},
		{"degraded", nil, []health.Check{{Name: "store", Func: bad}, {Name: "queue"}}, 200, 200, 200,
			"degraded",
			"ok\n[+]live ok\n[+]started ok\n[+]ready ok\n[-]store failed: it is bad\n[+]queue ok\n"},
		{"store required", nil, []health.Check{{Name: "store", Func: bad, Required: true}}, 200, 503, 200,
			"unhealthy",
			"unhealthy\n[+]live ok\n[+]started ok\n[+]ready ok\n[-]store failed: it is bad\n"},
		{"degraded by the source", source{checks: checks{"store": bad, "leases": good}}, nil, 200, 200, 200,
			"degraded",
			"ok\n[+]live ok\n[+]started ok\n[+]ready ok\n[+]leases ok\n[-]store failed: it is bad\n"},
		{"the source's store required", source{checks: checks{"store": good, "leases": good}},
			[]health.Check{{Name: "store", Func: bad, Required: true}}, 200, 503, 200, "unhealthy",
			"unhealthy\n[+]live ok\n[+]started ok\n[+]ready ok\n[+]leases ok\n[-]store failed: it is bad\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := health.New(c.source, c.more...)
			for path, want := range map[string]int{"/livez": c.live, "/readyz": c.ready, "/startupz": c.startup} {
				w := get(h, path)
				if w.Code != want {
					t.Errorf("%s: %d, want %d", path, w.Code, want)
				}
				if first, _, _ := strings.Cut(w.Body.String(), "\n"); (first == "ok") != (want == 200) ||
					(first == "unhealthy") != (want == 503) {
					t.Errorf("%s: %d %q", path, want, w.Body)
				}
				if strings.Contains(w.Body.String(), "[+]") {
					t.Errorf("%s without verbose: %q", path, w.Body)
				}
			}
			expect(t, get(h, "/readyz?verbose"), c.ready, c.state, c.verbose)
			for path, f := range map[string]func() error{"/livez": h.Live, "/readyz": h.Ready, "/startupz": h.Started} {
				if err := f(); (err == nil) != (get(h, path).Code == 200) {
					t.Errorf("%s is %d, the method says %v", path, get(h, path).Code, err)
				}
			}
		})
	}
}

// Fails when an excluded check is called or affects the status, when an unknown name is an error or
// is not reported, or when a check has no URL of its own.
func TestExcludeAndSingleChecks(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	h := health.New(nil, []health.Check{
		{Name: "store", Func: func() error { calls.Add(1); return bad() }, Required: true},
		{Name: "a/b c", Func: bad},
		{Name: "twice"}, {Name: "twice", Func: bad},
		{Func: bad},
	}...)
	const rest = "[+]live ok\n[+]started ok\n[+]ready ok\n[-]a/b c failed: it is bad\n[+]twice ok\n[-]twice failed: " +
		"it is bad\n[-]unnamed failed: it is bad\n"
	const all = "[+]live ok\n[+]started ok\n[+]ready ok\n[-]store failed: it is bad\n[-]a/b c failed: it is " +
		"bad\n[+]twice ok\n[-]twice failed: it is bad\n[-]unnamed failed: it is bad\n"
	for _, c := range []struct {
		path   string
		status int
		state  string
		body   string
	}{
		{"/readyz?exclude=store", 200, "degraded", "ok\n"},
		{"/readyz?exclude=store&verbose=1", 200, "degraded", "ok\n" + rest + "[+]store excluded: ok\n"},
		{"/readyz?exclude=store&exclude=a%2Fb+c&exclude=twice&exclude=unnamed", 200, "ok", "ok\n"},
		{"/readyz?exclude=nosuch&exclude=%22%0A&exclude=nosuch&verbose", 503, "unhealthy",
			"unhealthy\n" + all +
				"warn: some health checks cannot be excluded: no matches for \"nosuch\",\"\\\"\\n\"\n"},
		{"/readyz?exclude=store,twice&exclude", 503, "unhealthy", "unhealthy\n[-]store failed: it is bad\n"},
		{"/livez?exclude=live&verbose", 200, "ok", "ok\n[+]live excluded: ok\n"},
		{"/livez?exclude=store&verbose", 200, "ok",
			"ok\n[+]live ok\nwarn: some health checks cannot be excluded: no matches for \"store\"\n"},
		{"/readyz/store", 503, "unhealthy", "unhealthy\n[-]store failed: it is bad\n"},
		{"/readyz/store?exclude=store", 503, "unhealthy", "unhealthy\n[-]store failed: it is bad\n"},
		{"/readyz/a/b%20c", 503, "unhealthy", "unhealthy\n[-]a/b c failed: it is bad\n"},
		{"/readyz/twice", 503, "unhealthy", "unhealthy\n[-]twice failed: it is bad\n"},
		{"/readyz/ready?verbose", 200, "ok", "ok\n[+]ready ok\n"},
		{"/livez/live", 200, "ok", "ok\n"},
		{"/startupz/started", 200, "ok", "ok\n"},
		{"/livez/store", 404, "", "/livez has no check \"store\": /livez?verbose lists them\n"},
		{"/readyz/nosuch%0A", 404, "", "/readyz has no check \"nosuch\\n\": /readyz?verbose lists them\n"},
		{"/readyz/", 404, "", "/readyz has no check \"\": /readyz?verbose lists them\n"},
		{"/", 404, "", "there are /livez, /readyz and /startupz\n"},
		{"/healthz", 404, "", "there are /livez, /readyz and /startupz\n"},
		{"//readyz", 404, "", "there are /livez, /readyz and /startupz\n"},
	} {
		t.Run(c.path, func(t *testing.T) { expect(t, get(h, c.path), c.status, c.state, c.body) })
	}
	calls.Store(0)
	get(h, "/readyz?exclude=store")
	get(h, "/readyz/ready")
	if n := calls.Load(); n != 0 {
		t.Errorf("an excluded check was called %d times", n)
	}
}

// Fails when a method other than GET or HEAD is served, when HEAD has a body or a different status
// than GET, or when a header is missing.
func TestMethodsAndHeaders(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(health.New(source{ready: bad}))
	defer server.Close()
	for _, path := range []string{"/livez", "/readyz", "/readyz/ready", "/startupz?verbose", "/readyz/nosuch",
		"/nosuch"} {
		want := get(server.Config.Handler, path)
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"} {
			w := ask(server.Config.Handler, method, path)
			h := w.Header()
			if h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" ||
				h.Get("Content-Type") != "text/plain; charset=utf-8" {
				t.Errorf("%s %s: %v", method, path, h)
			}
			switch {
			case method == "GET":
			case method == "HEAD":
				if w.Code != want.Code || w.Body.Len() != 0 ||
					h.Get("Content-Length") != want.Header().Get("Content-Length") ||
					h.Get("X-Health") != want.Header().Get("X-Health") {
					t.Errorf("HEAD %s: %d %v %q, GET %d %v", path, w.Code, h, w.Body, want.Code, want.Header())
				}
			case path == "/nosuch":
			case w.Code != 405 || h.Get("Allow") != "GET, HEAD" || h.Get("X-Health") != "":
				t.Errorf("%s %s: %d %v", method, path, w.Code, h)
			}
		}
	}
	// On the wire, too: if HEAD sent a body, the next request on the same connection would read the
	// body as its response.
	for range 2 {
		r, err := server.Client().Head(server.URL + "/readyz?verbose")
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != 503 || r.ContentLength < 1 {
			t.Errorf("HEAD: %d, %d bytes announced", r.StatusCode, r.ContentLength)
		}
	}
}

// For any request, the status is one of five and the content type is one of two. The status is 503
// exactly if the state is unhealthy.
//
// Fails when a path, a query or an Accept header leads to a panic, to malformed JSON, or to 200
// although a required check that is not excluded fails.
func FuzzProbe(f *testing.F) {
	f.Add("GET", "/readyz", "verbose&exclude=store", "application/health+json;q=0.5, */*;q=0.1")
	f.Add("HEAD", "/readyz/store", "exclude=ready", "text/plain")
	f.Add("POST", "/livez/", "%zz;=&exclude", "\"")
	h := health.New(source{ready: bad}, health.Check{Name: "store", Func: bad})
	f.Fuzz(func(t *testing.T, method, path, query, accept string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Method, r.URL.Path, r.URL.RawQuery = method, path, query
		r.Header["Accept"] = []string{accept}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		body, state := w.Body.String(), w.Header().Get("X-Health")
		switch typ := w.Header().Get("Content-Type"); {
		case typ == "application/health+json":
			if method == "GET" && !json.Valid(w.Body.Bytes()) {
				t.Errorf("JSON: %q", body)
			}
		case typ != "text/plain; charset=utf-8":
			t.Errorf("type %q", typ)
		case method == "GET" && strings.HasPrefix(body, "ok\n") != (w.Code == 200):
			t.Errorf("%d %q", w.Code, body)
		}
		switch w.Code {
		case 200:
			if state == "unhealthy" || path == "/readyz" && !strings.Contains(query, "exclude") {
				t.Errorf("200 %s", state)
			}
		case 503:
			if state != "unhealthy" {
				t.Errorf("503 %s", state)
			}
		case 404, 405:
			if state != "" {
				t.Errorf("%d %s", w.Code, state)
			}
		default:
			t.Errorf("status %d", w.Code)
		}
		if method == "HEAD" && body != "" {
			t.Errorf("HEAD has a body: %q", body)
		}
	})
}
