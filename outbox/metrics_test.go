package outbox_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
)

// A relay that has not called its database yet reports it as up, so that no alert fires for each
// process that starts. A relay whose calls fail reports it as down until one succeeds.
//
// Fails when database_up differs from its help text, which durable runs share.
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
		relay, err := outbox.NewRelay(f.box, config)
		if err != nil {
			t.Fatal(err)
		}
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

// The metrics of a relay show what happened: each attempt under its outcome, how long each sink
// took, the calls that failed, and the messages that wait.
//
// Fails when a counter counts wrongly, twice or not at all, or the histogram has a wrong sum.
func TestValuesOfMetrics(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		registry := prometheus.NewRegistry()
		var failing atomic.Bool
		f.store.Fault = func(op string) error {
			if op == "mark" && failing.Swap(false) {
				return errReceiver
			}
			return nil
		}
		f.hold = func(context.Context, outbox.Delivery) { time.Sleep(2 * time.Second) }
		f.fail = func(d outbox.Delivery) error {
			switch {
			case d.Topic == "refused":
				return outbox.Permanent(errReceiver)
			case d.Topic == "exhausted", d.Topic == "again" && d.Attempt == 1:
				return errReceiver
			}
			return nil
		}
		f.relayOf(outbox.RelayConfig{Registerer: registry, Retry: outbox.Retry{MaxAttempts: 3}})
		f.append("a", 4)
		f.appendTo("refused", "b", 2)
		f.appendTo("exhausted", "c", 1)
		f.appendTo("again", "d", 1)
		failing.Store(true)
		f.box.Notify()
		time.Sleep(time.Hour)
		got := map[string]float64{}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			name := strings.TrimPrefix(family.GetName(), "tickslot_outbox_")
			for _, m := range family.GetMetric() {
				label := ""
				for _, l := range m.GetLabel() {
					label += " " + l.GetValue()
				}
				switch h := m.GetHistogram(); {
				case h != nil:
					got[name+" sum"], got[name+" count"] = h.GetSampleSum(), float64(h.GetSampleCount())
				default:
					got[name+label] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
		for name, want := range map[string]float64{
			"attempts_total ok": 5, "attempts_total permanent": 2, "attempts_total transient": 3,
			"attempts_total exhausted": 1, "attempts_total unreadable": 0, "database_errors_total mark": 1,
			"dispatch_duration_seconds count": 11, "dispatch_duration_seconds sum": 22, "shards_led": 1, "pending": 0,
			"dead": 3, "oldest_due_seconds": 0, "oldest_pending_seconds": 0, "hook_events_dropped_total": 0,
			"retention_deleted_total": 0, "database_up": 1,
		} {
			if n, ok := got[name]; !ok || n != want {
				t.Errorf("%s: %v, %t, want %v", name, n, ok, want)
			}
		}
	})
}

// The defaults match the comments of the fields.
//
// Fails when a default is changed only in the code.
func TestDefaultsAreDocumented(t *testing.T) {
	t.Parallel()
	c := outbox.Defaults()
	testkit.CheckDefaults(t, ".", map[string]any{
		"RelayConfig.Shards": c.Shards, "RelayConfig.TTL": c.TTL, "RelayConfig.RetryInterval": c.RetryInterval,
		"RelayConfig.MaxCrashes": c.MaxCrashes, "RelayConfig.BatchSize": c.BatchSize,
		"RelayConfig.MaxDeliveries": c.MaxDeliveries, "RelayConfig.DeliverTimeout": c.DeliverTimeout,
		"RelayConfig.IdleDelay": c.IdleDelay, "RelayConfig.PollInterval": c.PollInterval,
		"RelayConfig.InboxRetention": c.InboxRetention, "RelayConfig.SweepInterval": c.SweepInterval,
		"RelayConfig.CallTimeout": c.CallTimeout, "RelayConfig.DrainTimeout": c.DrainTimeout,
		"Retry.MaxElapsedTime": c.Retry.MaxElapsedTime, "Retry.MaxAttempts": c.Retry.MaxAttempts,
		"Retry.FirstWait": c.Retry.FirstWait, "Retry.MaxWait": c.Retry.MaxWait,
		"Retention.Dispatched": c.Retention.Dispatched, "Retention.Dead": c.Retention.Dead,
		"Thresholds.DueAge": c.Health.DueAge, "Thresholds.PendingAge": c.Health.PendingAge,
		"Thresholds.Dead": c.Health.Dead, "RequeueOptions.InboxRetention": outbox.DefaultInboxRetention,
	})
}
