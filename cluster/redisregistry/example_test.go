package redisregistry_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/redisregistry"
	"github.com/tickslot/tickslot/dlock"
)

// One host writes to a registry on Redis (here an embedded server), and any host can read it.
func ExampleNew() {
	mini, err := miniredis.Run()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer mini.Close()
	rdb := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	defer rdb.Close()

	store := redisregistry.New(rdb, redisregistry.Options{Prefix: "shop:"})
	defer store.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	web1 := dlock.Holder{Host: "web-1", PID: 4711, ID: "gw6htyep"}
	_, err = store.Write(ctx, cluster.Batch{
		Host: &cluster.Heartbeat{Holder: web1, UpFor: time.Hour, TTL: 15 * time.Second, Detail: []byte(`{}`)},
		Leases: []cluster.LeaseRecord{{Name: "outbox", Kind: "leader", Holder: web1, Fence: 7,
			HeldFor: time.Minute, ExpiresIn: 10 * time.Second}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	rows, err := store.Read(ctx, cluster.Query{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, l := range rows.Leases {
		fmt.Printf("%s has %s for %v\n", l.Holder, l.Name, l.HeldFor.Round(time.Minute))
	}
	// Output: web-1/4711/gw6htyep has outbox for 1m0s
}
