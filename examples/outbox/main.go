// Command outbox shows that a message committed with an order is not lost. The process is killed
// before it has delivered the message. The next process delivers it, and it takes effect once.
// Started as
//
//	go run ./examples/outbox
//
// it runs a demonstration on two SQLite files and needs no server: a shop that takes orders, and a
// billing service that writes an invoice for each. You can also start the shop yourself, in several
// terminals:
//
//	go build -o /tmp/shop ./examples/outbox
//	/tmp/shop -folder /tmp/play
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	folder := flag.String("folder", "", "be a shop, whose files are in `FOLDER`; without it: play")
	closed := flag.Bool("closed", false, "deliver, and take no orders")
	played := flag.Bool("played", false, "end a shop when its standard input ends")
	asJSON := flag.Bool("json", false, "end the play with a line of JSON")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the first Ctrl-C lets deliveries finish; the second does not wait
	if *played {
		go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop() }()
	}
	run := func() error { return play(ctx, *asJSON) }
	if *folder != "" {
		run = func() error { return work(ctx, *folder, *closed) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "outbox:", err)
		os.Exit(1)
	}
}
