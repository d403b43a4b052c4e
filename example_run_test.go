package tickslot_test

import (
	"context"
	"fmt"

	"github.com/tickslot/tickslot"
)

// The parts of a program start in order and stop in reverse.
func ExampleRun() {
	ctx, stop := context.WithCancel(context.Background()) // a service uses signal.NotifyContext
	first := tickslot.PartFunc(func(ctx context.Context) error {
		<-ctx.Done()
		fmt.Println("the first part stops last")
		return nil
	})
	last := tickslot.PartFunc(func(ctx context.Context) error {
		stop()
		<-ctx.Done()
		fmt.Println("the last part stops first")
		return nil
	})
	fmt.Println(tickslot.Run(ctx, first, last))
	// Output:
	// the last part stops first
	// the first part stops last
	// <nil>
}
