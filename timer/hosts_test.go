package timer_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// gauge returns the only value of a metric, or NaN if the metric has none.
func gauge(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return math.NaN()
}

var down = dlocktest.Error(errors.New("refused"))

// Hosts that start together know their number within a TTL. They still know it after an outage,
// even before all of them are back.
//
// Fails when hosts are counted at the start and then every minute, or when the first host that is
// back counts only itself.
func TestHostsAreCountedWithinATTL(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		for range 5 {
			f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.Every(time.Second), MaxConcurrency: 3,
				MaxPerTick: 3,
				MaxPerHost: 2, Run: f.handler(0)})
		}
		expect := func(when string, hosts, bound int) {
			t.Helper()
			for i, h := range f.Hosts {
				if st := h.Status(); st.Hosts != hosts || st.Timers[0].EffectiveLimit != bound {
					t.Errorf("%s: host %d: %d hosts, want %d; bound %d, want %d", when, i, st.Hosts, hosts,
						st.Timers[0].EffectiveLimit, bound)
				}
			}
		}
		time.Sleep(dlock.DefaultTTL)
		expect("a TTL after the start", 5, 3)
		for _, h := range f.Hosts {
			h.Link.Inject(down)
		}
		time.Sleep(time.Minute)
		expect("in an outage", 5, 10)
		f.Hosts[0].Link.Heal()
		testkit.Eventually(t, dlock.DefaultTTL, "the first is back", func() bool {
			return f.Hosts[0].Status().Store.Up &&
				f.Hosts[0].StoreReachable() == nil
		})
		time.Sleep(time.Second)
		f.Hosts[0].Link.Inject(down)
		time.Sleep(5 * time.Second)
		expect("in the next outage", 5, 10)
		f.Hosts[4].Cancel() // this host does not return
		for _, h := range f.Hosts {
			h.Link.Heal()
		}
		f.Stop()
	})
}

// A host that never reached the store, or whose store cannot list leases, reports the number of
// hosts as not known, not as one.
//
// Fails when settings.bound treats an unknown number of hosts as one.
func TestBoundThatIsNotKnown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		work := timer.Timer{Name: "a", Schedule: schedule.Every(time.Second), Run: f.handler(0)}
		registry, listless, alone := newRegistry(), newRegistry(), newRegistry()
		never := f.startNow(down, timer.Config{Registerer: registry}, work)
		s, err := timer.New(timer.Config{Store: struct{ dlock.DistributedLock }{f.store}, Registerer: listless}, work)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		if _, err := timer.New(timer.Config{Registerer: alone}, work); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if st := never.Status(); st.Hosts != 0 || st.Timers[0].EffectiveLimit != 0 || !st.Timers[0].Fallback {
			t.Errorf("%+v", st)
		}
		if n, bound := gauge(t, registry, "tickslot_hosts"), gauge(t, registry,
			"tickslot_effective_limit_bound"); !math.IsNaN(n) || !math.IsInf(bound, 1) {
			t.Errorf("%v hosts, bound %v", n, bound)
		}
		if st := s.Status(); st.Hosts != 0 || st.Timers[0].EffectiveLimit != 1 {
			t.Errorf("%+v", st)
		}
		if n, bound := gauge(t, listless, "tickslot_hosts"), gauge(t, listless,
			"tickslot_effective_limit_bound"); !math.IsNaN(n) || !math.IsNaN(bound) { // absent if it equals slots_limit
			t.Errorf("%v hosts, bound %v", n, bound)
		}
		if n := gauge(t, alone, "tickslot_hosts"); n != 1 {
			t.Errorf("%v hosts without a store", n)
		}
		never.Link.Heal()
		testkit.Eventually(t, 2*dlock.DefaultTTL, "the hosts are counted", func() bool {
			return gauge(t, registry,
				"tickslot_hosts") == 2
		})
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		f.Stop()
	})
}
