// Command registry answers an operator's question: on which hosts does this run right now? Its
// hosts share a SQLite file and run two timers, and one of them leads. Each answers from the
// registry of package cluster. Started as
//
//	go run ./examples/registry
//
// it runs a demonstration: it starts three hosts, asks each for the leader, kills the leader, and
// asks the others until they agree on the next one. You can also start hosts yourself, in several
// terminals:
//
//	go build -o /tmp/host ./examples/registry
//	/tmp/host -db /tmp/fleet.db -addr localhost:8081
//	curl 'localhost:8081/who?kind=leader'
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	path := flag.String("db", "", "be a host, on the `FILE` that all hosts share; without it: play")
	addr := flag.String("addr", "localhost:0", "where a host answers")
	played := flag.Bool("played", false, "end a host when its standard input ends")
	asJSON := flag.Bool("json", false, "end the play with a line of JSON")
	flag.Parse()
	slog.SetLogLoggerLevel(slog.LevelWarn) // the registry already shows the runs
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *played {
		go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop() }()
	}
	run := func() error { return play(ctx, *asJSON) }
	if *path != "" {
		run = func() error { return serve(ctx, *path, *addr) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "registry:", err)
		os.Exit(1)
	}
}
