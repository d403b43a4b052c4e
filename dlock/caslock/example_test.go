package caslock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/caslock"
	"github.com/tickslot/tickslot/dlock/caslock/caslocktest"
)

// Two hosts share one server. This server is in memory; a real one needs an adapter, such as
// etcdlock.
func ExampleNew() {
	ctx := context.Background()
	server := new(caslocktest.Server)
	host := func(name string) *dlock.Session {
		session, err := dlock.NewSession(caslock.New(server.Client(0)),
			dlock.SessionOptions{Holder: dlock.Holder{Host: name, PID: 1, ID: "x"}})
		if err != nil {
			panic(err)
		}
		return session
	}
	a, b := host("a"), host("b")
	defer a.Close(ctx)
	defer b.Close(ctx)

	lease, err := a.Semaphore("reports", 1).TryAcquire(ctx)
	fmt.Println("a has it:", err == nil && lease.Valid())

	_, err = b.Semaphore("reports", 1).TryAcquire(ctx)
	if held, ok := errors.AsType[*dlock.NotAcquiredError](err); ok {
		fmt.Println("b does not:", held.Reason, "held by", held.Holder)
	}

	fmt.Println("released:", lease.Release(ctx) == nil)
	fmt.Println("documents:", server.Keys())

	// Output:
	// a has it: true
	// b does not: full held by a/1/x
	// released: true
	// documents: [semaphore:reports]
}
