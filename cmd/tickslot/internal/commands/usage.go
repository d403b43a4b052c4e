package commands

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tickslot/tickslot/dlock/driver"
)

// takes returns the Args of a command that takes what its Use names behind the command: from least
// to all of it.
func takes(least int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		names := strings.Fields(c.Use)[1:]
		switch {
		case len(args) < least:
			return fmt.Errorf("%s is missing: %s", names[len(args)], usage(c))
		case len(args) > len(names):
			return fmt.Errorf("%q is one too many: %s", args[len(names)], usage(c))
		}
		return nil
	}
}

// usage says how a command is written, and where its help is.
func usage(c *cobra.Command) string {
	_, names, _ := strings.Cut(c.Use, " ")
	return fmt.Sprintf("use \"%s\" (%s --help)", strings.TrimSpace(c.CommandPath()+" "+names), c.CommandPath())
}

// flagError says what is wrong with a flag.
func flagError(c *cobra.Command, err error) error {
	text := err.Error()
	if c.Name() == "limit" && strings.HasPrefix(text, "unknown shorthand flag: '") &&
		strings.ContainsAny(text[len("unknown shorthand flag: '"):][:1], "0123456789") {
		return fmt.Errorf("a limit cannot be below 0: use a number from 0 to %d, or reset", driver.MaxSlots)
	}
	return fmt.Errorf("%s (%s --help has all flags)", text, c.CommandPath())
}
