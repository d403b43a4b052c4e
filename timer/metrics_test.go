package timer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// Every metric passes Prometheus' linter and has the expected value.
//
// Fails when store_up or fallback_active is not updated, when runner.lost does not release the
// slot, or when a timer with StoreDownSkip is reported to run without the store.
func TestMetrics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		f := newFleet(t)
		f.start(timer.Config{}, timer.Timer{Name: "ok", MaxConcurrency: 7,
			MaxPerTick: 7, Schedule: schedule.Every(time.Second),
			Run: f.handler(0)})
		h := f.start(timer.Config{Registerer: keeping{reg}},
			timer.Timer{Name: "ok", Schedule: schedule.Every(time.Second), Run: f.handler(0)},
			timer.Timer{Name: "errs", Schedule: schedule.Every(time.Second),
				Run: func(context.Context) error { return errors.New("no") }},
			timer.Timer{Name: "long", Schedule: schedule.Every(10 * time.Second), MaxRunTime: time.Hour,
				Run: f.handler(time.Minute)},
			timer.Timer{Name: "skips", Schedule: schedule.Every(time.Second), OnStoreDown: timer.StoreDownSkip,
				Run: f.handler(0)},
			timer.Timer{Name: "gone", Schedule: schedule.Every(time.Second), Run: f.handler(0)})
		time.Sleep(21 * time.Second)
		if err := h.Remove(t.Context(), "gone"); err != nil {
			t.Error(err)
		}
		h.Link.Inject(dlocktest.Error(errors.New("down")))
		time.Sleep(20 * time.Second)
		for key, want := range map[string]float64{
			"tickslot_store_up memory": 0, "tickslot_slots_held long": 0,
			"tickslot_fallback_active ok": 1, "tickslot_fallback_active long": 1,
			"tickslot_store_breaker_open memory": 1, "tickslot_hosts": 2,
			"tickslot_effective_limit_bound ok": 2, "tickslot_runs_active long": 1,
		} {
			if value, ok := values(t, reg)[key]; !ok || value != want {
				t.Errorf("%s is %v (there: %v) while the store is down, want %v", key, value, ok, want)
			}
		}
		for _, key := range []string{"tickslot_fallback_active skips", "tickslot_effective_limit_bound skips"} {
			if value, ok := values(t, reg)[key]; ok {
				t.Errorf("%s is %v, want none: it does not run without the store", key, value)
			}
		}
		if err := h.Degraded(); err == nil || !strings.Contains(err.Error(), `"ok" runs without the store`) ||
			strings.Contains(err.Error(), `"skips" runs`) {
			t.Errorf("degraded: %v", err)
		}
		h.Link.Heal()
		time.Sleep(20 * time.Second)
		f.Stop()
		f.watch.check(t)

		got := values(t, reg)
		atLeast := map[string]float64{
			"tickslot_ticks_total started ok": 20, "tickslot_ticks_total skipped_host_full long": 2,
			"tickslot_ticks_total skipped_store skips":   15,
			"tickslot_ticks_total skipped_tick_taken ok": 1,
			"tickslot_runs_total ok ok":                  20, "tickslot_runs_total error errs": 50,
			"tickslot_run_duration_seconds ok": 20, "tickslot_tick_lag_seconds ok": 20,
			"tickslot_slot_acquisitions_total acquired memory": 100, "tickslot_slot_acquisitions_total error memory": 1,
			"tickslot_slot_acquire_duration_seconds memory": 100, "tickslot_slot_hold_duration_seconds memory": 100,
			"tickslot_heartbeats_total ok memory": 1, "tickslot_heartbeats_total unknown memory": 1,
			"tickslot_leases_lost_total long": 1,
			"tickslot_fallback_runs_total ok": 15, "tickslot_store_up memory": 1,
			"tickslot_store_operation_duration_seconds acquire memory": 100,
			"tickslot_store_errors_total acquire memory":               6,
			"tickslot_last_success_timestamp_seconds ok":               946684800, "tickslot_build_info": 1,
			"tickslot_slots_limit ok": 1, "tickslot_runs_total panic ok": 0, "tickslot_leases_lost_total ok": 0,
			"tickslot_leases_expired_total memory": 0, "tickslot_heartbeats_total lost memory": 0,
		}
		for key, least := range atLeast {
			if value, ok := got[key]; !ok || value < least {
				t.Errorf("%s is %v (there: %v), want at least %v", key, value, ok, least)
			}
		}
		for _, key := range []string{"tickslot_slots_held ok", "tickslot_slots_held long",
			"tickslot_runs_active ok", "tickslot_runs_active long", "tickslot_store_breaker_open memory"} {
			if value, ok := got[key]; !ok || value != 0 {
				t.Errorf("%s is %v (there: %v), want 0 in the end", key, value, ok)
			}
		}
		for _, key := range []string{"tickslot_fallback_active ok", "tickslot_fallback_active long",
			"tickslot_slots_limit_elsewhere errs", "tickslot_runs_overdue ok", "tickslot_holds_overlong_total ok"} {
			if value, ok := got[key]; ok {
				t.Errorf("%s is %v, want none while all is well", key, value)
			}
		}
		for key := range got {
			if strings.HasSuffix(key, " gone") {
				t.Errorf("%s is left of a timer that was removed", key)
			}
		}
		if t.Failed() {
			for key, value := range got {
				t.Log(key, value)
			}
		}
	})
}

// keeping is a registry that keeps the metrics of a scheduler whose Run has ended.
type keeping struct{ *prometheus.Registry }

func (keeping) Unregister(prometheus.Collector) bool { return false }

// values returns the metrics in reg by name and labels: counters, gauges, and the number of
// observations of each histogram. It fails the test if Prometheus' linter finds a fault.
func values(t *testing.T, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	lint(t, reg)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, fam := range families {
		if !strings.HasPrefix(fam.GetName(), "tickslot_") {
			t.Errorf("%s does not begin with tickslot_", fam.GetName())
		}
		for _, m := range fam.GetMetric() {
			key := fam.GetName()
			for _, l := range m.GetLabel() {
				if l.GetName() != "version" && l.GetName() != "go_version" {
					key += " " + l.GetValue()
				}
			}
			switch {
			case m.Counter != nil:
				got[key] = m.Counter.GetValue()
			case m.Gauge != nil:
				got[key] = m.Gauge.GetValue()
			case m.Histogram != nil:
				got[key] = float64(m.Histogram.GetSampleCount())
			}
		}
	}
	return got
}

func lint(t *testing.T, reg prometheus.Gatherer) {
	t.Helper()
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// The series of a removed timer do not return when its last run ends. A timer that is registered
// late has its own series.
//
// Fails when Collect still reports removed timers because it keeps its own list, or when it knows
// only the timers passed to New.
func TestMetricsOfTimersThatComeAndGo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		f := newFleet(t)
		h := f.start(timer.Config{Registerer: keeping{reg}})
		if err := h.Register(timer.Timer{Name: "gone", Run: f.handler(3 * time.Second)},
			timer.Timer{Name: "late", MaxConcurrency: 7, Run: f.handler(0)}); err != nil {
			t.Fatal(err)
		}
		if err := h.Trigger(t.Context(), "gone"); err != nil {
			t.Fatal(err)
		}
		if err := h.Remove(t.Context(), "gone"); err != nil {
			t.Error(err)
		}
		f.Stop()
		got := values(t, reg)
		for key := range got {
			if strings.HasSuffix(key, " gone") {
				t.Errorf("%s is left of a timer that was removed", key)
			}
		}
		if got["tickslot_slots_limit late"] != 7 {
			t.Errorf("a timer registered late has slots_limit %v", got["tickslot_slots_limit late"])
		}
	})
}

// Two schedulers on one registry are a configuration error and do not cause a panic.
func TestMetricsOfTwoSchedulersOnOneRegistry(t *testing.T) {
	reg := prometheus.NewRegistry()
	if _, err := timer.New(timer.Config{Registerer: reg}); err != nil {
		t.Fatal(err)
	}
	if _, err := timer.New(timer.Config{Registerer: reg}); err == nil ||
		!strings.Contains(err.Error(), "WrapRegistererWith") {
		t.Errorf("err %v", err)
	}
	reg = prometheus.NewRegistry()
	for _, part := range []string{"a", "b"} {
		if _, err := timer.New(timer.Config{Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"part": part},
			reg)}); err != nil {
			t.Error(err)
		}
	}
}

// If a client of Trigger disconnects, neither the call nor the attempt counts as an error of the
// store.
//
// Fails when storeMetrics.called or acquireResult does not check whether the call was canceled.
func TestACanceledTriggerIsNoErrorOfTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		reg := newRegistry()
		h := f.start(timer.Config{Registerer: reg}, timer.Timer{Name: "a", Run: f.handler(0)})
		time.Sleep(time.Minute)
		h.Link.Inject(dlocktest.Hang)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		if _, err := h.Scheduler.Trigger(ctx, "a", timer.TriggerOptions{}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		h.Link.Heal()
		got := values(t, reg)
		for key, want := range map[string]float64{"tickslot_store_errors_total acquire memory": 0,
			"tickslot_slot_acquisitions_total error memory":    0,
			"tickslot_slot_acquisitions_total canceled memory": 1, "tickslot_triggers_total canceled a": 1} {
			if got[key] != want {
				t.Errorf("%s is %v, want %v", key, got[key], want)
			}
		}
		f.Stop()
	})
}

// A run that RunOnStart started counts as a tick that started, but has no lag, because its tick may
// be old. Runs of the schedule have a lag.
//
// Fails when tally.began records the lag of every run.
func TestARunOnStartHasNoLag(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		reg := newRegistry()
		time.Sleep(14 * time.Hour)
		f.start(timer.Config{Registerer: reg, TTL: rarely.TTL}, timer.Timer{Name: "a",
			Schedule: schedule.Daily("00:00", ""), RunOnStart: timer.RunOnStartOnce, Run: f.handler(0)})
		time.Sleep(time.Minute)
		got := values(t, reg)
		if n := got["tickslot_ticks_total started a"]; n != 1 || got["tickslot_tick_lag_seconds a"] != 0 {
			t.Errorf("%v started, %v with a lag", n, got["tickslot_tick_lag_seconds a"])
		}
		time.Sleep(24 * time.Hour)
		if n := values(t, reg)["tickslot_tick_lag_seconds a"]; n != 1 {
			t.Errorf("%v have a lag, want that of midnight", n)
		}
		f.Stop()
	})
}

// A Registerer can be used again after Run has ended. A New that fails registers nothing with it.
//
// Fails when Run does not unregister, or when New registers before all other checks.
func TestRegistererCanBeUsedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reg := newRegistry()
		config := timer.Config{Registerer: reg, Store: memlock.New()}
		if _, err := timer.New(config, timer.Timer{Name: ""}); err == nil {
			t.Error("no fault found")
		}
		for range 3 {
			s, err := timer.New(config, timer.Timer{Name: "a", Schedule: schedule.Every(time.Second), Run: nop})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := timer.New(config, timer.Timer{Name: "a", Run: nop}); err == nil {
				t.Error("two at once with one registry")
			}
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
			stop()
			if err := s.Run(t.Context()); err == nil {
				t.Error("it ran twice")
			}
			for series := range values(t, reg) {
				t.Errorf("%s is left", series)
			}
		}
	})
}
