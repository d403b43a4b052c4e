package outbox_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// The network between a relay and Postgres accepts data but returns none, until all connections of
// the relay have failed and new ones are being opened. Then the network works again, but
// connections opened earlier stay silent.
//
// Fails when such connections keep their places in the relay's pool until the driver's own time-out
// of two minutes.
func TestConnectionsThatGetNoAnswer(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedPostgres(t)
	database := server.NewDatabase(t)
	direct := postgresAt(t, server.DSN("", "", database))
	box := direct.open()
	t.Cleanup(func() { box.Close() })
	if err := box.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy, err := servertest.NewProxy(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	behind := postgresAt(t, strings.Replace(server.DSN("", "", database), server.Addr(), proxy.Addr(), 1))
	far := behind.open()
	t.Cleanup(func() { far.Close() })
	const shards = 16 // more calls at the same time than the relay has connections
	relay, err := outbox.NewRelay(far, outbox.RelayConfig{Shards: shards, TTL: 3 * time.Second,
		CallTimeout: time.Second, RetryInterval: 500 * time.Millisecond, PollInterval: 50 * time.Millisecond,
		IdleDelay: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		DefaultSink: outbox.SinkFunc(func(context.Context, outbox.Delivery) error { return nil })})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	defer func() {
		cancel()
		<-ended
	}()
	dispatched := func(n int) {
		t.Helper()
		direct.appended(t, box, "key", 2*shards)
		// This is less than two minutes. On a busy machine, calls of 16 shards take longer than
		// CallTimeout.
		testkit.Eventually(t, 2*testkit.Patience, "the messages are dispatched", func() bool {
			list, err := box.Messages(t.Context(), outbox.Filter{State: outbox.StateDispatched}, 1000)
			if err != nil {
				t.Fatal(err)
			}
			return len(list) == n
		})
	}
	dispatched(2 * shards)
	proxy.LoseReplies(true)
	testkit.Eventually(t, testkit.Patience, "places of the pool are taken", func() bool {
		err := relay.Checks()["database-answers"]()
		return err != nil && strings.Contains(err.Error(), "connections of the pool are in use")
	})
	proxy.LoseReplies(false)
	dispatched(4 * shards)
}
