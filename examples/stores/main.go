// Command stores runs the quickstart demonstration on your own store:
//
//	go run ./examples/stores -store redis://localhost:6379/0
//	go run ./examples/stores -store postgres://user:password@localhost:5432/database
//	go run ./examples/stores -store mysql://user:password@localhost:3306/database
//	go run ./examples/stores -store sqlite:/tmp/locks.db
//
// On a database it creates the table distributed_locks and leaves a few rows in it. On Redis it
// leaves a few keys, which expire within 40 days. stores.go shows how to open each store.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"

	"github.com/tickslot/tickslot/examples/internal/demo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the first Ctrl-C lets runs finish; the second does not wait
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without os.Exit, for tests. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	logging.Disable() // go-redis would print a line for each failed connection
	url := ""
	return demo.Program{
		Name: "stores",
		Flags: func(flags *flag.FlagSet) {
			flags.StringVar(&url, "store", "", "`URL` of the store: redis://…, postgres://…, mysql://… or sqlite:FILE")
		},
		Open: func(ctx context.Context) (*demo.Store, error) {
			if url == "" {
				return nil, errors.New("-store is required; -help lists the stores")
			}
			return openStore(ctx, url)
		},
	}.Main(ctx, args, stdout, stderr)
}
