package timer_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/timer"
)

// A Prometheus registry counts the runs, and the skipped ticks by reason.
func ExampleConfig_registerer() {
	registry := prometheus.NewRegistry()
	timers, err := timer.New(timer.Config{Store: memlock.New(), Registerer: registry}, timer.Timer{
		Name: "process-orders",
		Run:  func(context.Context) error { return nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer start(timers)()
	_, err = timers.Trigger(context.Background(), "process-orders", timer.TriggerOptions{})
	fmt.Println("triggered:", err)
	for job, _ := timers.Status().Timer("process-orders"); job.Last == nil; job,
		_ = timers.Status().Timer("process-orders") {
		time.Sleep(time.Millisecond) // until the run has ended
	}

	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		if strings.HasPrefix(line, "tickslot_runs_total") {
			fmt.Print(line)
		}
	}
	// Output:
	// triggered: <nil>
	// tickslot_runs_total{outcome="error",timer="process-orders"} 0
	// tickslot_runs_total{outcome="ok",timer="process-orders"} 1
	// tickslot_runs_total{outcome="panic",timer="process-orders"} 0
	// tickslot_runs_total{outcome="timeout",timer="process-orders"} 0
}

// The timers of all tenants share one set of series with the label "report", instead of one set per
// tenant.
func ExampleConfig_timerLabel() {
	registry := prometheus.NewRegistry()
	nothing := func(context.Context) error { return nil }
	_, err := timer.New(timer.Config{
		Registerer: registry,
		TimerLabel: func(name string) string {
			label, _, _ := strings.Cut(name, ":")
			return label
		},
	},
		timer.Timer{Name: "report:tenant-7", MaxConcurrency: 2, Run: nothing},
		timer.Timer{Name: "report:tenant-8", MaxConcurrency: 3, Run: nothing})
	if err != nil {
		fmt.Println(err)
		return
	}
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		if strings.HasPrefix(line, "tickslot_slots_limit") {
			fmt.Print(line)
		}
	}
	// Output:
	// tickslot_slots_limit{timer="report"} 5
}
