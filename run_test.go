package tickslot_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot"
)

// A diary records the events of parts in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) want(t *testing.T, lines ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.lines, lines) {
		t.Errorf("it went %q, not %q", d.lines, lines)
	}
}

// draining returns a part that takes a while to stop, and records its start and end.
func (d *diary) draining(name string, took time.Duration) tickslot.Part {
	return tickslot.Named(name, tickslot.PartFunc(func(ctx context.Context) error {
		d.note(name + " runs")
		<-ctx.Done()
		d.note(name + " stops")
		time.Sleep(took)
		d.note(name + " ended")
		return nil
	}))
}

// A slowStart is a part that takes a second to start.
type slowStart struct {
	tickslot.Part
	running chan struct{}
}

func (s slowStart) Running() <-chan struct{} { return s.running }

func (s slowStart) Run(ctx context.Context) error {
	time.AfterFunc(time.Second, func() { close(s.running) })
	return s.Part.Run(ctx)
}

// Parts start in order and stop in reverse.
//
// Fails when a part starts before the previous one is running, or stops before the next one has
// ended.
func TestPartsStopInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		ctx, cancel := context.WithCancel(t.Context())
		registry := slowStart{d.draining("registry", time.Second), make(chan struct{})}
		done := make(chan error, 1)
		go func() {
			done <- tickslot.Run(ctx, registry, d.draining("worker", 3*time.Second))
		}()
		synctest.Wait()
		d.want(t, "registry runs")
		time.Sleep(time.Second)
		synctest.Wait()
		d.want(t, "registry runs", "worker runs")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		d.want(t, "registry runs", "worker runs",
			"worker stops", "worker ended", "registry stops", "registry ended")
	})
}

// The first part that fails stops the others, however it fails, and the error names it.
//
// Fails when a part that returns nil, panics or ends its goroutine counts as running.
func TestAPartThatEndsStopsTheOthers(t *testing.T) {
	broken := errors.New("the disk is full")
	for name, c := range map[string]struct {
		part func(ctx context.Context) error
		want string
	}{
		"an error": {func(context.Context) error { return broken }, "tickslot: relay: the disk is full"},
		"nil":      {func(context.Context) error { return nil }, "tickslot: relay returned before it was stopped"},
		"a panic": {func(context.Context) error { panic("out of paper") },
			"tickslot: relay: the relay panicked: out of paper"},
		"Goexit": {func(context.Context) error { runtime.Goexit(); return nil },
			"tickslot: relay: the relay called runtime.Goexit"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var d diary
				relay := tickslot.Named("relay", tickslot.PartFunc(c.part))
				err := tickslot.Run(t.Context(), d.draining("registry", 0), relay, d.draining("worker", 0))
				if err == nil || !strings.HasPrefix(err.Error(), c.want) {
					t.Errorf("Run returned %v, not %s", err, c.want)
				}
				if name == "an error" && !errors.Is(err, broken) {
					t.Errorf("%v is not the part's error", err)
				}
				if !slices.Contains(d.lines, "registry ended") {
					t.Errorf("registry has not ended: %q", d.lines)
				}
			})
		})
	}
}

// All parts share one DrainTimeout. Run returns soon after it, and names the parts that are still
// running.
//
// Fails when each part gets its own DrainTimeout, when a hanging part blocks the others, or when
// the error does not name it.
func TestOneDrainTimeoutForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		ctx, cancel := context.WithCancel(t.Context())
		hung := make(chan struct{})
		hangs := tickslot.PartFunc(func(context.Context) error { <-hung; return nil })
		done := make(chan error, 1)
		from := time.Now()
		go func() {
			done <- tickslot.Runner{DrainTimeout: 20 * time.Second}.Run(ctx, d.draining("registry", time.Second),
				tickslot.Named("mine", hangs), d.draining("worker", 15*time.Second))
		}()
		synctest.Wait()
		cancel()
		err := <-done
		if took := time.Since(from); took != 30*time.Second {
			t.Errorf("Run took %v", took)
		}
		want := "tickslot: mine has not stopped within 20s, nor when its context ended"
		if err == nil || err.Error() != want {
			t.Errorf("Run returned %v, not %s", err, want)
		}
		d.lines = d.lines[2:] // without Running, both start at once
		d.want(t, "worker stops", "worker ended", "registry stops", "registry ended")
		close(hung)
	})
}

// Run refuses parts that cannot run before it starts any.
func TestRunRefusesWhatCannotBeRun(t *testing.T) {
	var d diary
	part := d.draining("worker", 0)
	for want, run := range map[string]func() error{
		"tickslot: there is no part to run": func() error { return tickslot.Run(t.Context()) },
		"tickslot: part 2 of 2 is nil":      func() error { return tickslot.Run(t.Context(), part, nil) },
		"tickslot: part 1 of 1 is nil": func() error {
			return tickslot.Run(t.Context(), tickslot.Named("x", nil))
		},
		"tickslot: the context is nil: use context.Background()": func() error {
			return tickslot.Run(nil, part) //nolint:staticcheck // the nil context is what we test
		},
		"tickslot: DrainTimeout is negative: -1s": func() error {
			return tickslot.Runner{DrainTimeout: -time.Second}.Run(t.Context(), part)
		},
		"tickslot: part 1 of 2 is nil": func() error {
			return tickslot.Run(t.Context(), tickslot.Server(nil), part)
		},
	} {
		if err := run(); err == nil || err.Error() != want {
			t.Errorf("it returned %v, not %s", err, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tickslot.Run(ended, part); err != nil {
		t.Errorf("with a context that had ended: %v", err)
	}
	d.want(t)
}

// A server listens before later parts start, answers until they have ended, and finishes its
// requests.
//
// Fails when parts start although the address is taken, or when the server stops before them.
func TestServerIsFirstAndLast(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var d diary
	addr := taken.Addr().String()
	err = tickslot.Run(t.Context(), tickslot.Server(&http.Server{Addr: addr}), d.draining("worker", 0))
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("the address is taken, and Run returned %v", err)
	}
	d.want(t)
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	get := func() string {
		answer, err := http.Get("http://" + addr)
		if err != nil {
			return err.Error()
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		return string(text)
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
	})
	worker := tickslot.PartFunc(func(ctx context.Context) error {
		d.note(get())
		cancel()
		<-ctx.Done()
		d.note(get())
		return nil
	})
	if err := tickslot.Run(ctx, tickslot.Server(&http.Server{Addr: addr, Handler: hello}), worker); err != nil {
		t.Error(err)
	}
	d.want(t, "hello", "hello")
	if answer := get(); answer == "hello" {
		t.Error("the server answers after Run has returned")
	}
}

// A server with certificates serves HTTPS, and a request that does not end is cut off in time.
//
// Fails when the server speaks plain HTTP, or waits for a request forever.
func TestServerWithCertificatesAndARequestThatHangs(t *testing.T) {
	t.Parallel()
	borrowed := httptest.NewTLSServer(nil) // for its certificate, and a client that trusts it
	defer borrowed.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hangs := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done() // until its connection is closed
	})
	client := borrowed.Client()
	asked := make(chan error, 1)
	asks := tickslot.PartFunc(func(ctx context.Context) error {
		go func() {
			answer, err := client.Get("https://" + addr)
			if err == nil {
				answer.Body.Close()
			}
			cancel() // in case the handler was not reached
			asked <- err
		}()
		<-ctx.Done()
		return nil
	})
	server := tickslot.Server(&http.Server{Addr: addr, Handler: hangs,
		TLSConfig: &tls.Config{Certificates: borrowed.TLS.Certificates}})
	err = tickslot.Run(ctx, server, asks)
	if err == nil || !strings.Contains(err.Error(), "requests had not ended 5s after the stop") {
		t.Errorf("a request hung, and Run returned %v", err)
	}
	if err := <-asked; err == nil || strings.Contains(err.Error(), "HTTP response to HTTPS client") {
		t.Errorf("the request ended with %v", err)
	}
}
