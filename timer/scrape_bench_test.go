package timer_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// BenchmarkScrape measures a scrape of a thousand timers, each of which has run once. It reports
// the bytes and the series, as text and as read by a Prometheus that scrapes native histograms
// (protobuf).
func BenchmarkScrape(b *testing.B) {
	const protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
	byTenant := func(name string) string { label, _, _ := strings.Cut(name, ":"); return label }
	for _, c := range []struct {
		name, accept string
		config       timer.Config
	}{
		{"native/protobuf", protobuf, timer.Config{}},
		{"native/text", "", timer.Config{}},
		{"classic/text", "", timer.Config{ClassicHistograms: true}},
		{"label/protobuf", protobuf, timer.Config{TimerLabel: byTenant}},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkScrape(b, c.config, c.accept) })
	}
}

func benchmarkScrape(b *testing.B, config timer.Config, accept string) {
	reg := prometheus.NewRegistry()
	config.Store, config.Registerer, config.Logger = memlock.New(), reg, slog.New(slog.DiscardHandler)
	list := make([]timer.Timer, 1000)
	for i := range list {
		list[i] = timer.Timer{Name: fmt.Sprintf("report:tenant-%04d", i), Run: nop,
			Schedule: schedule.At(time.Now().Add(500 * time.Millisecond))}
	}
	s, err := timer.New(config, list...)
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	testkit.Eventually(b, time.Minute, "each has run", func() bool {
		for _, t := range s.Status().Timers {
			if t.Last == nil || len(t.Running) > 0 {
				return false
			}
		}
		return true
	})
	handler := promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
	size := 0
	b.ReportAllocs()
	for b.Loop() {
		page, request := httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil)
		if accept != "" {
			request.Header.Set("Accept", accept)
		}
		handler.ServeHTTP(page, request)
		size = page.Body.Len()
	}
	native, text := seriesOf(b, reg, "")
	if accept == "" {
		native = text
	}
	b.ReportMetric(float64(native), "series")
	b.ReportMetric(float64(size), "bytes")
	stop()
	if err := <-done; err != nil {
		b.Error(err)
	}
}
