package health_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/health"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// get sends a probe; header is pairs of names and values.
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

// Fails when a check counts for another probe, a check that is not required makes a host unhealthy,
// or a required one does not.
func TestProbes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                 string
		checks               health.Checks
		live, ready, startup int
		state, verbose       string
	}{
		{"nothing to check", health.Checks{}, 200, 200, 200, "ok",
			"ok\n[+]live ok\n[+]started ok\n[+]ready ok\n"},
		{"dead", health.Checks{Live: bad}, 503, 503, 200, "unhealthy",
			"unhealthy\n[-]live failed: it is bad\n[+]started ok\n[+]ready ok\n"},
		{"starting", health.Checks{Started: bad}, 200, 503, 503, "unhealthy",
			"unhealthy\n[+]live ok\n[-]started failed: it is bad\n[+]ready ok\n"},
		{"draining", health.Checks{Ready: bad, More: []health.Check{{Name: "store", Func: bad}}}, 200, 503, 200,
			"unhealthy",
			"unhealthy\n[+]live ok\n[+]started ok\n[-]ready failed: it is bad\n[-]store failed: it is bad\n"},
		{"degraded", health.Checks{More: []health.Check{{Name: "store", Func: bad}, {Name: "queue"}}}, 200, 200, 200,
			"degraded",
			"ok\n[+]live ok\n[+]started ok\n[+]ready ok\n[-]store failed: it is bad\n[+]queue ok\n"},
		{"store required", health.Checks{More: []health.Check{{Name: "store", Func: bad, Required: true}}}, 200, 503,
			200, "unhealthy",
			"unhealthy\n[+]live ok\n[+]started ok\n[+]ready ok\n[-]store failed: it is bad\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := health.New(c.checks)
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

// Fails when an excluded check counts or is called, when an unknown name is an error or is not
// reported, or when a check has no URL of its own.
func TestExcludeAndSingleChecks(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	h := health.New(health.Checks{More: []health.Check{
		{Name: "store", Func: func() error { calls.Add(1); return bad() }, Required: true},
		{Name: "a/b c", Func: bad},
		{Name: "twice"}, {Name: "twice", Func: bad},
		{Func: bad},
	}})
	const rest = "[+]live ok\n[+]started ok\n[+]ready ok\n[-]a/b c failed: it is bad\n[+]twice ok\n[-]twice failed: it is bad\n[-]unnamed failed: it is bad\n"
	const all = "[+]live ok\n[+]started ok\n[+]ready ok\n[-]store failed: it is bad\n[-]a/b c failed: it is bad\n[+]twice ok\n[-]twice failed: it is bad\n[-]unnamed failed: it is bad\n"
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
		t.Errorf("a check that was not asked for was called %d times", n)
	}
}

// Fails when another method is served, HEAD has a body or another status than GET, or a header is
// missing.
func TestMethodsAndHeaders(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(health.New(health.Checks{Ready: bad}))
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
	// And on the wire: a second request on the same connection would read the first one's body.
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

// Fails when a client that prefers text gets JSON, or the other way round.
func TestAccept(t *testing.T) {
	t.Parallel()
	const j = "application/health+json"
	for _, c := range []struct {
		accept []string
		json   bool
	}{
		{nil, false},
		{[]string{""}, false},
		{[]string{"*/*"}, false},
		{[]string{"text/*"}, false},
		{[]string{"text/html"}, false}, // nothing that we have: never an error
		{[]string{"application/json"}, false},
		{[]string{j}, true},
		{[]string{"Application/Health+JSON"}, true},
		{[]string{j + "; charset=utf-8"}, true},
		{[]string{j + ", */*"}, true},
		{[]string{"*/*, " + j}, true},
		{[]string{j, "text/plain"}, false},
		{[]string{j + ";q=0.9, text/plain;q=0.8"}, true},
		{[]string{j + ";q=0.8, text/plain;q=0.9"}, false},
		{[]string{"text/plain;q=0.5", j}, true},
		{[]string{j + ";q=0.1, */*;q=0.2"}, false},
		{[]string{j + ";q=0.3, */*;q=0.2"}, true},
		{[]string{j + ";q=0"}, false},
		{[]string{j + ";q=0, */*"}, false},
		{[]string{"text/plain;q=0, */*"}, true},
		{[]string{"application/*"}, true},
		{[]string{"application/*;q=0.5, text/*;q=0.4"}, true},
		{[]string{j + ";q=2, text/plain;q=0.1"}, false}, // not a q-value: passed over
		{[]string{j + ";q=NaN"}, false},
		{[]string{j + ";q=-1"}, false},
		{[]string{";;;,,,=," + j}, true},
		{[]string{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}, false}, // a browser
	} {
		var header []string
		for _, a := range c.accept {
			header = append(header, "Accept", a)
		}
		w := get(health.New(health.Checks{}), "/livez", header...)
		want, body := "text/plain; charset=utf-8", "ok\n"
		if c.json {
			want, body = j, `{"status":"pass","checks":{"live":[{"status":"pass"}]}}`+"\n"
		}
		if w.Code != 200 || w.Header().Get("Content-Type") != want || w.Body.String() != body ||
			w.Header().Get("Vary") != "Accept" {
			t.Errorf("Accept %q: %d %v %q, want %s %q", c.accept, w.Code, w.Header(), w.Body, want, body)
		}
	}
}

// Fails when the draft's state contradicts the status.
func TestJSON(t *testing.T) {
	t.Parallel()
	h := health.New(health.Checks{Started: bad, More: []health.Check{{Name: "store", Func: bad}, {Name: "twice"},
		{Name: "twice", Func: bad}}})
	for path, want := range map[string]string{
		"/readyz": `{"status":"fail","checks":{"live":[{"status":"pass"}],"ready":[{"status":"pass"}],"started":[{"status":"fail","output":"it is bad"}],` +
			`"store":[{"status":"warn","output":"it is bad"}],"twice":[{"status":"pass"},{"status":"warn","output":"it is bad"}]}}`,
		"/readyz?exclude=started&exclude=nosuch&verbose": `{"status":"warn","notes":["warn: some health checks cannot be excluded: no matches for \"nosuch\""],` +
			`"checks":{"live":[{"status":"pass"}],"ready":[{"status":"pass"}],"store":[{"status":"warn","output":"it is bad"}],"twice":[{"status":"pass"},{"status":"warn","output":"it is bad"}]}}`,
		"/livez":              `{"status":"pass","checks":{"live":[{"status":"pass"}]}}`,
		"/livez?exclude=live": `{"status":"pass","checks":{}}`,
		"/readyz/store":       `{"status":"fail","checks":{"store":[{"status":"fail","output":"it is bad"}]}}`,
	} {
		w := get(h, path, "Accept", "application/health+json")
		if got := strings.TrimSuffix(w.Body.String(), "\n"); got != want {
			t.Errorf("%s:\n%s, want\n%s", path, got, want)
		}
		if ok := strings.Contains(want[:16], "fail"); (w.Code == 503) != ok || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// Fails when Details is false and an error is shown, or when a password is.
func TestDetails(t *testing.T) {
	t.Parallel()
	const canary = "s3cr3t"
	leak := func(format string) health.Check {
		return health.Check{Name: "leaks", Func: func() error { return fmt.Errorf("may be seen: "+format, canary) },
			Required: true}
	}
	checks := health.Checks{More: []health.Check{
		leak("dial redis://:%s@10.0.0.1:6379: refused"), leak("dial redis://user:%s@db/0"),
		leak("parse %%q redis://u:p/a@%s@db"), leak("app:%s@tcp(db:3306)/shop"),
		leak("host=db password=%s user=x"), leak("PASSWORD = '%s x'"), leak("Get https://db/?token=%s&x"),
		leak(`{"api_key": "%s"}`), leak("https://%s@db/"),
		{Name: "panics", Func: func() error { panic("pwd=" + canary + " may be seen") }},
	}}
	both := func(c health.Checks, header ...string) string {
		h := health.New(c)
		return get(h, "/readyz?verbose", header...).Body.String() + get(h, "/readyz", header...).Body.String() +
			get(h, "/readyz/panics", header...).Body.String() +
			get(h, "/readyz", append(header, "Accept", "application/health+json")...).Body.String()
	}
	if text := both(checks); strings.Contains(text, canary) {
		t.Errorf("a password is seen: %s", text)
	} else if strings.Count(text, "may be seen") != 9+1+9+1+9+1 {
		t.Errorf("errors are not seen: %s", text)
	}
	checks.Details = func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer x" }
	if text := both(checks); strings.Contains(text, "may be seen") || !strings.Contains(text, "[-]leaks failed\n") ||
		!strings.Contains(text, `"leaks":[{"status":"fail"}`) {
		t.Errorf("without authorisation: %s", text)
	}
	if text := both(checks, "Authorization", "Bearer x"); !strings.Contains(text, "may be seen") {
		t.Errorf("with it: %s", text)
	}
}

// An error cannot look like another check.
//
// Fails when a line break of an error reaches the text.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	h := health.New(health.Checks{Ready: func() error { return errors.New("x\n[+]ready ok\r\n\u2028ok\x1b[2J\xff\u202e") }, More: []health.Check{{Name: "a\nb"}}})
	expect(t, get(h, "/readyz?verbose"), 503, "unhealthy",
		"unhealthy\n[+]live ok\n[+]started ok\n[-]ready failed: x; [+]ready ok ;  ok [2J\ufffd \n[+]a; b ok\n")
	if w := get(h, "/readyz", "Accept", "application/health+json"); !json.Valid(w.Body.Bytes()) {
		t.Errorf("JSON: %q", w.Body)
	}
}

type typedNil struct{ text string }

func (e *typedNil) Error() string { return e.text }

// Fails when a panic or runtime.Goexit of a check ends the probe, or counts as well.
func TestAPanicIsAFailure(t *testing.T) {
	t.Parallel()
	h := health.New(health.Checks{More: []health.Check{
		{Name: "panics", Func: func() error { panic("oh") }},
		{Name: "panics in Error", Func: func() error { return (*typedNil)(nil) }},
		{Name: "exits", Func: func() error { runtime.Goexit(); return nil }},
		{Name: "panics calmly", Func: health.Debounce(time.Hour, func() error { panic("oh") })},
		{Name: "is well"},
	}})
	for range 2 {
		expect(t, get(h, "/readyz?verbose"), 200, "degraded", "ok\n[+]live ok\n[+]started ok\n[+]ready ok\n"+
			"[-]panics failed: the check panicked: oh\n"+
			"[-]panics in Error failed: the check panicked: runtime error: invalid memory address or nil pointer dereference\n"+
			"[-]exits failed: the check ended its goroutine\n"+
			"[-]panics calmly failed: the check panicked: oh\n[+]is well ok\n")
	}
}

// A check that hangs fails after Timeout, costs one goroutine however often it is asked, and does
// not delay the other checks.
//
// Fails when checks are called one after the other, or when each probe calls the hanging check
// again.
func TestACheckThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var hung atomic.Int32
		gate := make(chan struct{})
		wait := func() error { hung.Add(1); <-gate; return nil }
		h := health.New(health.Checks{More: []health.Check{{Name: "a", Func: wait}, {Name: "b", Func: wait},
			{Name: "bad", Func: bad}}})
		for i := range 100 {
			began := time.Now()
			w := get(h, "/readyz?verbose")
			if w.Code != 200 || !strings.Contains(w.Body.String(), "[-]a failed: the check has not answered for ") ||
				!strings.Contains(w.Body.String(), "[-]bad failed: it is bad") {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			want := health.Timeout
			if i > 0 {
				want = 0 // it has waited long enough
			}
			if took := time.Since(began); took != want {
				t.Errorf("probe %d took %v, want %v", i, took, want)
			}
		}
		began := time.Now()
		if get(h, "/livez").Code != 200 || get(h, "/readyz?exclude=a&exclude=b").Code != 200 ||
			get(h, "/readyz/ready").Code != 200 || time.Since(began) != 0 {
			t.Error("others are kept waiting")
		}
		if n := hung.Load(); n != 2 {
			t.Errorf("%d calls hang, want one of each", n)
		}
		close(gate)
		synctest.Wait()
		if w := get(h, "/readyz/a"); w.Code != 200 {
			t.Errorf("when it answers again: %d %s", w.Code, w.Body)
		}
	})
}

// Fails when Debounce changes at once, changes never, or adds up separate periods, and when a panic
// gets past it.
func TestSteady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var now error
		f := health.Debounce(10*time.Second, func() error { return now })
		step := func(err, want error) {
			t.Helper()
			now = err
			if got := f(); got != want {
				t.Errorf("at %v: %v, want %v", time.Now().Format("05"), got, want)
			}
			time.Sleep(time.Second)
		}
		first, second := errors.New("first"), errors.New("second")
		step(first, first) // what it says first counts
		for range 10 {
			step(nil, first)
		}
		step(nil, nil)
		for range 30 { // it flaps
			step(second, nil)
			step(nil, nil)
		}
		for range 10 {
			step(first, nil)
		}
		step(second, second)
		step(first, first) // and tells the error as it is now
		for range 10 {
			step(nil, first)
		}
		step(nil, nil)
		if err := health.Debounce(0, bad)(); err == nil {
			t.Error("without a delay it says nothing")
		}
		jumpy := health.Debounce(10*time.Second, func() error {
			if now != nil {
				panic(now)
			}
			return nil
		})
		for _, now = range []error{nil, first, nil} { // a panic is a failure like others
			if err := jumpy(); err != nil {
				t.Error(err)
			}
		}
		quick := health.Debounce(0, func() error { return now })
		for _, want := range []error{nil, first, nil, nil, second} {
			now = want
			if got := quick(); got != want {
				t.Errorf("without a delay: %v, want %v", got, want)
			}
		}
	})
}

// A probe reads memory only: it costs the store nothing, is answered while the store hangs, and
// does not flap.
//
// Fails when Degraded calls the store.
func TestI12ProbesCostTheStoreNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		link := dlocktest.NewFaulty(memlock.New())
		timers, err := timer.New(timer.Config{Lock: link}, timer.Timer{Name: "a", Schedule: schedule.Every(time.Hour),
			Run: func(context.Context) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		h := health.New(health.Checks{Live: timers.Live, Ready: timers.Ready,
			More: []health.Check{{Name: "timers", Func: timers.Degraded}}})
		if w := get(h, "/readyz"); w.Code != 503 || !strings.Contains(w.Body.String(), "not running yet") {
			t.Errorf("before Run: %d %q", w.Code, w.Body)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- timers.Run(ctx) }()
		time.Sleep(90*time.Minute + time.Second) // no heartbeat is due at this instant
		synctest.Wait()
		calls := link.Calls(dlocktest.OpAcquire) + link.Calls(dlocktest.OpExtend) + link.Calls(dlocktest.OpRelease)
		link.Inject(dlocktest.Hang)
		began := time.Now()
		for range 5_000 {
			for _, path := range []string{"/livez", "/readyz", "/readyz?verbose"} {
				if w := get(h, path); w.Code != 200 {
					t.Fatalf("%s: %d %q", path, w.Code, w.Body)
				}
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("probes waited %v", took)
		}
		if n := link.Calls(dlocktest.OpAcquire) + link.Calls(dlocktest.OpExtend) +
			link.Calls(dlocktest.OpRelease); n != calls {
			t.Errorf("15,000 probes made %d calls to the store", n-calls)
		}
		time.Sleep(time.Hour) // a tick meets the store that hangs
		if w := get(h, "/readyz?verbose"); w.Code != 200 || w.Header().Get("X-Health") != "degraded" ||
			!strings.Contains(w.Body.String(), "does not answer") {
			t.Errorf("store down: %d %v %q", w.Code, w.Header(), w.Body)
		}
		link.Heal()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if w := get(h, "/readyz"); w.Code != 503 {
			t.Errorf("after Run: %d", w.Code)
		}
		if w := get(h, "/livez"); w.Code != 200 {
			t.Errorf("livez after Run: %d", w.Code)
		}
	})
}

// A scheduling goroutine that hangs in a schedule makes Live fail.
//
// Fails when Live always succeeds.
func TestLivezFindsAStalledScheduler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		s := &sometimes{wait: stuck}
		timers, err := timer.New(timer.Config{}, timer.Timer{Name: "a", Schedule: s,
			Run: func(context.Context) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		h := health.New(health.Checks{Live: timers.Live})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- timers.Run(ctx) }()
		time.Sleep(5 * time.Second)
		if w := get(h, "/livez"); w.Code != 200 {
			t.Errorf("livez: %d", w.Code)
		}
		s.stuck.Store(true)
		time.Sleep(30 * time.Second)
		if w := get(h, "/livez"); w.Code != 503 || !strings.Contains(w.Body.String(), "stalled") {
			t.Errorf("livez of a stalled scheduler: %d %q", w.Code, w.Body)
		}
		s.stuck.Store(false)
		close(stuck)
		stop()
		<-done
	})
}

// sometimes is a schedule that may block.
type sometimes struct {
	stuck atomic.Bool
	wait  chan struct{}
}

func (s *sometimes) Next(t time.Time) time.Time {
	if s.stuck.Load() {
		<-s.wait
	}
	return t.Add(10 * time.Second)
}

// Whatever a probe sends, the status is one of five, the type is one of two, and 503 means exactly
// unhealthy.
//
// Fails when a path, a query or an Accept header leads to a panic, to malformed JSON, or to 200
// while a required check fails that was not excluded.
func FuzzProbe(f *testing.F) {
	f.Add("GET", "/readyz", "verbose&exclude=store", "application/health+json;q=0.5, */*;q=0.1")
	f.Add("HEAD", "/readyz/store", "exclude=ready", "text/plain")
	f.Add("POST", "/livez/", "%zz;=&exclude", "\"")
	h := health.New(health.Checks{Ready: bad, More: []health.Check{{Name: "store", Func: bad}}})
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
