package timer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// seriesOf returns the number of series with a label, or of all series if label is "", in two kinds
// of Prometheus. One scrapes native histograms, each of which is one series, and the other reads
// text.
func seriesOf(t testing.TB, reg prometheus.Gatherer, label string) (native, text int) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if s := m.String(); label == "" || strings.Contains(s, fmt.Sprintf("value:%q", label)) {
				if h := m.GetHistogram(); h != nil && len(h.GetBucket()) > 0 {
					native += len(h.GetBucket()) + 2
				}
				native++
			}
		}
	}
	for line := range bytes.Lines(scrape(t, reg)) {
		if line[0] != '#' && (label == "" || bytes.Contains(line, []byte(fmt.Sprintf("timer=%q", label)))) {
			text++
		}
	}
	return native, text
}

// scrape returns the text that a Prometheus reads if it does not scrape native histograms.
func scrape(t testing.TB, reg prometheus.Gatherer) []byte {
	t.Helper()
	page := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	if page.Code != 200 {
		t.Fatal(page.Body)
	}
	return page.Body.Bytes()
}

// The test counts the series of a timer, because a Prometheus has to store them for each of
// thousands of timers. docs/metrics.md has the numbers.
//
// Fails when a gauge of 0 is written, when a histogram has the outcome as a label, or when a series
// of the store has a label for the timer.
func TestSeriesOfATimer(t *testing.T) {
	for _, c := range []struct {
		classic bool
		// These are the native and text series of a timer that has not run, of one that has run
		// once, and of one that has had every outcome.
		idle, once, all [2]int
	}{
		{false, [2]int{9, 9}, [2]int{12, 16}, [2]int{16, 20}},
		{true, [2]int{9, 9}, [2]int{39, 39}, [2]int{43, 43}},
	} {
		t.Run(fmt.Sprintf("classic=%t", c.classic), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				reg := newRegistry()
				f := newFleet(t)
				work := everyOutcome(t)
				h := f.start(timer.Config{Registerer: keeping{reg}, ClassicHistograms: c.classic},
					timer.Timer{Name: "idle", Schedule: schedule.Every(time.Hour * 240), Run: f.handler(0)},
					timer.Timer{Name: "once", Schedule: schedule.At(time.Now().Add(time.Second)), Run: f.handler(0)},
					work.timer)
				time.Sleep(2 * time.Second)
				expect := func(name string, want [2]int) {
					t.Helper()
					if native, text := seriesOf(t, reg, name); want != [2]int{native, text} {
						t.Errorf("%s: %d series, %d in text, want %v:\n%s", name, native, text, want, scrape(t, reg))
					}
				}
				expect("idle", c.idle)
				expect("once", c.once)
				work.play(func() { f.Stop() }, h)
				expect("all", c.all)
				lint(t, reg)
			})
		})
	}
}

// outcomes is a timer whose runs end with each outcome in turn.
type outcomes struct {
	timer timer.Timer
	play  func(stop func(), h *host)
}

func everyOutcome(t *testing.T) outcomes {
	next := make(chan func(context.Context) error, 1)
	next <- func(context.Context) error { return nil } // for the tick
	o := outcomes{timer: timer.Timer{Name: "all", MaxRunTime: time.Minute, OnStoreDown: timer.StoreDownSkip,
		Schedule: schedule.At(time.Now().Add(time.Second)),
		Run:      func(ctx context.Context) error { return (<-next)(ctx) }}}
	hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	o.play = func(stop func(), h *host) {
		run := func(handler func(context.Context) error) {
			next <- handler
			trigger(t, h, "all")
			time.Sleep(time.Second)
		}
		run(func(context.Context) error { return errors.New("no") })
		run(func(context.Context) error { panic("oh") })
		run(hangs)
		time.Sleep(2 * time.Minute) // ends with timeout
		run(hangs)
		st, _ := h.Status().Timer("all")
		if err := h.CancelRun("all", st.Running[0].ID, ann); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		run(hangs)
		h.Link.Inject(dlocktest.Error(errors.New("down")))
		time.Sleep(20 * time.Second) // ends with lease_lost
		h.Link.Heal()
		time.Sleep(20 * time.Second)
		run(hangs)
		stop() // ends with draining
	}
	return o
}
