package timer_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/timertest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// When a pause expires, the metrics show it, even if the store reports nothing because the timer is
// not due for days.
//
// Fails when the prober does not call endPauses.
func TestPauseEndsInTheMetrics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		reg := prometheus.NewRegistry()
		h := f.start(timer.Config{Registerer: reg}, timer.Timer{Name: "seldom",
			Schedule: schedule.Every(240 * time.Hour), Run: f.handler(time.Millisecond)})
		paused := func() float64 { return gauge(t, reg, "tickslot_paused") }
		time.Sleep(time.Minute)
		if err := h.Control().Pause(t.Context(), "seldom", time.Now().Add(10*time.Minute), ann); err != nil {
			t.Fatal(err)
		}
		time.Sleep(beat)
		if v := paused(); v != 1 {
			t.Errorf("paused is %v", v)
		}
		time.Sleep(11 * time.Minute)
		if v := paused(); !math.IsNaN(v) { // the series is absent
			t.Errorf("paused is %v after the pause", v)
		}
		f.Stop()
	})
}

// While the store is down, a host respects a known pause until the pause ends, because the store
// itself may be under maintenance. Until then the timer does not count as running without the
// store.
//
// Fails when acquirer.decide or view.fallback ignores paused.
func TestPauseOutlastsTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{}, timer.Timer{Name: "often", Schedule: schedule.Every(time.Second),
			Run: f.handler(time.Millisecond)},
			timer.Timer{Name: "first", Schedule: schedule.Every(240 * time.Hour), Run: f.handler(time.Millisecond)})
		time.Sleep(time.Minute)
		for _, name := range []string{"often", "first"} {
			if err := h.Control().Pause(t.Context(), name, time.Now().Add(10*time.Minute), ann); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(beat)
		h.Link.Inject(dlocktest.Hang)
		ran, _ := f.watch.ticks("often")
		if err := h.Trigger(t.Context(), "first"); !refused(err, timer.ReasonPaused) {
			t.Errorf("a trigger while the store is down: %v", err)
		}
		time.Sleep(9 * time.Minute)
		if after, _ := f.watch.ticks("often"); after != ran {
			t.Errorf("%d ticks of a paused timer ran while the store was down", after-ran)
		}
		without := func(want bool) {
			t.Helper()
			said := h.Checks()["store-reachable"]()
			if said == nil || strings.Contains(said.Error(), `"often" runs without the store`) != want {
				t.Errorf("it runs without the store: want %t: %v", want, said)
			}
			if ts, _ := h.Status().Timer("often"); ts.Fallback != want {
				t.Errorf("its Fallback is %t", ts.Fallback)
			}
		}
		without(false)
		time.Sleep(2 * time.Minute)
		if after, _ := f.watch.ticks("often"); after == ran {
			t.Error("nothing ran after the pause while the store was still down")
		}
		without(true)
		ts, _ := h.Status().Timer("often")
		if left := timertest.Unaccounted(ts); left < 0 || left > 1 {
			t.Errorf("%d ticks are neither starts nor skips: %+v", left, ts)
		}
		f.Stop()
	})
}

// The store refuses a missed tick that was due during a pause, even after the pause ended. That
// refusal does not pause the timer.
//
// Fails when recordAnswer updates the override from the refusal of a missed tick.
func TestPauseThatIsOverPausesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		job := timer.Timer{Name: "a", Schedule: tenMinutes, CatchUp: timer.CatchUp{Policy: timer.CatchUpOnce},
			Run: f.handler(time.Second)}
		h := f.start(timer.Config{}, job)
		time.Sleep(15 * time.Minute) // until it has run at 0:10
		if err := h.Control().Pause(t.Context(), "a", time.Now().Add(10*time.Minute), ann); err != nil {
			t.Fatal(err)
		}
		f.ended()
		time.Sleep(11 * time.Minute) // 0:20 was during the pause, which is over
		var log testkit.Log
		h = f.start(timer.Config{Logger: textLogger(&log)}, job)
		time.Sleep(time.Second)
		ts, _ := h.Status().Timer("a")
		if ts.Skipped[timer.ReasonPaused] != 1 || ts.Paused != nil {
			t.Errorf("skipped %v, paused %+v; want one tick that was paused, and a timer that is not", ts.Skipped,
				ts.Paused)
		}
		f.Stop()
		// The next heartbeat would correct the override, but not the log.
		if strings.Contains(log.String(), "paused in the whole fleet") {
			t.Errorf("a host that started after the pause logged\n%s", &log)
		}
	})
}
