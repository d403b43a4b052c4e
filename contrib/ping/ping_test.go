package ping_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/contrib/ping"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A monitor is a client transport that records the requests and decides how they are answered.
type monitor struct {
	mu     sync.Mutex // guards got and rids while pings are being sent
	got    []string   // path and body of each request
	rids   []string
	answer func(*http.Request) (*http.Response, error)
}

func (m *monitor) RoundTrip(r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	m.mu.Lock()
	m.got = append(m.got, strings.TrimSpace(r.URL.Path+" "+string(body)))
	m.rids = append(m.rids, r.URL.Query().Get("rid"))
	m.mu.Unlock()
	if m.answer != nil {
		return m.answer(r)
	}
	return says(200, "OK"), nil
}

func says(code int, text string) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{"Location": {"http://127.0.0.1/admin"}},
		Body: io.NopCloser(strings.NewReader(text))}
}

func nop(context.Context) error { return nil }

const secret = "5bf66975-d4c7-4bf5-bcc8-b8d8a82ea278"

func pinger(t *testing.T, m *monitor, log io.Writer) *ping.Pinger {
	t.Helper()
	p, err := ping.New(map[string]string{"a": "https://monitor.example/" + secret + "/?x=1"},
		ping.Options{Client: &http.Client{Transport: m}, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// runOnce runs a timer named a once.
func runOnce(t *testing.T, p *ping.Pinger, job timer.Timer, own timer.Hooks) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	job.Name, job.Schedule = "a", schedule.At(time.Now().Add(time.Second))
	ended := own.RunEnded
	own.RunEnded = func(r timer.RunResult) {
		if ended != nil {
			ended(r)
		}
		if r.Timer == job.Name {
			stop()
		}
	}
	timers, err := timer.New(timer.Config{Hooks: p.TimerHooks(own), Logger: slog.New(slog.DiscardHandler)}, job,
		timer.Timer{Name: "another", Schedule: schedule.Every(time.Second), Run: nop})
	if err != nil {
		t.Fatal(err)
	}
	if err := timers.Run(ctx); err != nil {
		t.Error(err)
	}
}

// Each outcome sends its signal, with the same run ID from start to end, and the text of the error
// without secrets and cut to 10 kB.
//
// Fails when a run that was cut off counts as a failure or a success, when a timer without a URL is
// pinged, and when the user's hooks are not called.
func TestSignals(t *testing.T) {
	t.Parallel()
	start, success, fail := "/"+secret+"/start", "/"+secret, "/"+secret+"/fail "
	for name, c := range map[string]struct {
		run  func(context.Context) error
		want string // the last ping; "" if nothing follows the start
	}{
		"ok":      {func(context.Context) error { return nil }, success},
		"error":   {func(context.Context) error { return errors.New("no paper") }, fail + "no paper"},
		"panic":   {func(context.Context) error { panic("no ink") }, fail + "the handler panicked: no ink"},
		"timeout": {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, fail},
		"secret": {func(context.Context) error { return errors.New("dial postgres://joe:hunter2@db/x") },
			fail + "dial postgres://***"},
		"long": {func(context.Context) error { return errors.New(strings.Repeat("x", 50_000)) }, fail + "xxx"},
		"text": {func(context.Context) error { return badError{} }, fail},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m, told := &monitor{}, false
				p := pinger(t, m, io.Discard)
				runOnce(t, p, timer.Timer{Run: c.run, MaxRunTime: time.Minute},
					timer.Hooks{RunEnded: func(timer.RunResult) { told = true }})
				if err := p.Flush(t.Context()); err != nil {
					t.Error(err)
				}
				if len(m.got) != 2 || m.got[0] != start || !strings.HasPrefix(m.got[1], c.want) ||
					c.want == success && m.got[1] != success || strings.Contains(m.got[1], "hunter2") ||
					len(m.got[1]) > len(fail)+10_000 || !told {
					t.Errorf("%.300q, want %q, %q", m.got, start, c.want)
				}
				if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).
					MatchString(m.rids[0]) || m.rids[1] != m.rids[0] {
					t.Errorf("rid %q", m.rids)
				}
			})
		})
	}
}

type badError struct{}

func (badError) Error() string { panic("no text") }

// A run that was cut off says nothing about the work, so it sends nothing at its end.
//
// Fails when a run that was canceled, drained or had lost its lease is reported as a success or a
// failure.
func TestRunsThatAreCutOffSayNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &monitor{}
		p := pinger(t, m, io.Discard)
		hooks := p.TimerHooks(timer.Hooks{})
		for _, o := range []timer.Outcome{timer.OutcomeCanceled, timer.OutcomeDraining, timer.OutcomeLeaseLost} {
			hooks.RunEnded(timer.RunResult{RunInfo: timer.RunInfo{Timer: "a"}, Outcome: o, Err: errors.New("ended")})
		}
		if err := p.Flush(t.Context()); err != nil || len(m.got) != 0 {
			t.Errorf("%v, %q", err, m.got)
		}
	})
}

// Whatever the monitor does, the scheduler ends in time, a ping makes at most three requests, none
// of them goes to the target of a redirect, and the log has one line without the URL.
//
// Fails when a redirect is followed, when a response body is read to its end, or when a panic of
// the transport ends the process.
func TestBadMonitors(t *testing.T) {
	t.Parallel()
	type request = *http.Request
	type response = *http.Response
	for name, c := range map[string]struct {
		answer   func(request) (response, error)
		requests int // for two pings
		line     string
	}{
		"hangs": {func(r request) (response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}, 6, "deadline exceeded"},
		"redirects": {func(request) (response, error) { return says(302, ""), nil }, 2, "it redirects (302)"},
		"keeps the method of a redirect": {func(request) (response, error) { return says(307, ""), nil }, 2,
			"it redirects (307)"},
		"panics":       {func(request) (response, error) { panic("transport") }, 6, "transport panicked"},
		"exits":        {func(request) (response, error) { runtime.Goexit(); return nil, nil }, 6, "Goexit"},
		"no answer":    {func(request) (response, error) { return nil, nil }, 6, "nil"},
		"is full":      {func(request) (response, error) { return says(503, ""), nil }, 6, "it answers 503"},
		"is limited":   {func(request) (response, error) { return says(429, ""), nil }, 6, "it answers 429"},
		"knows it not": {func(request) (response, error) { return says(404, ""), nil }, 2, "it answers 404"},
		"never ends": {func(request) (response, error) {
			r := says(200, "")
			r.Body = io.NopCloser(endless{})
			return r, nil
		}, 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m, log := &monitor{answer: c.answer}, &bytes.Buffer{}
				p := pinger(t, m, log)
				began := time.Now()
				runOnce(t, p, timer.Timer{Run: nop}, timer.Hooks{})
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("the scheduler took %v", took)
				}
				soon, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
				defer cancel()
				time.Sleep(2 * time.Nanosecond)
				if c.requests == 6 && !errors.Is(p.Flush(soon), context.DeadlineExceeded) {
					t.Error("Flush does not end with its context")
				}
				if err := p.Flush(t.Context()); err != nil || len(m.got) != c.requests {
					t.Errorf("%v, %q, want %d requests", err, m.got, c.requests)
				}
				if took := time.Since(began); took > 90*time.Second {
					t.Errorf("the pings took %v", took)
				}
				text := log.String()
				if strings.Contains(text, secret) || strings.Count(text, "level=WARN") != min(1, len(c.line)) ||
					!strings.Contains(text, c.line) {
					t.Errorf("%s\nwant one line with %q", text, c.line)
				}
			})
		})
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// A monitor that is unreachable for a long time costs one goroutine and a bounded number of pings.
// When it returns, the newest pings arrive in order.
//
// Fails when pings pile up, or when the newest are dropped.
func TestMonitorThatIsAway(t *testing.T) { // not parallel: it counts the goroutines of the process
	synctest.Test(t, func(t *testing.T) {
		m, log := &monitor{}, &bytes.Buffer{}
		var back atomic.Bool
		m.answer = func(r *http.Request) (*http.Response, error) {
			if !back.Load() {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return says(200, ""), nil
		}
		p := pinger(t, m, log)
		hooks := p.TimerHooks(timer.Hooks{})
		before := runtime.NumGoroutine()
		for i := range 1000 {
			info := timer.RunInfo{Timer: "a", ID: string(rune('a' + i%26)), StartedAt: time.Now()}
			hooks.RunStarted(info)
			hooks.RunEnded(timer.RunResult{RunInfo: info, Outcome: timer.OutcomeFailed, Err: errors.New(info.ID)})
		}
		time.Sleep(time.Second)
		if more := runtime.NumGoroutine() - before; more > 20 {
			t.Errorf("%d goroutines", more)
		}
		m.mu.Lock()
		m.got = nil
		m.mu.Unlock()
		back.Store(true)
		if err := p.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		arrived := slices.Compact(m.got)
		if len(m.got) > 20 || !strings.HasSuffix(arrived[len(arrived)-1], "/fail l") { // the 1000th
			t.Errorf("%d requests: %q", len(m.got), m.got)
		}
	})
}

// All faults are returned together, and none quotes a URL.
//
// Fails when two timers may share a URL, or when an error quotes one.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	_, err := ping.New(map[string]string{"a": "s3cret", "b": "ftp://s3cret/x", "c": "http://[::1/s3cret", "d": "",
		"e": "https://x/s3cret", "f": "https://x//s3cret/"}, ping.Options{Timeout: time.Hour})
	if err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Fatal(err)
	}
	for _, want := range []string{`timer "a"`, `timer "b"`, `timer "c"`, `timer "d"`, `timers "e" and "f"`,
		"Timeout is 1h0m0s: use 100ms to 1m"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %s", err, want)
		}
	}
}
