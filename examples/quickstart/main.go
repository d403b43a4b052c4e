// Command quickstart demonstrates and checks tickslot on one machine without a server:
//
//	go run ./examples/quickstart
//
// Three hosts run two timers on a store in memory. Once a second, a line shows the host in each
// slot. Halfway, one host is cut off while it holds a slot, as if its network cable had been
// pulled. When its lease of two seconds has ended, another host runs in that slot. The program
// fails if the fleet ever exceeds a limit. The example stores runs the same demonstration on a real
// store.
//
// You would write code like that in examples/internal/demo/timers.go and host.go.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/examples/internal/demo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the first Ctrl-C lets runs finish; the second does not wait
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without os.Exit, for tests. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return demo.Program{Name: "quickstart", Open: memory}.Main(ctx, args, stdout, stderr)
}

// memory returns a store for one process, which contains all hosts here.
func memory(context.Context) (*demo.Store, error) {
	shared := memlock.New()
	return &demo.Store{
		Connect: func() (dlock.DistributedLock, func() error, error) {
			return shared, func() error { return nil }, nil
		},
	}, nil
}
