package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// At most two of the fleet resize images at once.
func ExampleSession_Semaphore() {
	ctx := context.Background()
	session, err := dlock.NewSession(memlock.New(), dlock.SessionOptions{Holder: dlock.Holder{Host: "web-1", PID: 42, ID: "abcd"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)

	resize := session.Semaphore("resize-images", 2)
	first, _ := resize.TryAcquire(ctx)
	second, _ := resize.TryAcquire(ctx)
	fmt.Println("slots", first.Slot(), "and", second.Slot(), "are taken")

	_, err = resize.TryAcquire(ctx)
	if held, ok := errors.AsType[*dlock.NotAcquiredError](err); ok {
		fmt.Println("the third is refused:", held.Reason, "by", held.Holder)
	}

	fmt.Println("released:", second.Release(ctx))
	third, err := resize.TryAcquire(ctx)
	fmt.Println("slot", third.Slot(), err)
	fmt.Println("the fence has grown:", third.Fence() > second.Fence())
	first.Release(ctx)
	third.Release(ctx)

	// Output:
	// slots 0 and 1 are taken
	// the third is refused: full by web-1/42/abcd
	// released: <nil>
	// slot 1 <nil>
	// the fence has grown: true
}

// One of the fleet migrates; the others wait for at most five seconds.
func ExampleMutex() {
	ctx := context.Background()
	session, err := dlock.NewSession(memlock.New(), dlock.SessionOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)

	waiting, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	lease, err := session.Mutex("migrate").Acquire(waiting)
	if err != nil {
		fmt.Println("not now:", err)
		return
	}
	defer lease.Release(ctx)

	for _, step := range []string{"add column", "fill it", "drop the old one"} {
		if !lease.Valid() { // another host may be at it by now
			fmt.Println("stopped:", lease.Err())
			return
		}
		fmt.Println(step)
	}

	// Output:
	// add column
	// fill it
	// drop the old one
}
