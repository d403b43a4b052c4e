package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// Timers that share a limit make one round trip per call: one for a refused tick, two for a run,
// and one for a heartbeat, whatever the number of locks.
//
// Fails when a separate call takes, renews or releases the permit.
func TestSharedLimitCostsNoRoundTrip(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	proxy := redistest.NewCountingProxyFor(t, server.Addr())
	client := redis.NewClient(&redis.Options{Username: app, Password: canary, Addr: proxy.Addr()})
	t.Cleanup(func() { client.Close() })
	store := open(t, client, redislock.Options{Prefix: unique(shop)})
	awake(t, store)
	registry := prometheus.NewRegistry()
	work := timer.Timer{Schedule: schedule.Every(25 * time.Millisecond), MaxConcurrency: 2,
		MaxPerTick: 2, Limits: []string{"smtp"},
		Run: func(context.Context) error { time.Sleep(40 * time.Millisecond); return nil }}
	mail, news := work, work
	mail.Name, news.Name = "mail", "news"
	s, err := timer.New(timer.Config{Store: store, TTL: quarantineTTL, StoreTimeout: quarantineTTL / 3,
		Logger: slog.New(slog.DiscardHandler), Registerer: registry, Limits: []timer.Limit{{Name: "smtp", Size: 1}}},
		mail, news)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	before := proxy.RoundTrips()
	go func() { done <- s.Run(ctx) }()
	asked := func() (started, full uint64) {
		for _, st := range s.Status().Timers {
			started, full = started+st.Started, full+st.Skipped[timer.ReasonLimitFull]
		}
		return started, full
	}
	testkit.Eventually(t, 30*time.Second, "fifty runs, and refusals", func() bool {
		started, full := asked()
		return started >= 50 && full >= 20
	})
	calls := uint64(0)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "tickslot_store_operation_duration_seconds" {
				calls += m.GetHistogram().GetSampleCount()
			}
		}
	}
	trips := proxy.RoundTrips() - before
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	started, full := asked()
	t.Logf("%d runs, %d refused because of the limit: %d calls, %d round trips", started, full, calls, trips)
	const others = 40 // connections, and reads of hosts, overrides and settings
	if trips > int64(calls)+others || calls > 2*started+full+started+others {
		t.Errorf("%d runs, %d refused because of the limit: %d calls, %d round trips", started, full, calls, trips)
	}
}

// A refusal writes nothing. Its writes would be copied to every replica, and timers that wait for a
// limit are refused all day.
//
// Fails when a slot is taken before the last semaphore was checked.
func TestRefusedWithFurtherSemaphoresWritesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	owner := server.Client()
	client := redis.NewClient(&redis.Options{Username: app, Password: canary, Addr: server.Addr()})
	t.Cleanup(func() { client.Close() })
	store := open(t, client, redislock.Options{Prefix: shop})
	awake(t, store)
	written := func() string {
		info, err := owner.Info(t.Context(), "persistence").Result()
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`rdb_changes_since_last_save:\d+`).FindString(info)
	}
	acquire := func(name, token string, shared ...string) error {
		req := driver.Request{Name: name, Slots: 3, Token: token, TTL: quarantineTTL}
		for _, a := range shared {
			req.Shared = append(req.Shared, driver.SemaphoreSpec{Name: a, Slots: 1})
		}
		_, err := store.TryAcquire(t.Context(), req)
		return err
	}
	if err := acquire("a", "one", "free", "taken"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Release(t.Context(), driver.Grant{Name: "free", Slots: 1, Token: "one"}); err != nil {
		t.Fatal(err)
	}
	before := written()
	for i := range 5 {
		err := acquire("a", fmt.Sprintf("more-%d", i), "free", "taken")
		no, ok := errors.AsType[*driver.NotAcquiredError](err)
		if !ok || no.Reason != driver.ReasonLimitFull || no.Shared.Name != "taken" {
			t.Fatal(err)
		}
	}
	if after := written(); after != before || after == "" {
		t.Errorf("five refusals: %s, before them %s", after, before)
	}
}

// If part of a grant was deleted, the next request with its token is an error, not another grant.
// The caller then releases the rest.
//
// Fails when look_also does not compare what the token holds.
func TestPartOfAGrantDeleted(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client := redis.NewClient(&redis.Options{Username: app, Password: canary, Addr: server.Addr()})
	t.Cleanup(func() { client.Close() })
	prefix := unique(shop)
	store := open(t, client, redislock.Options{Prefix: prefix})
	awake(t, store)
	for _, key := range []string{"a:slot:0", "limit:slot:0"} {
		req := driver.Request{Name: "a", Slots: 2, Shared: []driver.SemaphoreSpec{{Name: "limit", Slots: 2}},
			Token: "token", TTL: quarantineTTL}
		g, err := store.TryAcquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := server.Client().Del(t.Context(), prefix+key).Result(); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		if _, err := store.TryAcquire(t.Context(), req); !errors.Is(err, driver.ErrFault) {
			t.Errorf("%s deleted, and asked again: %v: want a fault", key, err)
		}
		results, err := store.Release(t.Context(), append([]driver.Grant{g}, g.Shared...)...)
		if err != nil {
			t.Fatal(err)
		}
		lost := 0
		for _, r := range results {
			if r.Outcome == driver.GrantLost {
				lost++
			}
		}
		if lost != 1 {
			t.Errorf("%s deleted: %+v", key, results)
		}
	}
}
