// Command tickslot shows a fleet of timers to its operators, and lets them control it, through the
// store that its hosts share:
//
//	export TICKSLOT_STORE=redis://localhost:6379/0
//	tickslot timers ls
//	tickslot explain report
//	tickslot pause report --for 2h --note "the warehouse moves"
//	tickslot doctor
//
// It shows what the store knows, which may be slightly out of date. Only a host itself knows when a
// timer is due next, and what it decided about a tick. If hosts do not write to a registry (package
// cluster), only the slots that they hold are shown.
//
// A change is in force in the store when the command returns, and hosts follow within a heartbeat.
// After an error it may or may not be in force. Changes are recorded as events in the registry,
// with the name of the user who made them.
//
// Passwords are never printed. Names, errors and notes are escaped, so that they cannot control the
// terminal. docs/command-line.md describes all commands.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/tickslot/tickslot/cmd/tickslot/internal/commands"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program immediately
	std := commands.IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv}
	os.Exit(commands.Run(ctx, os.Args[1:], std))
}
