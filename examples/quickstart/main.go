// Command quickstart shows tickslot at work, and checks it, on one machine and without any server:
//
//	go run ./examples/quickstart
//
// Three hosts run two timers against an embedded Redis, or what -store names. Every start and every end is printed as it happens.
// Half-way one host is cut off while it holds a slot, as if its plug had been pulled; when its lease of two seconds has
// ended, another host runs in that slot. The program fails if the fleet ever exceeded a limit.
//
// The files, in the order in which to read them: timers.go (what you would write), host.go (a process of
// yours), fleet.go (what happens to them); stores.go, wire.go, recorder.go and report.go are stage machinery.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the first Ctrl-C lets runs finish, a second one does not wait
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the process: it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	opts, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	logging.Disable() // go-redis would print a line for each connection that a host which is cut off cannot open
	story, log := stdout, warnings(stderr)
	if opts.json {
		story, log = io.Discard, slog.New(slog.DiscardHandler)
	}

	store, err := openStore(ctx, opts.storeURL)
	if err != nil {
		fmt.Fprintln(stderr, "quickstart:", err)
		return 1
	}
	defer store.close()

	rec := newRecorder(story)
	cut, err := play(ctx, opts, store, rec, log)
	result := rec.report(opts.hosts, cut)
	if opts.json {
		_ = json.NewEncoder(stdout).Encode(result)
	} else {
		result.print(stdout)
	}
	if err = errors.Join(err, rec.violations()); err != nil {
		fmt.Fprintln(stderr, "quickstart:", err)
		return 1
	}
	return 0
}

// play is the whole story. When it returns, every host has ended.
func play(ctx context.Context, opts options, store *store, rec *recorder, log *slog.Logger) (cutOff, error) {
	fleet, err := newFleet(opts.hosts, store, rec, log)
	if err != nil {
		return cutOff{}, err
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- fleet.run(ctx) }()

	over := time.After(opts.length)
	wait(ctx, time.After(opts.length/2))
	cut, err := fleet.cutOneOff(ctx)
	if errors.Is(err, context.Canceled) {
		err = nil // Ctrl-C: nobody wants to hear what did not happen any more
	}
	wait(ctx, over)
	rec.say("", "the hosts finish what they run")
	stop()
	return cut, errors.Join(err, <-ended)
}

func wait(ctx context.Context, until <-chan time.Time) {
	select {
	case <-until:
	case <-ctx.Done():
	}
}

type options struct {
	json     bool
	storeURL string
	hosts    int
	length   time.Duration
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&o.json, "json", false, "print nothing but one JSON object at the end")
	flags.StringVar(&o.storeURL, "store", "", "`URL` of what to use instead of an embedded Redis: memory:, sqlite:FILE, redis://…, postgres://… or mysql://…; "+
		"on a database it creates the table distributed_locks, and leaves a few rows there; on Redis a few keys, which go by themselves within a week")
	flags.IntVar(&o.hosts, "hosts", 3, "`number` of hosts, at least 2")
	flags.DurationVar(&o.length, "for", 10*time.Second, "`duration` until the hosts are told to finish")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	var err error
	switch {
	case flags.NArg() > 0:
		err = errors.New("it takes flags only")
	case o.hosts < 2:
		err = errors.New("-hosts: one is cut off and another one has to take over, so use at least 2")
	case o.length <= 0:
		err = errors.New("-for: must be positive")
	}
	if err != nil {
		fmt.Fprintln(stderr, "quickstart:", err)
	}
	return o, err
}

// warnings shows what the library has to say, as short lines. The causes, which come from the network, are left out.
func warnings(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey, "err":
				return slog.Attr{}
			}
			return a
		},
	}))
}
