package driver_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// counting wraps a store and counts its requests. It passes all other calls to the store.
type counting struct {
	driver.Store
	asked int
}

func (c *counting) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	c.asked++
	return c.Store.TryAcquire(ctx, req)
}

// Unwrap lets CapabilitiesOf find the optional interfaces of the store.
func (c *counting) Unwrap() driver.Store { return c.Store }

// A store answers a request in one of three ways: a grant, a refusal, or another error. After
// another error it is unknown whether the lease was granted.
func Example() {
	ctx := context.Background()
	store := &counting{Store: memlock.New()}
	request := func(token string) (driver.Grant, error) {
		return store.TryAcquire(ctx, driver.Request{Name: "report", Slots: 1, TTL: 15 * time.Second,
			Holder: driver.Holder{Host: "a", PID: 1, ID: "x"}, Token: token})
	}

	grant, err := request("first")
	fmt.Println("slot", grant.Slot, err)

	var no *driver.NotAcquiredError
	if _, err = request("second"); errors.As(err, &no) {
		fmt.Println("refused:", no.Reason)
	}
	again, err := request("first") // as after a lost reply
	fmt.Println("the same grant:", again.Fence == grant.Fence, err)

	results, err := store.Release(ctx, grant)
	fmt.Println("released:", results[0].Outcome == driver.GrantOK, err)
	fmt.Println("asked", store.asked, "times; it can list leases:", driver.CapabilitiesOf(store).Lister != nil)
	// Output:
	// slot 0 <nil>
	// refused: full
	// the same grant: true <nil>
	// released: true <nil>
	// asked 3 times; it can list leases: true
}
