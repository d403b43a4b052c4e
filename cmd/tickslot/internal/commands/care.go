package commands

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/tickslot/tickslot/cmd/tickslot/internal/stores"
)

func (a *app) migrate() *cobra.Command {
	var only []string
	parent := &cobra.Command{Use: "migrate", Short: "Create, print or check tables", GroupID: groupCare,
		Args: cobra.NoArgs,
		Long: "Tables are those of locks, the registry, durable runs (Postgres and SQLite) and the outbox. Redis " +
			"has\n" +
			"none. What is there is not harmed, and any number of hosts may do the same at the same time.",
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
						a.note("%s: %v", part.Name, err)
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
				fmt.Fprintf(a.Out, "%s: its tables are as this version needs them\n", part.Name)
			}
			return err
		})
	add("print", "Print the statements, for those who apply their own", "  tickslot migrate print --only outbox > "+
		"outbox.sql",
		func(_ context.Context, part stores.Part) error {
			statements, err := part.Schema()
			for _, s := range statements {
				fmt.Fprintln(a.Out, strings.TrimRight(strings.TrimSpace(s), ";")+";")
			}
			return err
		})
	add("validate", "Check that the tables are as this version needs them", "  tickslot migrate validate",
		func(ctx context.Context, part stores.Part) error {
			err := part.Verify(ctx)
			if err == nil {
				fmt.Fprintf(a.Out, "%s: its tables are as this version needs them\n", part.Name)
			}
			return err
		})
	return parent
}

// choose returns the parts that are named, or all.
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

func healthcheck() *cobra.Command {
	var url string
	var timeout time.Duration
	c := &cobra.Command{Use: "healthcheck", Short: "Ask a host whether it is well", GroupID: groupCare,
		Args: cobra.NoArgs,
		Long: "The exit code is 0 if the URL answers with a status of 2xx, else 1: for images without curl. Ask\n" +
			"/livez of package health, not /readyz: a container is not restarted for a store that is down.",
		Example: "  HEALTHCHECK CMD [\"tickslot\", \"healthcheck\", \"--url\", \"http://localhost:8080/livez\"]",
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), timeout)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				return errors.New("--url is no URL: use http://localhost:8080/livez")
			}
			client := &http.Client{CheckRedirect: func(*http.Request,
				[]*http.Request) error {
				return http.ErrUseLastResponse
			}}
			defer client.CloseIdleConnections()
			answer, err := client.Do(r)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			if answer.StatusCode/100 != 2 {
				return fmt.Errorf("the host answers %s", answer.Status)
			}
			return nil
		}}
	c.Flags().StringVar(&url, "url", "http://localhost:8080/livez", "`URL` to ask")
	c.Flags().DurationVar(&timeout, "timeout", 3*time.Second, "how long the answer may take")
	return c
}

func man() *cobra.Command {
	return &cobra.Command{Use: "man FOLDER", Short: "Write manual pages", GroupID: groupCare, Args: cobra.ExactArgs(1),
		Example: "  tickslot man /usr/local/share/man/man1",
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			c.Root().DisableAutoGenTag = true // a date would make each build another one
			return doc.GenManTree(c.Root(), &doc.GenManHeader{Title: "TICKSLOT", Section: "1", Source: "tickslot"},
				args[0])
		}}
}
