package health_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/health"
)

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
		{[]string{"text/html"}, false}, // a type that the handler cannot produce is not an error
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
		{[]string{j + ";q=2, text/plain;q=0.1"}, false}, // an invalid q-value, which is ignored
		{[]string{j + ";q=NaN"}, false},
		{[]string{j + ";q=-1"}, false},
		{[]string{";;;,,,=," + j}, true},
		{[]string{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}, false}, // sent by browsers
	} {
		var header []string
		for _, a := range c.accept {
			header = append(header, "Accept", a)
		}
		w := get(health.New(nil), "/livez", header...)
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

// Fails when the state in the JSON contradicts the HTTP status.
func TestJSON(t *testing.T) {
	t.Parallel()
	h := health.New(source{started: bad}, health.Check{Name: "store", Func: bad}, health.Check{Name: "twice"},
		health.Check{Name: "twice", Func: bad})
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

// Fails when an error is shown although Details returns false, or when a password is shown.
func TestDetails(t *testing.T) {
	t.Parallel()
	const canary = "s3cr3t"
	leak := func(format string) health.Check {
		return health.Check{Name: "leaks", Func: func() error { return fmt.Errorf("may be seen: "+format, canary) },
			Required: true}
	}
	leaks := []health.Check{
		leak("dial redis://:%s@10.0.0.1:6379: refused"), leak("dial redis://user:%s@db/0"),
		leak("parse %%q redis://u:p/a@%s@db"), leak("app:%s@tcp(db:3306)/shop"),
		leak("host=db password=%s user=x"), leak("PASSWORD = '%s x'"), leak("Get https://db/?token=%s&x"),
		leak(`{"api_key": "%s"}`), leak("https://%s@db/"),
		{Name: "panics", Func: func() error { panic("pwd=" + canary + " may be seen") }},
	}
	var details func(*http.Request) bool
	both := func(header ...string) string {
		h := health.New(nil, leaks...)
		h.Details = details
		return get(h, "/readyz?verbose", header...).Body.String() + get(h, "/readyz", header...).Body.String() +
			get(h, "/readyz/panics", header...).Body.String() +
			get(h, "/readyz", append(header, "Accept", "application/health+json")...).Body.String()
	}
	if text := both(); strings.Contains(text, canary) {
		t.Errorf("a password is seen: %s", text)
	} else if strings.Count(text, "may be seen") != 9+1+9+1+9+1 {
		t.Errorf("errors are not seen: %s", text)
	}
	details = func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer x" }
	if text := both(); strings.Contains(text, "may be seen") || !strings.Contains(text, "[-]leaks failed\n") ||
		!strings.Contains(text, `"leaks":[{"status":"fail"}`) {
		t.Errorf("without authorisation: %s", text)
	}
	if text := both("Authorization", "Bearer x"); !strings.Contains(text, "may be seen") {
		t.Errorf("with it: %s", text)
	}
}

// The text of an error cannot imitate another check.
//
// Fails when a line break in an error is copied to the body.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	h := health.New(source{ready: func() error { return errors.New("x\n[+]ready ok\r\n\u2028ok\x1b[2J\xff\u202e") }},
		health.Check{Name: "a\nb"})
	expect(t, get(h, "/readyz?verbose"), 503, "unhealthy",
		"unhealthy\n[+]live ok\n[+]started ok\n[-]ready failed: x; [+]ready ok ;  ok [2J\ufffd \n[+]a; b ok\n")
	if w := get(h, "/readyz", "Accept", "application/health+json"); !json.Valid(w.Body.Bytes()) {
		t.Errorf("JSON: %q", w.Body)
	}
}
