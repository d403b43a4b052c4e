// Command tickslot shows a fleet of timers to its operators, and lets them steer it, through the
// store that its hosts share:
//
//	export TICKSLOT_STORE=redis://localhost:6379/0
//	tickslot timers ls
//	tickslot explain report
//	tickslot pause report --for 2h --note "the warehouse moves"
//	tickslot doctor
//
// What is not promised: it shows what the store knows, which may be a moment old. When a timer is
// due next, and what a host decided about a tick, only that host knows. Hosts that write to no
// registry (package cluster) are seen by the slots that they hold, and no further.
//
// Changes are in force when the command returns, hosts follow within a heartbeat; an error says
// that a change may or may not be. They are told in the events of the registry, with who made them.
//
// Passwords are in no output. Names, errors and notes cannot do anything to a terminal.
// docs/command-line.md has all commands.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/tickslot/tickslot/cmd/tickslot/internal/commands"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait
	// The libraries warn of a name that no host is known to have.
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	std := commands.IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv}
	os.Exit(commands.Run(ctx, os.Args[1:], std))
}
