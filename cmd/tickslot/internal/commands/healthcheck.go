package commands

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// healthcheck returns the command that calls a URL of a host, for images without curl.
func healthcheck() *cobra.Command {
	var url string
	var timeout time.Duration
	c := &cobra.Command{Use: "healthcheck", Short: "Ask a host whether it is healthy", GroupID: groupMaintain,
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
	c.Flags().DurationVar(&timeout, "timeout", 3*time.Second, "how long to wait for the answer")
	return c
}

func man() *cobra.Command {
	return &cobra.Command{Use: "man FOLDER", Short: "Write manual pages", GroupID: groupMaintain,
		Args:    takes(1),
		Example: "  tickslot man /usr/local/share/man/man1",
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			c.Root().DisableAutoGenTag = true // a date would make every build different
			return doc.GenManTree(c.Root(), &doc.GenManHeader{Title: "TICKSLOT", Section: "1", Source: "tickslot"},
				args[0])
		}}
}
