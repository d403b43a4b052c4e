package outbox_test

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/outbox"
)

// A relay that has not called its database yet does not say that it is down, so that an alert does
// not fire for each process that begins; one whose calls fail says so, until one succeeds.
//
// Fails when database_up is not what its help says, which is that of durable runs as well.
func TestDatabaseIsUpUntilCallsFail(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		var failing atomic.Bool
		f.store.Fault = func(string) error {
			if failing.Load() {
				return errReceiver
			}
			return nil
		}
		registry := prometheus.NewRegistry()
		want := func(when string, want float64) {
			t.Helper()
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, family := range families {
				if family.GetName() != "tickslot_outbox_database_up" {
					continue
				}
				found = true
				if up := family.GetMetric()[0].GetGauge().GetValue(); up != want {
					t.Errorf("%s: database_up is %v, want %v", when, up, want)
				}
			}
			if !found {
				t.Errorf("%s: there is no database_up", when)
			}
		}
		config := outbox.RelayConfig{DefaultSink: f.receiver, Logger: slog.New(slog.DiscardHandler),
			Registerer: registry}
		relay := outbox.NewRelay(f.box, config)
		want("before Run", 1)
		f.run(relay)
		time.Sleep(time.Minute)
		want("it answers", 1)
		failing.Store(true)
		time.Sleep(time.Minute)
		want("it fails", 0)
		failing.Store(false)
		time.Sleep(time.Minute)
		want("it answers again", 1)
	})
}
