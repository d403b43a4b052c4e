package commands_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/commands"
	"github.com/tickslot/tickslot/internal/testkit"
)

// A served is a running server.
type served struct {
	t    *testing.T
	url  string
	stop func() answer // stops it and returns its output
}

// serve runs the command on a free port until the test ends.
func serve(t *testing.T, environment map[string]string, flags string) *served {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	var said, errs bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		args := append([]string{"serve", "--listen", "127.0.0.1:0"}, strings.Fields(flags)...)
		code := commands.Run(ctx, args, commands.IO{Out: in, Err: &errs,
			Getenv: func(name string) string { return environment[name] }})
		_ = in.Close() // closing a pipe cannot fail
		ended <- code
	}()
	s := &served{t: t}
	line := make([]byte, 1024)
	n, err := out.Read(line)
	if err != nil {
		cancel()
		t.Fatalf("it serves nothing: %v, exit code %d: %s", err, <-ended, errs.String())
	}
	said.Write(line[:n])
	go func() { _, _ = io.Copy(io.Discard, out) }()
	s.url, _, _ = strings.Cut(said.String(), " ")
	var last *answer
	s.stop = func() answer {
		if last == nil {
			cancel()
			last = &answer{<-ended, said.String(), errs.String()}
		}
		return *last
	}
	t.Cleanup(func() { s.stop() })
	return s
}

// A request is an HTTP request to the server. Without a user it has no credentials.
type request struct {
	method, path, user, password string
	host                         string
	header                       map[string]string
	form                         url.Values
}

// asks sends a request, checks the status, and returns the body and the headers of the response.
func (s *served) asks(r request, status int) (string, http.Header) {
	s.t.Helper()
	if r.method == "" {
		r.method = http.MethodGet
	}
	ask, err := http.NewRequestWithContext(s.t.Context(), r.method, s.url+r.path, strings.NewReader(r.form.Encode()))
	if err != nil {
		s.t.Fatal(err)
	}
	if r.form != nil {
		ask.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if r.user != "" {
		ask.SetBasicAuth(r.user, r.password)
	}
	for name, value := range r.header {
		ask.Header.Set(name, value)
	}
	ask.Host = r.host
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(ask)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if answer.StatusCode != status {
		s.t.Errorf("%+v: status %d, not %d: %.300s", r, answer.StatusCode, status, body)
	}
	return string(body), answer.Header
}

// usersFile writes a file in which ann has the password "secret", and bob "hidden".
func usersFile(t *testing.T) string {
	t.Helper()
	text := "# operators\n\n"
	for user, password := range map[string]string{"ann": "secret", "bob": "hidden"} {
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		if err != nil {
			t.Fatal(err)
		}
		text += user + ":" + strings.Replace(string(hash), "$2a$", "$2y$", 1) + "\n" // as written by htpasswd
	}
	file := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// On a database, the page shows timers, durable runs and messages to users who log in. No user can
// change anything. The serving process is not a host of the fleet, and stops cleanly.
//
// Fails when something is shown without the right password, or changed without --control.
func TestServe(t *testing.T) {
	t.Parallel()
	store, file := sqlite(t)
	registry := sqlregistry.SQLite(open(t, file), sqlregistry.Options{})
	beat := func() { write(t, registry, cluster.Batch{Host: hostRow(holder, "1.2", "production", 1)}) }
	beat()
	s := serve(t, map[string]string{"TICKSLOT_STORE": store}, "--users "+usersFile(t))
	ann := request{user: "ann", password: "secret"}
	for path, text := range map[string]string{"": "1 alive", "timers": "report", "hosts": "web-1",
		"durable": "Durable runs",
		"outbox":  "Outbox", "metrics": `tickslot_cluster_timer_hosts{timer="report"} 1`} {
		ann.path = path
		// A busy machine exceeds the TTL, and the host becomes suspect, or the page is still stale.
		testkit.Eventually(t, testkit.Patience, "/"+path+" has "+text, func() bool {
			beat()
			body, _ := s.asks(ann, 200)
			return strings.Contains(body, text)
		})
		for _, stranger := range []request{{}, {user: "ann", password: "hidden"}, {user: "eve", password: "secret"},
			{user: "ann", password: ""}, {header: map[string]string{"Authorization": "Basic !"}}} {
			stranger.path = path
			body, header := s.asks(stranger, 401)
			if body != "log in\n" || !strings.HasPrefix(header.Get("WWW-Authenticate"), "Basic realm=") {
				t.Errorf("/%s: %+v: %q, %v", path, stranger, body, header)
			}
		}
	}
	if body, _ := s.asks(request{path: "metrics", user: "bob", password: "hidden"}, 200); !strings.Contains(body,
		"tickslot_outbox_dead 0") {
		t.Errorf("the metrics lack messages: %s", body)
	}
	s.asks(request{path: "livez"}, 200)
	s.asks(request{path: "readyz"}, 200)
	ann.path = ""
	ann.host = "ops.example.com"
	s.asks(ann, 403)
	ann = request{method: http.MethodPost, path: "do?action=pause&name=report", user: "ann", password: "secret",
		form: url.Values{"for": {"1h"}}}
	s.asks(ann, 403)
	ann.user = "" // without a user
	s.asks(ann, 401)
	has(t, store, "hosts ls", "web-1")
	if a := tickslot(t, store, "timers", "ls"); strings.Contains(a.out, "paused") {
		t.Errorf("it is paused: %s", a)
	}
	a := s.stop()
	if a.code != 0 || a.err != "" || !strings.Contains(a.out, "shows SQLite "+file+"; it only shows") {
		t.Errorf("exit code %d: %s", a.code, a)
	}
	if a := tickslot(t, store, "hosts", "ls", "-o", "json"); strings.Count(a.out, `"holder"`) != 1 {
		t.Errorf("there are other hosts: %s", a)
	}
	if a := tickslot(t, store, "events", "ls", "-o", "json"); strings.TrimSpace(a.out) != "[]" {
		t.Errorf("it has written events: %s", a)
	}
}

// With --control, a user pauses a timer, and the events record the change under the user's name.
// The serving process is still not a host.
//
// Fails when the change is not made, is not recorded, or can be made by a page of another site.
func TestServeControls(t *testing.T) {
	t.Parallel()
	store, _ := redisFleet(t)
	s := serve(t, map[string]string{"TICKSLOT_STORE": store, "TICKSLOT_USER": "ann", "TICKSLOT_PASSWORD": "secret"},
		"--control --prefix shop: --host ops.example.com --environment production")
	pause := request{method: http.MethodPost, path: "do?action=pause&name=report", user: "ann", password: "secret",
		host: "ops.example.com", form: url.Values{"for": {"1h"}, "note": {"moving"}}}
	strange := pause
	strange.header = map[string]string{"Origin": "https://evil.example.com"}
	s.asks(strange, 403)
	has(t, store, "explain report --prefix shop:", "running")
	s.asks(pause, 303)
	has(t, store, "explain report --prefix shop:", "paused", "by ann: moving")
	s.asks(request{path: "durable", user: "ann", password: "secret"}, 404)
	testkit.Eventually(t, testkit.Patience, "the events tell it", func() bool {
		a := tickslot(t, store, "events", "ls", "--prefix", "shop:", "-o", "json")
		return strings.Contains(a.out, "by ann: Pause report") && strings.Contains(a.out, ": moving")
	})
	if a := s.stop(); a.code != 0 || !strings.Contains(a.out, "users can make changes") {
		t.Errorf("exit code %d: %s", a.code, a)
	}
	a := tickslot(t, store, "--prefix", "shop:", "hosts", "ls", "-o", "json")
	if strings.Count(a.out, `"holder"`) != 1 {
		t.Errorf("there are other hosts: %s", a)
	}
	if a := tickslot(t, store, "--prefix", "shop:", "events", "ls", "-o", "json"); strings.Contains(a.out, "host_") {
		t.Errorf("it has told of itself: %s", a)
	}
}

// Without users, only this machine gets the page. Requests to a foreign name that resolves to this
// machine are refused, and so are requests passed on by a proxy.
//
// Fails when one of them is answered.
func TestServeWithoutUsers(t *testing.T) {
	t.Parallel()
	store, _ := sqlite(t)
	s := serve(t, map[string]string{"TICKSLOT_STORE": store}, "")
	for _, path := range []string{"timers", "metrics"} {
		s.asks(request{path: path}, 200)
		for _, stranger := range []request{{host: "evil.example.com"},
			{header: map[string]string{"X-Forwarded-For": "192.0.2.1"}},
			{header: map[string]string{"Via": "1.1 proxy"}}} {
			stranger.path = path
			if body, _ := s.asks(stranger, 403); len(body) > 200 {
				t.Errorf("it shows something: %s", body)
			}
		}
	}
	s.asks(request{method: http.MethodPost, path: "do?action=pause&name=report", form: url.Values{"for": {"1h"}}}, 403)
}

// Options that would open the page to strangers, or that cannot work, are rejected before the
// server listens. The error describes the repair.
//
// Fails when the server listens anyway, or prints a password or a hash.
func TestServeRefuses(t *testing.T) {
	t.Parallel()
	store, _ := sqlite(t)
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "users")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	const costly = "$2y$20$abcdefghijklmnopqrstuuAbCdEfGhIjKlMnOpQrStUvWxYz01234"
	for flags, want := range map[string]string{
		"--listen 0.0.0.0:0":                              "there is no log-in: give it --users FILE",
		"--listen :0":                                     "or listen on 127.0.0.1",
		"--listen [::]:0":                                 "there is no log-in",
		"--listen ops.example.com:0":                      "there is no log-in",
		"--listen 127.0.0.1":                              "an address with a port",
		"--control":                                       "--control needs a log-in",
		"--users /nowhere":                                `"htpasswd -B -c FILE ann" makes one`,
		"--users " + file("# nobody\n"):                   "has no user",
		"--users " + file("ann:hunter2"):                  `line 1 of --users is not user:hash with a hash of bcrypt`,
		"--users " + file("\nann:$apr1$hunter2$x"):        "line 2 of --users is not",
		"--users " + file("ann:"+costly):                  "the cost of the hash is 20: use at most 14",
		"--users " + file(":"+costly[:4]+"04"+costly[6:]): "line 1 of --users: the name of a user is empty",
		"--tls-cert /nowhere --tls-key /nowhere":          "not a certificate and its key",
		"--host Ops.Example.com":                          "use a name in lower case",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		a := in(ctx, map[string]string{"TICKSLOT_STORE": store}, append([]string{"serve"}, strings.Fields(flags)...)...)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) || a.code != 1 || a.out != "" ||
			!strings.Contains(a.err, want) || strings.Count(a.err, "\n") != 1 || strings.Contains(a.err, "hunter2") {
			t.Errorf("%s: exit code %d, or lacks %q: %s", flags, a.code, want, a)
		}
		cancel()
	}
	for _, more := range []map[string]string{{"TICKSLOT_USER": "ann"}, {"TICKSLOT_PASSWORD": "hunter2"}} {
		environment := maps.Clone(more)
		environment["TICKSLOT_STORE"] = store
		if a := in(t.Context(), environment, "serve", "--listen", "127.0.0.1:0"); a.code != 1 ||
			!strings.Contains(a.err, "set both, or use --users FILE") || strings.Contains(a.err, "hunter2") {
			t.Errorf("%v: exit code %d: %s", more, a.code, a)
		}
	}
}
