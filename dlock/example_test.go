package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// In the whole fleet, at most two processes resize images at once.
func ExampleSession_Semaphore() {
	ctx := context.Background()
	session, err := dlock.NewSession(memlock.New(),
		dlock.SessionOptions{Holder: dlock.Holder{Host: "web-1", PID: 42, ID: "abcd"}})
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

// A job that needs a worker and the only GPU takes both or neither.
func ExampleSemaphore_With() {
	ctx := context.Background()
	session, err := dlock.NewSession(memlock.New(), dlock.SessionOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)

	train := session.Semaphore("workers", 5).With(dlock.SemaphoreSpec{Name: "gpu", Slots: 1})
	lease, err := train.TryAcquire(ctx)
	fmt.Println("the first:", err)

	_, err = train.TryAcquire(ctx)
	if no, ok := errors.AsType[*dlock.NotAcquiredError](err); ok {
		fmt.Println("the second:", no.Reason, "of", no.Shared.Name)
	}
	other, err := session.Semaphore("workers", 5).TryAcquire(ctx) // without the GPU
	fmt.Println("another job:", err)
	other.Release(ctx)
	lease.Release(ctx) // releases both

	// Output:
	// the first: <nil>
	// the second: limit_full of gpu
	// another job: <nil>
}

// One host migrates. The others wait for at most five seconds.
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
		if !lease.Valid() { // another host may be working by now
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

// Acquire waits until a slot is free or its context ends.
func ExampleSemaphore_Acquire() {
	ctx := context.Background()
	session, err := dlock.NewSession(memlock.New(), dlock.SessionOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)

	export := session.Semaphore("export", 1)
	first, err := export.Acquire(ctx)
	fmt.Println("the first has it:", err == nil)

	impatient, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_, err = export.Acquire(impatient)
	fmt.Println("the impatient gave up:", errors.Is(err, context.DeadlineExceeded))

	done := make(chan error)
	go func() {
		second, err := export.Acquire(ctx)
		if err == nil {
			err = second.Release(ctx)
		}
		done <- err
	}()
	first.Release(ctx)
	fmt.Println("the patient had it:", <-done == nil)

	// Output:
	// the first has it: true
	// the impatient gave up: true
	// the patient had it: true
}

// A host takes a slot and one start of a tick in one step. The tick stays taken after the release,
// so a host that comes later does not repeat the work.
func ExampleSemaphore_TryAcquireTick() {
	ctx := context.Background()
	session, err := dlock.NewSession(memlock.New(), dlock.SessionOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)

	noon := time.Now().Truncate(12 * time.Hour)
	for range 2 {
		lease, err := session.Semaphore("send-digest", 3).TryAcquireTick(ctx, driver.Tick{At: noon, Max: 1})
		if no, ok := errors.AsType[*dlock.NotAcquiredError](err); ok {
			fmt.Println("refused:", no.Reason)
			continue
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("sent")
		lease.Release(ctx)
	}

	// Output:
	// sent
	// refused: tick_taken
}

// Work that uses the lease's context ends with the lease. Here the store stops answering, so the
// heartbeat fails.
func ExampleLease_Context() {
	ctx := context.Background()
	store := dlocktest.NewFaulty(memlock.New())
	session, err := dlock.NewSession(store, dlock.SessionOptions{TTL: 150 * time.Millisecond,
		StoreTimeout: 50 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)

	work := func(ctx context.Context) error {
		<-ctx.Done() // a query, a request, a loop: anything that takes a context
		return context.Cause(ctx)
	}

	lease, err := session.Mutex("nightly-report").TryAcquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release(ctx)
	store.Inject(dlocktest.Error(errors.New("connection refused")))
	err = work(lease.Context())
	fmt.Println("lost:", errors.Is(err, dlock.ErrLost), "valid:", lease.Valid())
	if lost, ok := errors.AsType[*dlock.LostError](err); ok {
		fmt.Println("of:", lost.Name) // lost.Err is the store's last error
	}

	// Output:
	// lost: true valid: false
	// of: nightly-report
}

// A resource remembers the highest fence that it has seen. So it refuses a holder that has lost its
// lease without noticing.
func ExampleFence() {
	ctx := context.Background()
	session, err := dlock.NewSession(memlock.New(), dlock.SessionOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)

	var highest dlock.Fence // for a semaphore, keep one per slot
	write := func(fence dlock.Fence, text string) {
		if fence < highest { // in SQL: UPDATE … SET fence = $1 WHERE fence <= $1
			fmt.Println("refused:", text)
			return
		}
		highest = fence
		fmt.Println("written:", text)
	}

	old, err := session.Mutex("ledger").TryAcquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	write(old.Fence(), "by the old holder")
	old.Release(ctx) // or it is lost while its host is paused

	successor, err := session.Mutex("ledger").TryAcquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer successor.Release(ctx)
	write(successor.Fence(), "by its successor")
	write(old.Fence(), "by the old holder, late")

	// Output:
	// written: by the old holder
	// written: by its successor
	// refused: by the old holder, late
}
