package service_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot"
	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/service"
	"github.com/tickslot/tickslot/timer"
)

// inMemory returns stores for a fleet within this process.
func inMemory() service.Stores {
	return service.Stores{Locks: memlock.New(), Registry: cluster.NewMemoryStore()}
}

func quiet(config service.Config) service.Config {
	config.Logger = slog.New(slog.DiscardHandler)
	return config
}

// A diary records events in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.lines, ", ")
}

func status(s *service.Service, path string) int {
	w := httptest.NewRecorder()
	s.Probes().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w.Code
}

func TestRunDrainsTheWorkAndThenTheOtherParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		stores := inMemory()
		svc, err := service.New(stores, quiet(service.Config{PreStopDelay: time.Second}), timer.Timer{
			Name: "report", Schedule: schedule.Every(time.Minute), RunOnStart: timer.RunOnStartOnce,
			Run: func(ctx context.Context) error {
				d.note("run begins")
				time.Sleep(10 * time.Second)
				d.note("run ends")
				return ctx.Err()
			}})
		if err != nil {
			t.Fatal(err)
		}
		if got := status(svc, "/readyz"); got != 503 {
			t.Errorf("/readyz before Run: %d, want 503", got)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		part := tickslot.PartFunc(func(ctx context.Context) error {
			d.note("part begins")
			<-ctx.Done()
			d.note("part ends")
			snapshot, err := svc.Registry().Snapshot(context.Background())
			if err != nil || len(snapshot.Hosts) != 1 || snapshot.Hosts[0].State != cluster.HostAlive {
				t.Errorf("the registry has stopped before a part: %+v, %v", snapshot.Hosts, err)
			}
			return nil
		})
		go func() { ended <- svc.Run(ctx, part) }()
		time.Sleep(5 * time.Second)
		if got := status(svc, "/readyz"); got != 200 {
			t.Errorf("/readyz while it runs: %d, want 200", got)
		}
		stop()
		time.Sleep(time.Millisecond)
		if got := status(svc, "/readyz"); got != 503 {
			t.Errorf("/readyz in the drain: %d, want 503", got)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if want := "part begins, run begins, run ends, part ends"; d.text() != want {
			t.Errorf("got %s, want %s", d.text(), want)
		}
		hosts := must(cluster.New(cluster.Config{Store: stores.Registry, Logger: slog.New(slog.DiscardHandler)}))
		snapshot, err := hosts.Snapshot(t.Context())
		if err != nil || slices.ContainsFunc(snapshot.Hosts, func(h cluster.Host) bool { return h.State.Live() }) {
			t.Errorf("the host has not left: %+v, %v", snapshot.Hosts, err)
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestPartsThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		part tickslot.PartFunc
		want string
	}{
		"it returns": {func(context.Context) error { return nil }, "mine returned before it was stopped"},
		"it fails":   {func(context.Context) error { return errors.New("no fuel") }, "mine: no fuel"},
		"it panics":  {func(context.Context) error { panic("boom") }, "mine: the mine panicked: boom"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				svc := must(service.New(inMemory(), quiet(service.Config{}), everyMinute()))
				err := svc.Run(t.Context(), tickslot.Named("mine", c.part))
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %q in it", err, c.want)
				}
				if phase := svc.Timers().Status().Phase; phase != timer.PhaseStopped && phase != timer.PhaseCreated {
					t.Errorf("the timers are %s when Run has returned", phase)
				}
			})
		})
	}
}

func TestPartThatNeverStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		svc := must(service.New(inMemory(), quiet(service.Config{DrainTimeout: time.Second}), everyMinute()))
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		began := time.Now()
		mine := tickslot.PartFunc(func(context.Context) error { <-release; return nil })
		err := svc.Run(ctx, tickslot.Named("mine", mine))
		if err == nil || !strings.Contains(err.Error(), "mine has not stopped within 21s") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took > 32*time.Second { // 1 s until the stop, 1 s of draining
			t.Errorf("Run took %v", took)
		}
		close(release)
		synctest.Wait()
	})
}

func everyMinute() timer.Timer {
	return timer.Timer{Name: "tick", Schedule: schedule.Every(time.Minute),
		Run: func(context.Context) error { return nil }}
}

func TestNothingToRun(t *testing.T) {
	svc := must(service.New(inMemory(), quiet(service.Config{})))
	if err := svc.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "there is nothing to run") {
		t.Errorf("got %v", err)
	}
}

func TestFaultsOfTheSettings(t *testing.T) {
	mail := outbox.SinkFunc(func(context.Context, outbox.Delivery) error { return nil })
	for name, c := range map[string]struct {
		stores service.Stores
		config service.Config
		timers []timer.Timer
		want   []string
	}{
		"no store": {config: service.Config{}, want: []string{"Locks and Registry are required"}},
		"a name": {stores: inMemory(), config: service.Config{Name: "Billing!"},
			want: []string{"Config.Name", "Billing!"}},
		"a store twice": {stores: inMemory(), config: service.Config{Timers: timer.Config{Store: memlock.New()}},
			want: []string{"Timers.Store"}},
		"a sink without an outbox": {stores: inMemory(),
			config: service.Config{Relay: outbox.RelayConfig{DefaultSink: mail}}, want: []string{"no outbox"}},
		"all at once": {stores: inMemory(), config: service.Config{PreStopDelay: -1, Environment: "a\x00b",
			Timers: timer.Config{MaxRuns: -5}}, timers: []timer.Timer{{}},
			want: []string{"PreStopDelay", "Environment", "MaxRuns", "Name: it is empty"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := service.New(c.stores, quiet(c.config), c.timers...)
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q in it", err, want)
				}
			}
		})
	}
}

func TestAnotherEnvironmentStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := inMemory()
		ctx, stop := context.WithCancel(t.Context())
		first := must(service.New(stores, quiet(service.Config{Environment: "production"}), everyMinute()))
		ended := make(chan error, 1)
		go func() { ended <- first.Run(ctx) }()
		time.Sleep(time.Minute)

		second := must(service.New(stores, quiet(service.Config{Environment: "staging"}), everyMinute()))
		err := second.Run(t.Context(), tickslot.PartFunc(func(context.Context) error {
			t.Error("a part of the second service was started")
			return nil
		}))
		if err == nil || !strings.Contains(err.Error(), `"production"`) {
			t.Errorf("got %v", err)
		} else if n := strings.Count(err.Error(), `"production"`); n != 1 {
			t.Errorf("it is said %d times: %v", n, err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Two services with the same name are two hosts of one fleet, even in one process.
func TestTwoServicesOfOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := inMemory()
		var d diary
		tick := timer.Timer{Name: "tick", Schedule: schedule.Every(time.Minute), MaxConcurrency: 1,
			Run: func(context.Context) error { d.note("tick"); return nil }}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		for range 2 {
			svc := must(service.New(stores, quiet(service.Config{Name: "billing"}), tick))
			go func() { ended <- svc.Run(ctx) }()
		}
		time.Sleep(10 * time.Minute)
		stop()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
		if runs := len(strings.Split(d.text(), ", ")); runs < 9 || runs > 10 {
			t.Errorf("%d runs of 10 ticks on two hosts", runs)
		}
	})
}

func TestFaultsOfAPage(t *testing.T) {
	svc := must(service.New(inMemory(), quiet(service.Config{}), everyMinute()))
	w := httptest.NewRecorder()
	svc.Page(page.Config{Hosts: []string{"https://Example"}}).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != 500 {
		t.Errorf("the page answers %d", w.Code)
	}
	if err := svc.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "https://Example") {
		t.Errorf("got %v", err)
	}
}

func TestPageAndMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := must(service.New(inMemory(), quiet(service.Config{}), everyMinute()))
		shown := svc.Page(page.Config{Authorize: page.Loopback})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- svc.Run(ctx) }()
		time.Sleep(time.Minute + time.Second)
		request := httptest.NewRequest("GET", "http://localhost/admin/", nil)
		request.RemoteAddr = "127.0.0.1:1234"
		w := httptest.NewRecorder()
		shown.ServeHTTP(w, request)
		if w.Code != 200 || !strings.Contains(w.Body.String(), "tick") {
			t.Errorf("the page answers %d: %.300s", w.Code, w.Body)
		}
		w = httptest.NewRecorder()
		svc.Metrics().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		for _, want := range []string{"tickslot_runs_total", "tickslot_cluster_"} {
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("no %s in the metrics", want)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestOneHolder(t *testing.T) {
	holder := dlock.Holder{Host: "h", PID: 7, ID: "x"}
	svc := must(service.New(inMemory(), quiet(service.Config{Holder: holder}), everyMinute()))
	if got := svc.Registry().Holder(); got != holder {
		t.Errorf("the registry has %v", got)
	}
	if err := svc.Close(); err != nil {
		t.Error(err)
	}
}
