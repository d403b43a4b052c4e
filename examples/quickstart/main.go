// Command quickstart shows tickslot at work, and checks it, on one machine and without any server:
//
//	go run ./examples/quickstart
//
// Three hosts run two timers on a store in memory. Once a second a line shows which host has which
// slot. Half-way one host is cut off while it holds a slot, as if its plug had been pulled; when
// its lease of two seconds has ended, another host runs in that slot. The program fails if the
// fleet ever exceeds a limit. The example stores runs the same on a real store.
//
// The code that you would write is in examples/internal/demo/timers.go and host.go.
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
	context.AfterFunc(ctx, stop) // the first Ctrl-C lets runs finish, a second one does not wait
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without os.Exit, for the tests. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return demo.Program{Name: "quickstart", Open: memory}.Main(ctx, args, stdout, stderr)
}

// memory opens a store for one process: here all hosts are in one, and share it.
func memory(context.Context) (*demo.Store, error) {
	shared := memlock.New()
	return &demo.Store{
		Connect: func() (dlock.DistributedLock, func() error, error) {
			return shared, func() error { return nil }, nil
		},
	}, nil
}
