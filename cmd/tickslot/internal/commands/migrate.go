package commands

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tickslot/tickslot/cmd/tickslot/internal/stores"
)

func (a *app) migrate() *cobra.Command {
	var only []string
	parent := &cobra.Command{Use: "migrate", Short: "Create, print or check tables", GroupID: groupMaintain,
		Args: cobra.NoArgs,
		Long: "Tables are those of locks, the registry, durable runs (Postgres and SQLite) and the outbox. Redis " +
			"has\n" +
			"none. Existing data is kept, and several hosts may do this at the same time.",
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	parent.PersistentFlags().StringSliceVar(&only, "only", nil, "parts: locks, registry, durable, outbox; default all")
	add := func(name, short, example string, do func(ctx context.Context, part stores.Part) error) {
		parent.AddCommand(&cobra.Command{Use: name, Short: short, Example: example, Args: cobra.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error {
				a.options.Create = name == "up"
				if err := a.open(c); err != nil {
					return err
				}
				parts, err := choose(a.store, only)
				if err != nil {
					return err
				}
				ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
				defer cancel()
				var failed error
				for _, part := range parts {
					if err := do(ctx, part); err != nil {
						a.note("%s: %s", part.Name, a.text(err))
						failed = errFound
					}
				}
				return failed
			}})
	}
	add("up", "Create or upgrade the tables", "  tickslot migrate up --only locks,registry",
		func(ctx context.Context, part stores.Part) error {
			err := part.Migrate(ctx)
			if err == nil {
				fmt.Fprintf(a.Out, "%s: its tables fit this version\n", part.Name)
			}
			return err
		})
	add("print", "Print the SQL statements, for your own migration tool", "  tickslot migrate print --only outbox > "+
		"outbox.sql",
		func(_ context.Context, part stores.Part) error {
			statements, err := part.Schema()
			for _, s := range statements {
				fmt.Fprintln(a.Out, strings.TrimRight(strings.TrimSpace(s), ";")+";")
			}
			return err
		})
	add("validate", "Check that the tables fit this version", "  tickslot migrate validate",
		func(ctx context.Context, part stores.Part) error {
			err := part.Verify(ctx)
			if err == nil {
				fmt.Fprintf(a.Out, "%s: its tables fit this version\n", part.Name)
			}
			return err
		})
	return parent
}

// choose returns the parts with the given names, or all parts if there are no names.
func choose(s *stores.Store, only []string) ([]stores.Part, error) {
	if len(s.Parts) == 0 {
		return nil, errors.New("there is nothing to migrate: Redis has no tables")
	}
	parts := s.Parts
	if len(only) > 0 {
		parts = slices.DeleteFunc(slices.Clone(parts), func(p stores.Part) bool {
			return !slices.Contains(only,
				p.Name)
		})
	}
	for _, name := range only {
		if !slices.ContainsFunc(parts, func(p stores.Part) bool { return p.Name == name }) {
			return nil, fmt.Errorf("--only %s: this store has no such part", name)
		}
	}
	return parts, nil
}
