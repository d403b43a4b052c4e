package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/proof/redistest"
)

// BenchmarkAcquire acquires one of N slots, some of which are held, and releases it. The time must
// not depend on N: compare results within one run. p50-µs is the median of the acquire alone.
func BenchmarkAcquire(b *testing.B) {
	server := redistest.Shared(b)
	client := redis.NewClient(&redis.Options{Password: canary, Addr: server.Addr()})
	defer client.Close()
	for _, percent := range []int{0, 90, 100} {
		for _, n := range []int{5, 50, 500, 10_000} {
			b.Run(fmt.Sprintf("held=%d%%/N=%d", percent, n), func(b *testing.B) {
				benchmarkAcquire(b, client, n, n*percent/100)
			})
		}
	}
}

func benchmarkAcquire(b *testing.B, client redis.UniversalClient, n, held int) {
	ctx := context.Background()
	tick := &driver.Tick{At: time.Now(), Max: 1 << 40}
	request := func(token string, ttl time.Duration) driver.Request {
		return driver.Request{Name: "timer:bench", Slots: n, Holder: driver.Holder{Host: "h", PID: 1, ID: "x"},
			Token: token, TTL: ttl, Tick: tick}
	}
	// The first grant marks the server as known. After that, long leases are possible immediately,
	// and the measurement includes the quarantine's check.
	prefix := unique("bench")
	first := open(b, client, redislock.Options{Prefix: prefix})
	awake(b, first)
	g, err := first.TryAcquire(ctx, request("first", time.Second))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := first.Release(ctx, g); err != nil {
		b.Fatal(err)
	}
	store := open(b, client, redislock.Options{Prefix: prefix, QuarantineTTL: time.Hour})
	for i := range held {
		if _, err := store.TryAcquire(ctx, request(fmt.Sprint("held", i), time.Hour)); err != nil {
			b.Fatal(err)
		}
	}
	took := make([]time.Duration, 0, 1<<16)
	for i := 0; b.Loop(); i++ {
		req := request(fmt.Sprint("t", i), time.Minute)
		began := time.Now()
		g, err := store.TryAcquire(ctx, req)
		took = append(took, time.Since(began))
		switch {
		case err == nil:
			if _, err := store.Release(ctx, g); err != nil {
				b.Fatal(err)
			}
		case held < n || !errors.Is(err, driver.ErrNotAcquired):
			b.Fatal(err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/1e3, "p50-µs")
}
