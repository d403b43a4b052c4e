package redislock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/redislock"
)

// This semaphore has two slots on Redis, here an embedded server.
func ExampleNew() {
	mini, err := miniredis.Run()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer mini.Close()
	rdb := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	defer rdb.Close()

	store := redislock.New(rdb, redislock.Options{Prefix: "shop:", Embedded: true})
	defer store.Close()
	session, err := dlock.NewSession(store, dlock.SessionOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(context.Background())

	sem := session.Semaphore("resize-images", 2)
	for range 3 {
		lease, err := sem.TryAcquire(context.Background())
		if no, ok := errors.AsType[*dlock.NotAcquiredError](err); ok {
			fmt.Println("refused:", no.Reason)
			continue
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		defer lease.Release(context.Background())
		fmt.Println("slot", lease.Slot())
	}
	// Output:
	// slot 0
	// slot 1
	// refused: full
}

// List tells operators who holds which slot, and how long each lease lasts unless it is renewed.
func ExampleStore_List() {
	ctx := context.Background()
	mini, err := miniredis.Run()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer mini.Close()
	rdb := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	defer rdb.Close()
	store := redislock.New(rdb, redislock.Options{Embedded: true})
	defer store.Close()

	for _, host := range []string{"web-1", "web-2"} {
		session, err := dlock.NewSession(store, dlock.SessionOptions{Holder: dlock.Holder{Host: host, PID: 42,
			ID: "abcd"}})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer session.Close(ctx)
		lease, err := session.Semaphore("resize-images", 3).TryAcquire(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer lease.Release(ctx)
	}

	leases, err := store.List(ctx, "resize-images", 3) // for a timer, the name is "timer:" + its name
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, held := range leases {
		fmt.Printf("slot %d: %v, ends within 15s: %v\n", held.Slot, held.Holder, held.ExpiresIn <= dlock.DefaultTTL)
	}
	// Output:
	// slot 0: web-1/42/abcd, ends within 15s: true
	// slot 1: web-2/42/abcd, ends within 15s: true
}

// With Sentinel, list all sentinels in the same way on every host.
func ExampleNewFailover() {
	store := redislock.NewFailover(&redis.FailoverOptions{
		MasterName:    "mymaster",
		SentinelAddrs: []string{"sentinel-1:26379", "sentinel-2:26379", "sentinel-3:26379"},
		Password:      "secret",
	}, redislock.Options{Prefix: "shop:"})
	defer store.Close()
	if err := store.Check(); err != nil {
		fmt.Println(err)
	}
	fmt.Println(store.MaxTTL())
	// Output: 30s
}
