package timer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/timer"
)

// Two timers send mail through a server that accepts only one connection. Only one run of either
// timer is in progress at a time, on any host.
func ExampleLimit() {
	store := memlock.New()
	release := make(chan struct{})
	host := func() *timer.Scheduler {
		send := func(context.Context) error { <-release; return nil }
		timers, err := timer.New(
			timer.Config{Store: store, Limits: []timer.Limit{{Name: "smtp", Size: 1}}},
			timer.Timer{Name: "invoices", Limits: []string{"smtp"}, Run: send},
			timer.Timer{Name: "newsletter", Limits: []string{"smtp"}, Run: send})
		if err != nil {
			panic(err)
		}
		return timers
	}
	a, b := host(), host()
	stop := start(a, b)
	defer stop()

	_, err := a.Trigger(context.Background(), "invoices", timer.TriggerOptions{})
	fmt.Println("a:", err)
	_, err = b.Trigger(context.Background(), "newsletter", timer.TriggerOptions{})
	if refused, ok := errors.AsType[*timer.RefusedError](err); ok {
		fmt.Println("b:", refused.Reason)
	}
	if no, ok := errors.AsType[*dlock.NotAcquiredError](err); ok {
		fmt.Println("b:", no.Shared.Name, "is held by a:", no.Holder == a.Status().Holder)
	}
	close(release)
	// Output:
	// a: <nil>
	// b: limit_full
	// b: limit:smtp is held by a: true
}
