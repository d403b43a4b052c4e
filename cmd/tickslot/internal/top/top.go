// Package top is the live view of a fleet: what needs attention, timers with their slots, hosts.
//
// It never waits for the store. While that is silent or down, the view has what was read last, and
// says how old it is and why. Names and errors cannot do anything to the terminal.
package top

import (
	"context"
	"errors"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/fleet"
)

// A Reading is what was read from the store.
type Reading struct {
	Snapshot *cluster.Snapshot // never nil; without a ReadAt nothing was read yet
	Timers   []*fleet.Timer    // by name
	Err      string            // why this is not the latest; "": it is
}

// Options say what is shown.
type Options struct {
	// Store is what people call the store, without a password.
	Store string
	// Read reads what is shown. It is called again an Interval after it has returned.
	Read     func(ctx context.Context) Reading
	Interval time.Duration
	// Filter is a text that timers and hosts that are shown have in their names, at the start.
	Filter string
}

// Run shows the fleet until the user quits, or ctx ends. Both have to be a terminal.
func Run(ctx context.Context, o Options, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends what is read
	p := tea.NewProgram(newModel(ctx, o), tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out),
		tea.WithoutSignalHandler(), tea.WithFPS(20))
	if _, err := p.Run(); err != nil && !(errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil) {
		return err
	}
	return nil
}
