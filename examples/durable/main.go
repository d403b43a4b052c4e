// Command durable shows that a queued run is completed even if its process is killed. Started as
//
//	go run ./examples/durable
//
// it runs a demonstration on a SQLite file and needs no server. Three workers create an invoice
// every second. A long run is triggered, its worker is killed with kill -9 during the run, and
// another worker finishes it. In the end, every tick has had exactly one run. You can also start
// workers yourself, in several terminals:
//
//	go build -o /tmp/worker ./examples/durable
//	/tmp/worker -db /tmp/work.db
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
	path := flag.String("db", "", "be a worker, on the `FILE` that all workers share; without it: play")
	name := flag.String("name", "", "the worker's `NAME`; default: host name, process id and a random part")
	played := flag.Bool("played", false, "end a worker when its standard input ends")
	asJSON := flag.Bool("json", false, "end the play with a line of JSON")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the first Ctrl-C lets runs finish; the second does not wait
	if *played {
		go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop() }()
	}
	run := func() error { return play(ctx, *asJSON) }
	if *path != "" {
		run = func() error { return work(ctx, *path, *name) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "durable:", err)
		os.Exit(1)
	}
}
