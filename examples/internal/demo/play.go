package demo

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// A Store is shared by all hosts. Connect opens a client for one of them.
type Store struct {
	Connect func() (client dlock.DistributedLock, disconnect func() error, err error)
}

// A Program is one of the examples.
type Program struct {
	Name  string
	Flags func(*flag.FlagSet)                       // additional flags, or nil
	Open  func(ctx context.Context) (*Store, error) // called after the flags were parsed
}

// Main parses the flags, runs the demonstration, and returns the exit status.
func (p Program) Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	printError := func(err error) { fmt.Fprintf(stderr, "%s: %v\n", p.Name, err) }
	opts, err := p.parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	picture, log := stdout, newLogger(stderr)
	if opts.json {
		picture, log = io.Discard, slog.New(slog.DiscardHandler)
	}
	store, err := p.Open(ctx)
	if err != nil {
		printError(err)
		return 1
	}

	rec := newRecorder(picture)
	cut, err := play(ctx, opts, store, rec, log)
	result := rec.report(opts.hosts, cut)
	if opts.json {
		_ = json.NewEncoder(stdout).Encode(result)
	} else {
		result.print(stdout)
	}
	if err = errors.Join(err, rec.violations()); err != nil {
		printError(err)
		return 1
	}
	return 0
}

// play runs the demonstration. It returns when every host has ended.
func play(ctx context.Context, opts options, store *Store, rec *recorder, log *slog.Logger) (cutOff, error) {
	all, err := newHosts(opts.hosts, store, rec, log)
	if err != nil {
		return cutOff{}, err
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- all.run(ctx) }()
	drawn := make(chan struct{})
	go func() { defer close(drawn); rec.draw(ctx) }()

	end := time.After(opts.length)
	wait(ctx, time.After(opts.length/2))
	cut, err := all.cutOneOff(ctx)
	if errors.Is(err, context.Canceled) {
		err = nil // Ctrl-C is not a failure, even if no host has been cut off yet
	}
	wait(ctx, end)
	stop()
	<-drawn
	rec.say("the hosts finish what they run")
	return cut, errors.Join(err, <-ended)
}

func wait(ctx context.Context, until <-chan time.Time) {
	select {
	case <-until:
	case <-ctx.Done():
	}
}

type options struct {
	json   bool
	hosts  int
	length time.Duration
}

func (p Program) parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&o.json, "json", false, "print nothing but one JSON object at the end")
	flags.IntVar(&o.hosts, "hosts", 3, "`number` of hosts, at least 2")
	flags.DurationVar(&o.length, "for", 8*time.Second, "`duration` until the hosts are told to finish")
	if p.Flags != nil {
		p.Flags(flags)
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	var err error
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q: use flags only", flags.Arg(0))
	case o.hosts < 2:
		err = errors.New("-hosts must be at least 2: one is cut off, and another one takes over")
	case o.length <= 0:
		err = errors.New("-for must be positive")
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", p.Name, err)
	}
	return o, err
}

// newLogger returns a logger that prints the library's warnings as short lines.
func newLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey, "err", "store", "timers_run_local", "timers_skip", "goes_on":
				return slog.Attr{}
			}
			return a
		},
	}))
}
