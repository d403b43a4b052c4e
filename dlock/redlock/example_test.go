package redlock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/redlock"
)

// A mutex on three independent servers, which are embedded here, survives the loss of one of them.
func ExampleNew() {
	ctx := context.Background()
	var servers []*miniredis.Miniredis
	var clients []redis.UniversalClient
	for range 3 {
		mini, err := miniredis.Run()
		if err != nil {
			fmt.Println(err)
			return
		}
		defer mini.Close()
		rdb := redis.NewClient(&redis.Options{Addr: mini.Addr()})
		defer rdb.Close()
		servers, clients = append(servers, mini), append(clients, rdb)
	}

	store := redlock.New(clients, redlock.Options{})
	defer store.Close()
	session, err := dlock.NewSession(store, dlock.SessionOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)

	lease, err := session.Mutex("migrate").TryAcquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	servers[0].Close()
	_, err = session.Mutex("migrate").TryAcquire(ctx)
	fmt.Println("one server is gone, still taken:", errors.Is(err, dlock.ErrNotAcquired))
	fmt.Println("released:", lease.Release(ctx))

	lease, err = session.Mutex("migrate").TryAcquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release(ctx)
	fmt.Println("taken again:", lease.Valid())
	// Output:
	// one server is gone, still taken: true
	// released: <nil>
	// taken again: true
}
