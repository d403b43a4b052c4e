package commands

import (
	"context"
	"fmt"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/tickslot/tickslot/cmd/tickslot/internal/show"
)

// A lister returns a list of the rows whose name contains the filter.
type lister func(ctx context.Context, filter string) (*show.Table, error)

// emptyScreen clears the screen of a terminal.
const emptyScreen = "\x1b[H\x1b[2J"

// addLists adds the commands that list, such as "tickslot timers ls".
func (a *app) addLists(root *cobra.Command) {
	list := func(noun, short, long string, do lister, flags ...func(*cobra.Command)) *cobra.Command {
		parent := &cobra.Command{Use: noun, Short: short, Long: long, GroupID: groupView, Args: cobra.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
		parent.AddCommand(a.lister(noun, "ls", "List "+noun, long, do, flags...))
		root.AddCommand(parent)
		return parent
	}
	list("timers", "Timers, their limits and last runs", "Timers that a host has registered, that hold a slot, or "+
		"that ran.\nLIMIT is what most hosts have in their code, or what an operator has set instead.", a.timers,
		a.stateFlag)
	list("hosts", "Processes of the fleet", "Processes in the registry: alive, suspect (silent for one TTL) or "+
		"gone.", a.hosts, a.stateFlag)
	list("slots", "Slots of timers that are held", "Held slots of timers: the holder, since when, and when each "+
		"ends unless renewed.", a.slots)
	list("leases", "Locks of all kinds", "Locks and slots of every kind that are held or ended a moment ago.", a.leases,
		a.stateFlag)
	list("leaders", "Who leads what", "Roles and the process that leads each.", a.leaders)
	list("events", "Events of leases, hosts and operators", "Events of leases and hosts, and changes by "+
		"operators, newest first.", a.events)
	runs := &runLists{app: a}
	list("runs", "The last runs of timers", "Runs of timers that have ended, the newest first: 200 of all timers, or "+
		"with\n--timer the last 50 of one.", runs.runs, runs.timerFlag)
	list("durable", "Durable runs, their handlers and schedules", "Durable runs, newest first.", runs.durable,
		a.stateFlag, runs.limitFlag).AddCommand(
		a.lister("durable", "handlers", "List handlers of durable runs", "Handlers, their limits, pauses, "+
			"and how many runs they have.", runs.handlers),
		a.lister("durable", "schedules", "List schedules of durable runs", "Schedules, when they are due next, and "+
			"what happened to their ticks.", runs.schedules))
	list("dead", "Dead letters", "Durable runs and messages of the outbox that have exhausted their attempts.",
		runs.dead, runs.limitFlag)
	list("outbox", "Messages of the outbox, and their topics", "Messages of the outbox, newest first.", runs.outbox,
		a.stateFlag, runs.limitFlag).AddCommand(
		a.lister("outbox", "topics", "List topics of the outbox", "Topics, how many messages of each wait, and since "+
			"when they fail.", runs.topics))
}

// lister returns a command that prints the list returned by do.
func (a *app) lister(noun, verb, short, long string, do lister, flags ...func(*cobra.Command)) *cobra.Command {
	c := &cobra.Command{
		Use: verb + " [TEXT]", Short: short, Args: takes(0),
		Long: long + "\n\nWith TEXT only those whose name contains it.",
		Example: fmt.Sprintf("  tickslot %[1]s %[2]s\n  tickslot %[1]s %[2]s report -o wide\n  tickslot %[1]s %[2]s "+
			"-o json\n  tickslot %[1]s %[2]s -w --interval 5s", noun, verb),
		RunE: func(c *cobra.Command, args []string) error { return a.list(c, args, do) },
	}
	a.formatFlags(c)
	c.Flags().StringVar(&a.sort, "sort", "", "sort by this `column`; with - in front in reverse")
	c.Flags().BoolVarP(&a.watch, "watch", "w", false, "list repeatedly, until Ctrl-C")
	c.Flags().DurationVar(&a.interval, "interval", 2*time.Second, "time between two lists of --watch")
	for _, add := range flags {
		add(c)
	}
	return c
}

// list prints the list returned by do, repeatedly with --watch.
func (a *app) list(c *cobra.Command, args []string, do lister) error {
	format, err := show.ParseFormat(a.format)
	if err != nil {
		return err
	}
	if a.interval < 100*time.Millisecond {
		return fmt.Errorf("--interval %v: use 100ms or more", a.interval)
	}
	if err := a.open(c); err != nil {
		return err
	}
	filter := ""
	if len(args) > 0 {
		filter = args[0]
	}
	for {
		err := a.listOnce(c.Context(), filter, format, do)
		switch {
		case !a.watch:
			return err
		case err != nil && c.Context().Err() == nil:
			a.note("%s", a.text(err)) // the store may be back next time
		}
		select {
		case <-c.Context().Done():
			return nil // the usual way to stop it
		case <-time.After(a.interval):
		}
	}
}

func (a *app) listOnce(ctx context.Context, filter string, format show.Format, do lister) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	table, err := do(ctx, filter)
	if err != nil {
		return err
	}
	if a.state != "" {
		if err := table.Keep("state", a.state); err != nil {
			return err
		}
	}
	if a.sort != "" {
		if err := table.Sort(a.sort); err != nil {
			return fmt.Errorf("--sort: %w", err)
		}
	}
	width, terminal := widthOf(a.Out)
	table.Colour = terminal && a.Getenv("TERM") != "dumb" && a.Getenv("NO_COLOR") == ""
	if a.watch && terminal && a.Getenv("TERM") != "dumb" {
		fmt.Fprint(a.Out, emptyScreen)
	}
	return table.Print(a.Out, format, width)
}

// widthOf returns the width of a terminal in characters, or 0 if unknown.
func widthOf(w any) (width int, terminal bool) {
	file, ok := w.(term.File)
	if !ok || !term.IsTerminal(file.Fd()) {
		return 0, false
	}
	width, _, _ = term.GetSize(file.Fd())
	return width, true
}
