package dlocktest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// A store's test file has one such test. It states the store's features and provides empty
// namespaces.
func ExampleRun() {
	_ = func(t *testing.T) { // func TestConformance(t *testing.T) {
		dlocktest.Run(t, dlocktest.Harness{
			Features: dlocktest.Features{Fence: true, AtomicTick: true, Holders: true, Info: true, LastSuccess: true,
				PreviousExpired: true, Control: true, Listing: true, Enumeration: true},
			New: func(testing.TB) dlocktest.Namespace {
				store := memlock.New() // your store; connect here and close it in a t.Cleanup
				return dlocktest.Namespace{Open: func() dlock.DistributedLock { return store }}
			},
		})
	}
}

// First a reply is lost: the same request is sent again and finds its grant. Then the store is down
// until Heal.
func ExampleNewFaulty() {
	ctx := context.Background()
	store := dlocktest.NewFaulty(memlock.New())
	session, err := dlock.NewSession(store, dlock.SessionOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)
	migrate := session.Mutex("migrate")

	store.InjectN(1, dlocktest.LostReply, dlocktest.OpAcquire)
	lease, err := migrate.TryAcquire(ctx)
	fmt.Println("acquired:", err == nil, "calls:", store.Calls(dlocktest.OpAcquire))
	fmt.Println("released:", lease.Release(ctx))

	store.Inject(dlocktest.Error(errors.New("connection refused")))
	_, err = migrate.TryAcquire(ctx)
	fmt.Println(err, "means no:", errors.Is(err, dlock.ErrNotAcquired))

	store.Heal()
	lease, err = migrate.TryAcquire(ctx)
	fmt.Println("acquired:", err == nil)
	lease.Release(ctx)

	// Output:
	// acquired: true calls: 2
	// released: <nil>
	// migrate: acquire: the store failed: connection refused means no: false
	// acquired: true
}
