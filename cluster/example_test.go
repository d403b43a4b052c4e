package cluster_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/leader"
)

// Which of my nodes is the relay running on right now?
func Example() {
	locks, store := memlock.New(), cluster.NewMemoryStore() // in a service, for example redislock and redisregistry
	registry, err := cluster.New(cluster.Config{
		Store:  store,
		Locks:  locks,
		Holder: dlock.Holder{Host: "node-1", PID: 4711, ID: "x"}, // by default dlock.NewHolder()
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	session, err := dlock.NewSession(registry.Decorate(locks), dlock.SessionOptions{Holder: registry.Holder()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(context.Background())
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second) // in a service: until SIGTERM
	defer stop()
	ended := make(chan error)
	go func() { ended <- registry.Run(ctx) }()

	err = leader.Run(ctx, session, leader.Role{Name: "relay", Run: func(ctx context.Context, _ *leader.Term) error {
		snapshot, err := registry.Snapshot(ctx)
		if err != nil {
			return err
		}
		for _, lease := range snapshot.HeldLeases(cluster.KindLeader) {
			fmt.Println(lease.Name, "runs on", lease.Holder.Host, "pid", lease.Holder.PID, "own:", lease.Own)
		}
		stop()
		return nil
	}})
	fmt.Println(err, <-ended)
	// Output:
	// leader:relay runs on node-1 pid 4711 own: true
	// <nil> <nil>
}

// Record leases manually if no store lists them and the lock is not decorated.
func ExampleRegistry_Record() {
	registry, err := cluster.New(cluster.Config{Store: cluster.NewMemoryStore(),
		Holder: dlock.Holder{Host: "node-1", PID: 4711, ID: "x"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	registry.Record(cluster.LeaseRecord{Name: "outbox:mail", Fence: 7, ExpiresIn: time.Minute})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- registry.Run(ctx) }()
	stop() // in a service: at the end
	fmt.Println(<-ended)
	snapshot, err := registry.Snapshot(context.Background())
	fmt.Println(snapshot.Leases[0].Name, snapshot.Leases[0].Kind, snapshot.Leases[0].State, err)
	// Output:
	// <nil>
	// outbox:mail outbox held <nil>
}
