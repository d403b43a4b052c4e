package timer_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// Like TestClocksThatStepTogether, on a Redis whose clock is stepped together with the host's, by
// two hours and back. Every timer continues after each step.
//
// Fails when TestClocksThatStepTogether does.
func TestClocksThatStepTogetherOnRedis(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	server, clock := redistest.NewWithClock(t, redistest.Options{})
	client := redis.NewClient(&redis.Options{Password: servertest.Canary, Addr: server.Addr()})
	t.Cleanup(func() { client.Close() })
	store := redislock.New(client, redislock.Options{Prefix: rand.Text() + ":", QuarantineTTL: 3 * time.Second})
	t.Cleanup(func() { store.Close() })
	names := []string{"every", "after"}
	runs := make([]atomic.Int64, len(names))
	var timers []timer.Timer
	for i, s := range []schedule.Schedule{schedule.Every(time.Second), schedule.After(time.Second)} {
		timers = append(timers, timer.Timer{Name: names[i], Schedule: s, OnStoreDown: timer.StoreDownSkip,
			Run: func(context.Context) error { runs[i].Add(1); return nil }})
	}
	h, err := timer.New(timer.Config{Store: store, TTL: 3 * time.Second, StoreTimeout: time.Second,
		Logger: slog.New(slog.DiscardHandler)}, timers...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	for _, ahead := range []time.Duration{0, 2 * time.Hour, 0} {
		clock.Set(ahead)
		timer.SetSkew(h, ahead)
		for i, name := range names {
			before := runs[i].Load()
			testkit.Eventually(t, testkit.Patience, "two runs of "+name+" when clocks are "+ahead.String()+" ahead",
				func() error {
					if runs[i].Load() < before+2 {
						return errors.New("the store or the host waits for the clock")
					}
					return nil
				})
		}
		if err := h.TimersSucceed(); err != nil {
			t.Errorf("clocks are %v ahead: %v", ahead, err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
