package redisservice_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/service"
	"github.com/tickslot/tickslot/service/redisservice"
	"github.com/tickslot/tickslot/timer"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func TestTimersOnRedis(t *testing.T) {
	client := redistest.New(t).Client()
	svc, err := redisservice.New(client, service.Config{Name: "billing", Environment: "test",
		Logger: slog.New(slog.DiscardHandler)},
		timer.Timer{Name: "tick", Schedule: schedule.Every(100 * time.Millisecond),
			Run: func(context.Context) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if svc.Worker() != nil || svc.Runs() != nil || svc.Outbox() != nil || svc.Relay() != nil {
		t.Error("there are parts that Redis has no store for")
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(ctx) }()
	// A server that has just started refuses for 30 s. A refusal is also an answer.
	testkit.Eventually(t, 30*time.Second, "a tick that the server has answered", func() bool {
		tick := svc.Timers().Status().Timers[0]
		return tick.Started+tick.Skipped[timer.ReasonQuarantine] > 0
	})
	testkit.Eventually(t, 30*time.Second, "a host in the registry", func() bool {
		snapshot, err := svc.Registry().Snapshot(t.Context())
		return err == nil && len(snapshot.Hosts) == 1
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatalf("keys: %v, %v", keys, err)
	}
	for _, key := range keys {
		if !strings.HasPrefix(strings.TrimLeft(key, "{"), "billing:") {
			t.Errorf("the key %s does not begin with the name of the service", key)
		}
	}
	if _, err := redisservice.New(client, service.Config{Schema: "x"}); err == nil {
		t.Error("a schema: no error")
	}
	if _, err := svc.NewQueue(nil, nil).Trigger(t.Context(), "x", nil, durable.TriggerOptions{}); err == nil {
		t.Error("a run on Redis: no error")
	}
}
