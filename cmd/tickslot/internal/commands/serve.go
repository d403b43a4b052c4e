package commands

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/tickslot/tickslot/cmd/tickslot/internal/serve"
	"github.com/tickslot/tickslot/dlock"
)

// A server is the command that serves the page.
type server struct {
	*app
	options   serve.Options
	users     string
	cert, key string
}

func (a *app) serve() *cobra.Command {
	s := &server{app: a}
	c := &cobra.Command{Use: "serve", Short: "Serve the operator's page", GroupID: groupView, Args: takes(0),
		Long: "The page of the fleet, at /, for browsers and, with Accept: application/json, for programs; the\n" +
			"metrics of the fleet for Prometheus at /metrics; and the probes /livez and /readyz. It is read-only\n" +
			"unless --control is given: then users can pause, limit, trigger and cancel what runs. Payloads of\n" +
			"runs and messages, and headers, are shown only with --payloads.\n\n" +
			"Users log in by HTTP Basic, with a name and a password of the file --users (lines user:hash of\n" +
			"\"htpasswd -B\"), or with TICKSLOT_USER and TICKSLOT_PASSWORD. Without users only this machine may\n" +
			"look. Probes need no log-in, and then tell no details. A browser that reaches the page by a name\n" +
			"needs --host with it. Passwords need TLS: --tls-cert and --tls-key, or a proxy that has it.",
		Example: "  tickslot serve\n  tickslot serve --listen :8443 --users /etc/tickslot/users --control --host " +
			"ops.example.com --tls-cert ops.pem --tls-key ops.key",
		RunE: func(c *cobra.Command, _ []string) error { return s.run(c) },
	}
	f := c.Flags()
	f.StringVar(&s.options.Listen, "listen", "127.0.0.1:8080", "`address` to listen on")
	f.StringSliceVar(&s.options.Hosts, "host", nil, "host `name` that browsers use")
	f.StringVar(&s.users, "users", "", "`file` with users and their passwords, as of \"htpasswd -B\"")
	f.BoolVar(&s.options.Control, "control", false, "let users make changes")
	f.BoolVar(&s.options.Payloads, "payloads", false, "show payloads and headers, too")
	f.StringVar(&s.cert, "tls-cert", "", "`file` with the certificate of this server, in PEM")
	f.StringVar(&s.key, "tls-key", "", "`file` with the key of --tls-cert, in PEM")
	c.MarkFlagsRequiredTogether("tls-cert", "tls-key")
	return c
}

func (s *server) run(c *cobra.Command) error {
	if err := s.readFiles(); err != nil {
		return err
	}
	o := &s.options
	if err := o.Check(); err != nil {
		return err
	}
	if err := s.open(c); err != nil {
		return err
	}
	if err := s.look(c.Context()); err != nil {
		return err
	}
	if o.Open() {
		s.note("passwords go over the network as they are: use --tls-cert and --tls-key, or listen on 127.0.0.1 " +
			"behind a proxy with TLS")
	}
	o.Environment, o.Registry, o.Locks = s.environment, s.store.Registry, s.store.Locks
	o.Logger = slog.New(slog.NewTextHandler(s.Err, nil))
	o.Ready = func(url string) {
		may := "it only shows"
		if o.Control {
			may = "users can make changes"
		}
		fmt.Fprintf(s.Out, "%s shows %s; %s\n", url, s.store.Name, may)
	}
	return serve.Run(c.Context(), *o)
}

// readFiles reads the users who may log in, and the certificate.
func (s *server) readFiles() (err error) {
	name, password := s.Getenv("TICKSLOT_USER"), s.Getenv("TICKSLOT_PASSWORD")
	switch {
	case s.users != "" && name+password != "":
		return errors.New("both --users and TICKSLOT_USER or TICKSLOT_PASSWORD are set: use one of them")
	case s.users != "":
		s.options.Users, err = serve.ReadUsers(s.users)
	case name != "" && password != "":
		s.options.Users, err = serve.OneUser(name, password)
	case name+password != "":
		return errors.New("one of TICKSLOT_USER and TICKSLOT_PASSWORD is not set: set both, or use --users FILE")
	}
	if err != nil || s.cert == "" {
		return err
	}
	pair, err := tls.LoadX509KeyPair(s.cert, s.key)
	if err != nil {
		return errors.New("--tls-cert and --tls-key are not a certificate and its key, in PEM, or cannot be read")
	}
	s.options.Certificate = &pair
	return nil
}

// look determines which parts the store has. A part that does not answer is still served, because
// it may recover.
func (s *server) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if s.options.Control {
		if err := s.checkEnvironment(ctx); err != nil {
			return err
		}
	}
	if _, err := s.snapshot(ctx); errors.Is(err, dlock.ErrSetup) {
		return err
	} else if err != nil {
		s.note("the store does not answer yet: %s", s.text(err))
	}
	s.options.Durable, s.options.Outbox = s.store.Durable, s.store.Outbox
	for _, part := range s.store.Parts {
		check, err := s.store.CheckTables(ctx, part)
		if err != nil || !check.Missing {
			continue
		}
		switch part.Name {
		case "durable":
			s.options.Durable = nil
		case "outbox":
			s.options.Outbox = nil
		}
	}
	return nil
}
