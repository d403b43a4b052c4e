package durable_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/internal/store"
)

// While renewals hang and all other calls succeed, a worker loses its leases once, and the check
// keeps failing. When renewals succeed again, the worker continues without a restart.
//
// Fails when a worker that has lost all its leases claims again. It would then lose each run that
// takes longer than a lease, again and again.
func TestWorkerThatLosesItsLeasesClaimsNoMore(t *testing.T) {
	for _, what := range []struct {
		name      string
		took      time.Duration
		lost      uint64
		succeeded int
	}{{"longer than a lease", 40 * time.Second, 4, 0}, {"nearly a lease", 24 * time.Second, 0, 4}} {
		t.Run(what.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				h := f.add(durable.Config{MaxRuns: 4}).handle("report", sleeps(what.took), durable.HandlerOptions{})
				for range 12 {
					f.trigger("report", durable.TriggerOptions{})
				}
				h.link.set(hang, "renew")
				h.start()
				pass(22 * time.Second)
				for range 20 {
					err := h.Checks()["leases-renewed"]()
					if err == nil || !strings.Contains(err.Error(), "nothing new is claimed") {
						t.Errorf("the check: %v", err)
					}
					pass(30 * time.Second)
				}
				if s := h.Status(); s.Handlers[0].LeasesLost != what.lost || s.Places != 0 {
					t.Errorf("%+v", s)
				}
				if n := len(f.runs(store.StateSucceeded)); n != what.succeeded {
					t.Errorf("%d have succeeded", n)
				}
				h.link.set(well)
				pass(3 * time.Minute)
				if left := f.runs(store.StateQueued, store.StateRunning, store.StateDead); len(left) > 0 ||
					h.Checks()["leases-renewed"]() != nil {
					t.Errorf("%v, %+v", h.Checks()["leases-renewed"](), left)
				}
				renewals := h.link.count("renew")
				pass(time.Hour)
				if n := h.link.count("renew") - renewals; n > 0 {
					t.Errorf("%d renewals without a run", n)
				}
				f.end()
			})
		})
	}
}

// A handler that ignores the end of its context loses its lease. That does not count as a failed
// renewal, so the worker keeps claiming.
//
// Fails when a lease that must not be renewed counts as a failed renewal.
func TestHandlerThatIgnoresItsContextStopsNoClaims(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		free := make(chan struct{})
		h := f.add(durable.Config{MaxRuns: 2}).
			handle("stuck", func(context.Context, *durable.Run) error { <-free; return nil },
				durable.HandlerOptions{MaxRunTime: time.Second, Retry: durable.Retry{MaxAttempts: 1}}).
			handle("report", sleeps(time.Second), durable.HandlerOptions{}).start()
		f.trigger("stuck", durable.TriggerOptions{})
		for range 60 {
			pass(2 * time.Second)
			if err := h.Checks()["leases-renewed"](); err != nil {
				t.Error(err)
			}
		}
		close(free)
		pass(time.Second)
		f.end()
	})
}
