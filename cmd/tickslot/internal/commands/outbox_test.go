package commands_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/outbox"
)

// On which node does the outbox run? leaders ls shows it, with the holder of that host.
//
// Fails when the relay's locks have a different holder, or when the registry does not record them.
func TestWhichNodeTheOutboxRunsOn(t *testing.T) {
	t.Parallel()
	url, file := sqlite(t)
	db := open(t, file)
	box := outbox.SQLite(db, outbox.Options{})
	t.Cleanup(func() { _ = box.Close() })
	silent := slog.New(slog.DiscardHandler)
	registry, err := cluster.New(cluster.Config{Store: sqlregistry.SQLite(db, sqlregistry.Options{}),
		TTL: 3 * time.Second, Logger: silent})
	if err != nil {
		t.Fatal(err)
	}
	relay, err := outbox.NewRelay(box, outbox.RelayConfig{Holder: registry.Holder(), Decorate: registry.Decorate,
		Logger: silent, DefaultSink: outbox.SinkFunc(func(context.Context, outbox.Delivery) error { return nil })})
	if err != nil {
		t.Fatal(err)
	}
	registry.Add(relay)
	until(t, func(ctx context.Context) error {
		ended := make(chan error, 1)
		go func() { ended <- registry.Run(ctx) }()
		err := relay.Run(ctx)
		if failed := <-ended; err == nil {
			err = failed
		}
		return err
	}, func() bool {
		a := tickslot(t, url, "leaders", "ls")
		return strings.Contains(a.out, "outbox:") && strings.Contains(a.out, registry.Holder().String())
	})
}
