package commands

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tickslot/tickslot/dlock/driver"
)

// takes returns the Args of a command. It accepts the arguments named in Use: all of them, or as
// few as least.
func takes(least int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		names := strings.Fields(c.Use)[1:]
		switch {
		case len(args) < least:
			return fmt.Errorf("%s is missing: %s", names[len(args)], usage(c))
		case len(args) > len(names):
			return fmt.Errorf("unexpected argument %q: %s", args[len(names)], usage(c))
		}
		return nil
	}
}

// usage describes how to write a command, and where to find its help.
func usage(c *cobra.Command) string {
	_, names, _ := strings.Cut(c.Use, " ")
	return fmt.Sprintf("use \"%s\" (%s --help)", strings.TrimSpace(c.CommandPath()+" "+names), c.CommandPath())
}

// flagError describes what is wrong with a flag.
func flagError(c *cobra.Command, err error) error {
	text := err.Error()
	if c.Name() == "limit" && strings.HasPrefix(text, "unknown shorthand flag: '") &&
		strings.ContainsAny(text[len("unknown shorthand flag: '"):][:1], "0123456789") {
		return fmt.Errorf("a limit cannot be below 0: use a number from 0 to %d, or reset", driver.MaxSlots)
	}
	return fmt.Errorf("%s (%s --help has all flags)", text, c.CommandPath())
}

// completionTimeout bounds the calls of a completion to a store, because the shell waits for it.
const completionTimeout = 2 * time.Second

// completes makes a shell complete the first argument of a command with the names that the store
// knows, or with nothing if the store does not answer.
func (a *app) completes(c *cobra.Command, names func(ctx context.Context) []string) *cobra.Command {
	c.ValidArgsFunction = func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 || a.open(c) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
		defer cancel()
		return names(ctx), cobra.ShellCompDirectiveNoFileComp
	}
	return c
}

// timerNames returns the names that the registry knows, and none after an error.
func (a *app) timerNames(ctx context.Context) []string {
	s, err := a.snapshot(ctx)
	if err != nil {
		return nil
	}
	var names []string
	for _, t := range s.Timers() {
		names = append(names, t.Name)
	}
	return names
}

// names returns the names that a target's command accepts, and none after an error.
func (t *target) names(ctx context.Context) []string {
	if !t.durable && !t.schedule {
		return t.timerNames(ctx)
	}
	var names []string
	if t.store.Durable == nil {
		return nil
	}
	if t.schedule {
		list, _ := t.store.Durable.Schedules(ctx) // without an answer, nothing is completed
		for _, s := range list {
			names = append(names, s.Name)
		}
		return names
	}
	list, _ := t.store.Durable.Handlers(ctx) // without an answer, nothing is completed
	for _, h := range list {
		if h.Name != "" {
			names = append(names, h.Name)
		}
	}
	return names
}
