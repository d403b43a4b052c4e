// Package commands implements the command line: its commands, their flags, and their output.
package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/show"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/stores"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/inert"
)

// Exit codes.
const (
	exitOK    = 0
	exitFault = 1 // the command failed, or found something that needs attention
	exitUsage = 2 // there is no such command or flag
)

// callTimeout bounds the calls of a command to a store.
const callTimeout = 10 * time.Second

// errFound is returned by commands that have already printed the fault.
var errFound = errors.New("something needs attention")

// IO holds the input and output of a command.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(name string) string
}

// An app is one run of the program.
type app struct {
	IO
	options     stores.Options
	environment string
	origin      driver.Cause
	format      string
	watch       bool
	sort, state string // of a list; "" if not set
	interval    time.Duration

	store    *stores.Store
	registry *cluster.Registry
	// unregistered says that no process writes to the registry, according to the last read.
	unregistered bool

	started bool // a command has started, so its flags were valid
}

// Run runs the command with the given arguments and returns its exit code.
func Run(ctx context.Context, args []string, std IO) int {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // keeps log lines of libraries out of the output
	a := &app{IO: std}
	root := a.root()
	root.SetArgs(args)
	root.SetOut(std.Out)
	root.SetErr(std.Err)
	err := root.ExecuteContext(ctx)
	if a.store != nil {
		_ = a.store.Close() // the command has finished
	}
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errFound):
		return exitFault
	}
	fmt.Fprintln(std.Err, "tickslot:", a.text(err))
	if !a.started {
		return exitUsage
	}
	return exitFault
}

// text returns the text of an error for display: on one line, with advice, and without passwords or
// control characters.
func (a *app) text(err error) string { return inert.Line(a.store.Hide(a.store.Say(err))) }

// note prints a remark on standard error, separate from the command's output.
func (a *app) note(format string, args ...any) {
	fmt.Fprintln(a.Err, "tickslot:", inert.Text(a.store.Hide(fmt.Sprintf(format, args...))))
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "tickslot",
		Short: "Show and control a fleet of timers",
		Long: `tickslot shows what a fleet of timers does, and controls it, through the store
that its hosts share. It needs no host to be reachable.

The store is named by one URL, in TICKSLOT_STORE or --store. Prefer TICKSLOT_STORE
for one with a password: others on the machine can read the flags of a process.

  redis://user:password@host:6379/0
  redis-sentinel://user:password@host1:26379,host2:26379/0?master=NAME
  redis-cluster://user:password@host1:6379,host2:6379
  postgres://user:password@host:5432/database
  mysql://user:password@host:3306/database
  sqlite:FILE

With TLS Redis is rediss://, rediss-sentinel:// and rediss-cluster://. Sentinels with a
user of their own take &sentinel_username=…&sentinel_password=…. On Postgres TLS is
?sslmode=verify-full, on MySQL ?tls=true. If this machine does not trust the CA of the
server's certificate, name its file with --ca or in TICKSLOT_CA; on Postgres and MySQL
that alone is enough for TLS. A server that wants a certificate of its clients gets that of
--cert and --key, or TICKSLOT_CERT and TICKSLOT_KEY.

Prefix, schema and names of tables have to be those that the hosts use.

The exit code is 0 if the command succeeded, 1 if the command failed or found something that
needs attention, 2 if there is no such command or flag.`,
		Example: `  export TICKSLOT_STORE=redis://localhost:6379/0
  tickslot timers ls
  tickslot explain report
  tickslot pause report --for 2h --note "the warehouse moves"
  tickslot doctor`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		Version:       versionText(),
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	f := root.PersistentFlags()
	f.StringVar(&a.options.URL, "store", "", "`URL` of the store; default $TICKSLOT_STORE")
	f.StringVar(&a.options.CA, "ca", "", "`file` with the CA of the server's certificate, in PEM; default $TICKSLOT_CA")
	f.StringVar(&a.options.Cert, "cert", "", "`file` with the certificate of this client, in PEM; default "+
		"$TICKSLOT_CERT")
	f.StringVar(&a.options.Key, "key", "", "`file` with the key of --cert, in PEM; default $TICKSLOT_KEY")
	f.StringVar(&a.options.Prefix, "prefix", "", "prefix of the locks")
	f.BoolVar(&a.options.Tagged, "tagged-keys", false, "the "+
		"hosts have redislock.KeysTagged, without being on a Cluster")
	f.String("registry-prefix", "", "prefix of the registry on Redis; default that of the locks")
	f.StringVar(&a.environment, "environment", "", "environment of the hosts: with another one alive, nothing is "+
		"changed")
	f.StringVar(&a.options.Schema, "schema", "", "schema of the tables")
	f.StringVar(&a.options.LocksTable, "locks-table", "", "table of the locks")
	f.StringVar(&a.options.RegistryTable, "registry-table", "", "table of the registry")
	f.StringVar(&a.options.DurableTable, "durable-table", "", "tables of durable runs")
	f.StringVar(&a.options.OutboxTable, "outbox-table", "", "tables of the outbox")

	root.AddGroup(&cobra.Group{ID: groupView, Title: "View:"}, &cobra.Group{ID: groupControl, Title: "Control:"},
		&cobra.Group{ID: groupMaintain, Title: "Maintain:"})
	a.addLists(root)
	root.AddCommand(a.top(), a.serve(), a.explain(), a.pause(), a.resume(), a.limit(), a.trigger(), a.cancel(),
		a.requeue(), a.migrate(), a.doctor(), healthcheck(), man(), a.version())
	root.SetCompletionCommandGroupID(groupMaintain)
	root.SetHelpCommandGroupID(groupMaintain)
	root.SetVersionTemplate("tickslot {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	a.noteStart(root)
	return root
}

// noteStart makes each command record that it has started. Before that, only its flags can be
// wrong.
func (a *app) noteStart(c *cobra.Command) {
	if run := c.RunE; run != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			a.started = true
			return run(c, args)
		}
	}
	for _, inner := range c.Commands() {
		a.noteStart(inner)
	}
}

// Groups of commands in the help text.
const (
	groupView     = "view"
	groupControl  = "control"
	groupMaintain = "maintain"
)

// open opens the store.
func (a *app) open(c *cobra.Command) error {
	for name, option := range map[string]*string{"STORE": &a.options.URL, "CA": &a.options.CA,
		"CERT": &a.options.Cert, "KEY": &a.options.Key} {
		if *option == "" {
			*option = a.Getenv("TICKSLOT_" + name)
		}
	}
	if f := c.Flags().Lookup("registry-prefix"); f.Changed {
		prefix := f.Value.String()
		a.options.RegistryPrefix = &prefix
	}
	var err error
	a.store, err = stores.Open(a.options)
	return err
}

// withStore returns a RunE that calls the store, for at most callTimeout.
func (a *app) withStore(run func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		if err := a.open(c); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(c.Context(), callTimeout)
		defer cancel()
		return run(ctx, args)
	}
}

// snapshot returns the state of the fleet.
func (a *app) snapshot(ctx context.Context) (*cluster.Snapshot, error) {
	s, err := a.readSnapshot(ctx)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// readSnapshot is like snapshot, but returns the last read even if the store does not answer. The
// result is never nil.
func (a *app) readSnapshot(ctx context.Context) (*cluster.Snapshot, error) {
	if a.registry == nil {
		registry, err := cluster.New(cluster.Config{Store: a.store.Registry, Locks: a.store.Locks,
			Environment: a.environment, SnapshotAge: time.Nanosecond, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return &cluster.Snapshot{}, err
		}
		a.registry = registry
	}
	began := time.Now().Round(0)
	s, err := a.registry.Snapshot(ctx)
	a.unregistered = err == nil && len(s.Hosts) == 0
	switch {
	case err == nil:
		return s, nil
	case s.MoreLeases && !s.ReadAt.Before(began) && ctx.Err() == nil:
		return s, nil // complete, except for leases beyond its limit, which warnMore reports
	}
	return s, err
}

// defaultBy returns the user who runs the command, as user@host.
func defaultBy() string {
	name := "unknown"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

func (a *app) formatFlags(c *cobra.Command) {
	c.Flags().StringVarP(&a.format, "output", "o", string(show.FormatTable), "table, wide, json or yaml")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(show.Formats, cobra.ShellCompDirectiveNoFileComp))
}
