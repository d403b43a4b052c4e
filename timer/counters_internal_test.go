package timer

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/schedule"
)

// The creation time of a counter is not later than the first event that it counts, because
// Prometheus may insert a 0 at that time.
//
// Fails when ledger.tally does not set createdAt, so that counters have no creation time.
func TestCountersAreCreatedBeforeTheyCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		always := schedule.BlackoutFunc(func(time.Time) bool { return true })
		s, err := New(Config{Registerer: reg, Logger: slog.New(slog.DiscardHandler)},
			Timer{Name: "a", Schedule: schedule.Every(time.Minute), Blackouts: []schedule.Blackout{always},
				Run: func(context.Context) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(90 * time.Second)
		first := time.Now()
		time.Sleep(time.Hour)
		if _, err := s.Trigger(ctx, "a", TriggerOptions{}); err != nil {
			t.Error(err)
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		seen := false
		for _, f := range families {
			if f.GetName() != "tickslot_ticks_total" {
				continue
			}
			for _, m := range f.GetMetric() {
				seen = true
				if c := m.GetCounter(); c.GetCreatedTimestamp() == nil ||
					c.GetCreatedTimestamp().AsTime().After(first) {
					t.Errorf("%v ticks were counted before their counter was created, at %v", c.GetValue(),
						c.GetCreatedTimestamp())
				}
			}
		}
		if !seen {
			t.Error("no ticks were counted")
		}
		cancel()
		running.Wait()
	})
}
