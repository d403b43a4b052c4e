package commands

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tickslot/tickslot/cmd/tickslot/internal/fleet"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/top"
)

var errNoTerminal = errors.New("top needs a terminal that can move its cursor: use \"tickslot timers ls -w\" and " +
	"\"tickslot hosts ls -w\"")

func (a *app) top() *cobra.Command {
	var interval time.Duration
	c := &cobra.Command{
		Use: "top [TEXT]", Short: "Watch the fleet", Args: takes(0), GroupID: groupView,
		Long: "What needs attention, timers with their slots, and hosts, read again and again. With TEXT only\n" +
			"timers and hosts whose name contains it. In SLOTS a # is a slot that is held, ! one whose holder is\n" +
			"not there any more, and a dot one that is free. While the store does not answer, what was read last\n" +
			"is shown, with its age.\n\n" +
			"Keys: q quits, s sorts by something else, r reverses that, / filters, tab goes to the other list,\n" +
			"arrows, pgup, pgdown, home and end scroll it, esc ends the filter.",
		Example: "  tickslot top\n  tickslot top report --interval 5s",
		RunE: func(c *cobra.Command, args []string) error {
			if interval < 100*time.Millisecond {
				return fmt.Errorf("--interval %v: use 100ms or more", interval)
			}
			if !a.canPaint() {
				return errNoTerminal
			}
			if err := a.open(c); err != nil {
				return err
			}
			options := top.Options{Store: a.store.Name, Read: a.readFleet(), Interval: interval}
			if len(args) > 0 {
				options.Filter = args[0]
			}
			return top.Run(c.Context(), options, a.In, a.Out)
		},
	}
	c.Flags().DurationVar(&interval, "interval", 2*time.Second, "between two looks at the store")
	return c
}

// canPaint reports whether input and output are a terminal that is not dumb.
func (a *app) canPaint() bool {
	_, in := widthOf(a.In)
	_, out := widthOf(a.Out)
	return in && out && a.Getenv("TERM") != "dumb" && a.Getenv("TERM") != ""
}

// readFleet returns a function that reads the fleet for top. While the store is down, the overrides
// of timers stay as they were.
func (a *app) readFleet() func(ctx context.Context) top.Reading {
	var before []*fleet.Timer
	return func(ctx context.Context) top.Reading {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		s, err := a.readSnapshot(ctx)
		reading := top.Reading{Snapshot: s, Timers: fleet.Timers(s)}
		if err != nil {
			reading.Err = a.text(err)
			fleet.Keep(before, reading.Timers)
			return reading
		}
		fleet.Inspect(ctx, a.store.Locks, reading.Timers, a.text)
		before = reading.Timers
		return reading
	}
}
