package memlock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// Two sessions, as two hosts would have them, share a store and its limit.
func ExampleStore() {
	ctx := context.Background()
	store := memlock.New()
	host := func(name string) *dlock.Session {
		session, err := dlock.NewSession(store, dlock.SessionOptions{Holder: dlock.Holder{Host: name, PID: 1, ID: "x"}})
		if err != nil {
			panic(err)
		}
		return session
	}
	a, b := host("a"), host("b")
	defer a.Close(ctx)
	defer b.Close(ctx)

	lease, err := a.Mutex("nightly-report").TryAcquire(ctx)
	fmt.Println("a has it:", err == nil && lease.Valid())

	_, err = b.Mutex("nightly-report").TryAcquire(ctx)
	if held, ok := errors.AsType[*dlock.NotAcquiredError](err); ok {
		fmt.Println("b does not:", held.Reason, "held by", held.Holder)
	}

	fmt.Println("released:", lease.Release(ctx) == nil)
	lease, err = b.Mutex("nightly-report").TryAcquire(ctx)
	fmt.Println("b has it:", err == nil && lease.Valid())
	lease.Release(ctx)

	// Output:
	// a has it: true
	// b does not: full held by a/1/x
	// released: true
	// b has it: true
}
