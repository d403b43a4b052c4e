package leader_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/leader"
)

// A loop runs on exactly one host of the fleet, for as long as that host lives.
func Example() {
	session, err := dlock.NewSession(memlock.New(), dlock.SessionOptions{}) // or redislock, sqllock
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(context.Background())
	ctx, stop := context.WithTimeout(context.Background(), 100*time.Millisecond) // in a service: until SIGTERM
	defer stop()
	err = leader.Run(ctx, session, leader.Role{
		Name: "relay",
		Run: func(ctx context.Context, term *leader.Term) error {
			fmt.Println("leading", term.Role())
			<-ctx.Done() // the work
			fmt.Println("no longer leading:", context.Cause(ctx))
			return nil
		},
	})
	fmt.Println(err)
	// Output:
	// leading relay
	// no longer leading: context deadline exceeded
	// <nil>
}

// Up to three hosts lead, and each works on the shard of its slot.
func ExampleRole_max() {
	session, err := dlock.NewSession(memlock.New(), dlock.SessionOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(context.Background())
	ctx, stop := context.WithCancel(context.Background())
	e, err := leader.New(session, leader.Role{
		Name: "shards",
		Max:  3,
		Run: func(ctx context.Context, term *leader.Term) error {
			fmt.Printf("work on the keys of which hash %% 3 == %d\n", term.Slot())
			stop()
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(e.Run(ctx), e.Status().State)
	// Output:
	// work on the keys of which hash % 3 == 0
	// <nil> stopped
}
