package outbox_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/outbox"
)

var errRefused = errors.New("the store belongs to others")

// If a process belongs to another environment than the fleet, its relay delivers nothing and leads
// no shard. The errors of Run, Ready and Started say why.
//
// Fails when the relay does not ask the registry, or asks only after it has called the database.
func TestRelayOfAnotherEnvironment(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		rows := cluster.NewMemoryStore()
		registry := func(environment string) *cluster.Registry {
			r, err := cluster.New(cluster.Config{Store: rows, Environment: environment,
				Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = registry("production").Run(ctx) }()
		synctest.Wait()
		f.append("k", 10)
		r, err := outbox.NewRelay(f.box, outbox.RelayConfig{DefaultSink: f.receiver, Shards: 4,
			Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		registry("staging").Add(r)
		stopRelay := f.run(r)
		time.Sleep(time.Minute)
		synctest.Wait()
		ready, started := r.Ready(), r.Started()
		for what, err := range map[string]error{"Run": stopRelay(), "Ready": ready, "Started": started} {
			if err == nil || !strings.Contains(err.Error(), `belongs to environment "production"`) {
				t.Errorf("%s says %v", what, err)
			}
		}
		if n := f.had(); n > 0 {
			t.Errorf("the relay has delivered %d messages", n)
		}
		if page, err := f.locks.Enumerate(t.Context(), "", 10); err != nil || len(page.Leases) > 0 {
			t.Errorf("the relay has led: %v, %v", page.Leases, err)
		}
	})
}

// A relay that is refused while it is running begins no further delivery, waits for deliveries in
// progress, and releases its shards.
//
// Fails when a message is delivered after that, or a shard is kept.
func TestRelayThatIsRefusedLater(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		r, err := outbox.NewRelay(f.box, outbox.RelayConfig{DefaultSink: f.receiver,
			Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		var refuse func(error)
		r.AdmitBy(func(_ context.Context, refused func(error)) (stop func(), err error) {
			refuse = refused
			return func() {}, nil
		})
		stop := f.run(r)
		f.append("k", 10)
		f.until("delivered", time.Minute, func() bool { return f.had() == 10 })
		refuse(errRefused)
		f.append("k", 10)
		time.Sleep(time.Minute)
		if ready := r.Ready(); !errors.Is(ready, errRefused) {
			t.Errorf("Ready says %v", ready)
		}
		page, err := f.locks.Enumerate(t.Context(), "", 10)
		if err != nil || len(page.Leases) > 0 && page.Leases[0].ReleasedAgo == 0 {
			t.Errorf("the relay still leads the shard: %v, %v", page.Leases, err)
		}
		if err := stop(); !errors.Is(err, errRefused) {
			t.Errorf("Run returns %v", err)
		}
		if n := f.had(); n != 10 {
			t.Errorf("the relay has delivered %d messages, want the first 10", n)
		}
	})
}
