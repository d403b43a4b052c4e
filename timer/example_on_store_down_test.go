package timer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/timer"
)

// The store is down. A timer whose work may rather run twice than not at all continues without the
// store, with up to MaxPerHost runs on each host. A timer that must keep its limit waits.
func ExampleStoreDownPolicy() {
	store := dlocktest.NewFaulty(memlock.New())
	store.Inject(dlocktest.Error(errors.New("connection refused")))

	ran := make(chan string, 1)
	handler := func(ctx context.Context) error {
		run, _ := timer.RunFromContext(ctx)
		ran <- fmt.Sprintf("degraded %v, valid %v", run.Degraded(), run.Valid())
		return nil
	}
	timers, err := timer.New(timer.Config{Store: store},
		timer.Timer{Name: "refresh-cache", OnStoreDown: timer.StoreDownRunLocal, Run: handler}, // the default
		timer.Timer{Name: "charge-cards", OnStoreDown: timer.StoreDownSkip, Run: handler},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	stop := start(timers)
	defer stop()

	_, err = timers.Trigger(context.Background(), "refresh-cache", timer.TriggerOptions{})
	fmt.Println("refresh-cache:", err)
	fmt.Println("refresh-cache:", <-ran)
	_, err = timers.Trigger(context.Background(), "charge-cards", timer.TriggerOptions{})
	if refused, ok := errors.AsType[*timer.RefusedError](err); ok {
		fmt.Println("charge-cards:", refused.Reason)
	}

	store.Heal()
	_, err = timers.Trigger(context.Background(), "charge-cards", timer.TriggerOptions{})
	fmt.Println("charge-cards:", err)
	fmt.Println("charge-cards:", <-ran)
	// Output:
	// refresh-cache: <nil>
	// refresh-cache: degraded true, valid false
	// charge-cards: store
	// charge-cards: <nil>
	// charge-cards: degraded false, valid true
}
