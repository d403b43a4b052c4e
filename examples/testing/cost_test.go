package billing_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/durabletest"
	billing "github.com/tickslot/tickslot/examples/testing"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/outboxtest"
)

// The test measures the cost of a virtual day. docs/guide.md and both WorkOff functions quote it
// from
//
//	go test -v -run TestAVirtualDay ./examples/testing
func TestAVirtualDay(t *testing.T) {
	const days = 1
	nothing := func(context.Context, time.Time) error { return nil }
	noRates := func(context.Context) error { return nil }
	pay := func(context.Context, string, int64) error { return nil }
	quietly := slog.New(slog.DiscardHandler)
	for name, pass := range map[string]func(t *testing.T){
		"timers": func(t *testing.T) {
			timers, err := billing.Timers(memlock.New(), quietly,
				billing.Jobs{SendInvoices: nothing, RefreshRates: noRates})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithTimeout(t.Context(), days*24*time.Hour)
			defer stop()
			if err := timers.Run(ctx); err != nil {
				t.Error(err)
			}
		},
		"durable": func(t *testing.T) { waitFor(t, durable.Config{Logger: quietly}, pay, days) },
		"durable, PollInterval 1 h": func(t *testing.T) {
			waitFor(t, durable.Config{Logger: quietly, PollInterval: time.Hour}, pay, days)
		},
		"outbox": func(t *testing.T) {
			box := outboxtest.New(t)
			outboxtest.InTx(t, box, func(tx outbox.Tx) error {
				return billing.Announce(t.Context(), box, tx, billing.Order{})
			})
			relay, err := outbox.NewRelay(box, outbox.RelayConfig{Logger: quietly, Sinks: map[string]outbox.Sink{
				"other": outbox.SinkFunc(func(context.Context, outbox.Delivery) error { return nil })}})
			if err != nil {
				t.Fatal(err)
			}
			outboxtest.WorkOff(t, relay, days*24*time.Hour) // the topic has no sink, so it waits
		},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			synctest.Test(t, pass)
			t.Logf("%v for each virtual day", (time.Since(began) / days).Round(time.Millisecond))
		})
	}
}

// waitFor makes a worker wait for a run.
func waitFor(t *testing.T, c durable.Config, pay func(context.Context, string, int64) error, days int) {
	store := durabletest.NewStore(t)
	worker, err := billing.Worker(store, c, pay)
	if err != nil {
		t.Fatal(err)
	}
	in := durable.TriggerOptions{RunIn: time.Duration(days) * 24 * time.Hour}
	if err := billing.Charge(t.Context(), store, nil, billing.Order{}, in); err != nil {
		t.Fatal(err)
	}
	durabletest.WorkOff(t, worker, time.Duration(days+1)*24*time.Hour)
}
