package health_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/health"
	"github.com/tickslot/tickslot/timer"
)

func get(h http.Handler, path string) (status int, state, body string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Header().Get("X-Health"), w.Body.String()
}

func TestProbes(t *testing.T) {
	bad := func() error { return errors.New("it is bad") }
	for _, c := range []struct {
		name           string
		checks         health.Checks
		live, ready    int
		state, verbose string
	}{
		{"nothing to check", health.Checks{}, 200, 200, "ok", "ok\n[+] live ok\n[+] ready ok\n[+] degraded ok\n"},
		{"dead", health.Checks{Live: bad}, 503, 503, "unhealthy", "live: it is bad\n[-] live: it is bad\n[+] ready ok\n[+] degraded ok\n"},
		{"draining", health.Checks{Ready: bad, Degraded: bad}, 200, 503, "unhealthy", "ready: it is bad\n[+] live ok\n[-] ready: it is bad\n[-] degraded: it is bad\n"},
		{"degraded", health.Checks{Degraded: bad}, 200, 200, "degraded", "ok\n[+] live ok\n[+] ready ok\n[-] degraded: it is bad\n"},
		{"panics", health.Checks{Ready: func() error { panic("oh") }}, 200, 503, "unhealthy", "ready: the check panicked: oh\n[+] live ok\n[-] ready: the check panicked: oh\n[+] degraded ok\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := health.Handler(c.checks)
			if status, _, _ := get(h, "/livez"); status != c.live {
				t.Errorf("livez: %d, want %d", status, c.live)
			}
			status, state, body := get(h, "/readyz?verbose")
			if status != c.ready || state != c.state || body != c.verbose {
				t.Errorf("readyz: %d %s %q, want %d %s %q", status, state, body, c.ready, c.state, c.verbose)
			}
			if _, _, body := get(h, "/readyz"); strings.Contains(body, "[") || body == "" {
				t.Errorf("readyz without verbose: %q", body)
			}
		})
	}
}

// A probe reads memory only: it costs the store nothing, is answered while the store hangs, and does not flap.
//
// Fails when Degraded asks the store.
func TestI12ProbesCostTheStoreNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := dlocktest.NewFaulty(memlock.New())
		timers, err := timer.New(timer.Config{Lock: link}, timer.Timer{Name: "a", Schedule: timer.Every(time.Hour), Run: func(context.Context) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		h := health.Handler(health.Checks{Live: timers.Live, Ready: timers.Ready, Degraded: timers.Degraded})
		if status, _, body := get(h, "/readyz"); status != 503 || !strings.Contains(body, "not running yet") {
			t.Errorf("before Run: %d %q", status, body)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- timers.Run(ctx) }()
		time.Sleep(90 * time.Minute)
		calls := link.Calls(dlocktest.Acquire) + link.Calls(dlocktest.Extend) + link.Calls(dlocktest.Release)
		link.Inject(dlocktest.Hang)
		began := time.Now()
		for range 10_000 {
			for _, path := range []string{"/livez", "/readyz", "/readyz?verbose"} {
				if status, _, body := get(h, path); status != 200 {
					t.Fatalf("%s: %d %q", path, status, body)
				}
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("probes waited %v", took)
		}
		if n := link.Calls(dlocktest.Acquire) + link.Calls(dlocktest.Extend) + link.Calls(dlocktest.Release); n != calls {
			t.Errorf("30,000 probes made %d calls to the store", n-calls)
		}
		time.Sleep(time.Hour) // a tick meets the store that hangs
		if status, state, body := get(h, "/readyz?verbose"); status != 200 || state != "degraded" || !strings.Contains(body, "does not answer") {
			t.Errorf("store down: %d %s %q", status, state, body)
		}
		link.Heal()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if status, _, _ := get(h, "/readyz"); status != 503 {
			t.Errorf("after Run: %d", status)
		}
		if status, _, _ := get(h, "/livez"); status != 200 {
			t.Errorf("livez after Run: %d", status)
		}
	})
}

// A scheduling goroutine that is stuck in a schedule is found.
func TestLivezFindsAStalledScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		s := &sometimes{wait: stuck}
		timers, err := timer.New(timer.Config{}, timer.Timer{Name: "a", Schedule: s, Run: func(context.Context) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		h := health.Handler(health.Checks{Live: timers.Live})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- timers.Run(ctx) }()
		time.Sleep(5 * time.Second)
		if status, _, _ := get(h, "/livez"); status != 200 {
			t.Errorf("livez: %d", status)
		}
		s.stuck.Store(true)
		time.Sleep(30 * time.Second)
		if status, _, body := get(h, "/livez"); status != 503 || !strings.Contains(body, "stalled") {
			t.Errorf("livez of a stalled scheduler: %d %q", status, body)
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

func ExampleHandler() {
	timers, err := timer.New(timer.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := health.Handler(health.Checks{Live: timers.Live, Ready: timers.Ready, Degraded: timers.Degraded})

	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	fmt.Print(w.Code, " ", w.Body)
	// Output: 503 ready: the timers are not running yet
}
