package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/clustertimer"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/internal/mask"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/timer"
)

// defaultDrainTimeout is the default of Config.DrainTimeout.
const defaultDrainTimeout = 30 * time.Second

// Config holds the settings of a Service. The zero value is valid. The first fields apply to all
// parts. Each part also has its own Config, and a field set there takes precedence. New returns all
// faults at once.
type Config struct {
	// Name distinguishes this application from others in the same database or on the same Redis
	// server: the names of its tables or keys begin with it. Services with the same Name form one
	// fleet. At most 20 lowercase letters, digits and underscores, starting with a letter. Default
	// "": the default names of each store, which the command line also uses.
	Name string
	// Schema is the schema of the tables, on Postgres only. Default "public".
	Schema string
	// Environment is a name such as "production" or "staging". If a live host with a different one
	// uses the same tables, Run starts nothing and returns an error. At most 64 bytes. Default "":
	// no check.
	Environment string
	// TimersOnly leaves out durable runs and the outbox, and their tables. Default false.
	TimersOnly bool
	// NoMigrate makes Run verify the tables instead of creating them. Set it if you apply your own
	// migrations. Default false.
	NoMigrate bool

	// PreStopDelay is how long Run continues after its context has ended, while /readyz already
	// fails, so that load balancers stop sending requests. Default 0.
	PreStopDelay time.Duration
	// DrainTimeout is how long runs and deliveries may then continue before their contexts are
	// canceled. Run returns at most 30 s later. Default 30 s.
	DrainTimeout time.Duration
	// Holder identifies this process in the store, in logs and on the page. Default: host name,
	// process id and a random part.
	Holder dlock.Holder
	// Logger receives what an operator should see, from all parts. Default slog.Default().
	Logger *slog.Logger
	// Registerer receives the metrics of all parts. Default: a registry that only Metrics serves.
	Registerer prometheus.Registerer

	// Timers, Worker, Relay and Registry are the settings of the parts. The service sets their
	// stores. It runs a relay if Relay has a sink, and a worker if the worker has a handler or a
	// schedule. Default: the defaults of each.
	Timers   timer.Config
	Worker   durable.Config
	Relay    outbox.RelayConfig
	Registry cluster.Config
}

// Stores hold the shared state of the parts. Packages pgservice, sqliteservice and redisservice
// create them. Locks and Registry are required. If Runs or Outbox is nil, the service runs without
// that part.
//
// If a store has the methods Migrate(ctx) error and Verify(ctx) error, Run migrates or verifies it.
// If it has Close() error, Run closes it at the end.
type Stores struct {
	Locks    dlock.DistributedLock
	Registry cluster.Store
	Runs     *durable.Store
	Outbox   *outbox.Outbox
}

// list returns the stores that are set, keyed by the names that errors use.
func (s Stores) list() map[string]any {
	all := map[string]any{"locks": s.Locks, "registry": s.Registry}
	if s.Runs != nil {
		all["durable runs"] = s.Runs
	}
	if s.Outbox != nil {
		all["outbox"] = s.Outbox
	}
	return all
}

// A Service holds the parts of a program. Its methods may be called from any goroutine.
type Service struct {
	config   Config
	stores   Stores
	gatherer prometheus.Gatherer
	registry *cluster.Registry
	locks    dlock.DistributedLock // wrapped, so that events are reported to the registry
	timers   *timer.Scheduler
	worker   *durable.Worker // nil without a store
	relay    *outbox.Relay   // nil without a store or a sink
	pages    pages
}

// New assembles a service on any stores, or returns every fault of the settings. It starts nothing
// and does not call the stores. For tests, pass in-memory stores: memlock.New,
// cluster.NewMemoryStore, durabletest.NewStore and outboxtest.New.
func New(stores Stores, config Config, timers ...timer.Timer) (*Service, error) {
	s := &Service{stores: stores}
	faults := config.check(stores)
	if config.Holder == (dlock.Holder{}) {
		config.Holder = dlock.NewHolder()
	}
	config.Logger = mask.Logger(config.Logger)
	orDefault(&config.DrainTimeout, defaultDrainTimeout)
	if config.Registerer == nil {
		config.Registerer = prometheus.NewRegistry()
	}
	s.gatherer = prometheus.DefaultGatherer
	if g, ok := config.Registerer.(prometheus.Gatherer); ok {
		s.gatherer = g
	}
	config.share()
	s.config = config
	if err := errors.Join(append(faults, s.assemble(timers))...); err != nil {
		return nil, fmt.Errorf("service: %w", errors.Join(err, s.Close()))
	}
	return s, nil
}

func (c Config) check(stores Stores) (faults []error) {
	if c.Name != checkedName(c.Name) {
		faults = append(faults, fmt.Errorf("Config.Name: %.60q: use up to %d small letters, digits and _, "+
			"and a letter first", c.Name, maxName))
	}
	for field, d := range map[string]time.Duration{"PreStopDelay": c.PreStopDelay, "DrainTimeout": c.DrainTimeout} {
		if d < 0 {
			faults = append(faults, fmt.Errorf("the %s of Config is negative: %v", field, d))
		}
	}
	if stores.Locks == nil || stores.Registry == nil {
		faults = append(faults, errors.New("Stores: Locks and Registry are required"))
	}
	if c.Timers.Store != nil || c.Registry.Store != nil || c.Registry.Locks != nil || c.Relay.Decorate != nil {
		faults = append(faults, errors.New("Config: Timers.Store, Registry.Store, Registry.Locks and Relay.Decorate "+
			"are set by the service: leave them out"))
	}
	if stores.Outbox == nil && c.hasSink() {
		faults = append(faults, errors.New("Config.Relay: it has a sink, but there is no outbox with TimersOnly "+
			"or on Redis"))
	}
	return faults
}

func (c Config) hasSink() bool { return len(c.Relay.Sinks) > 0 || c.Relay.DefaultSink != nil }

// TableName returns the table name for a store in Stores, such as "billing_locks" for the kind
// "locks" and the Name "billing". Without a Name it returns "", which stands for the store's
// default.
func (c Config) TableName(kind string) string {
	if c.Name == "" {
		return ""
	}
	return c.Name + "_" + kind
}

const maxName = 20

// checkedName returns name if it is a valid Config.Name, and otherwise "".
func checkedName(name string) string {
	for i, r := range name {
		if !(r >= 'a' && r <= 'z' || i > 0 && (r >= '0' && r <= '9' || r == '_')) || i >= maxName {
			return ""
		}
	}
	return name
}

// share copies the common settings into the settings of the parts.
func (c *Config) share() {
	name := c.Holder.String()
	orDefault(&c.Registry.Holder, c.Holder)
	orDefault(&c.Timers.Holder, c.Holder)
	orDefault(&c.Relay.Holder, c.Holder)
	orDefault(&c.Relay.Name, name)
	orDefault(&c.Worker.Name, name)
	orDefault(&c.Registry.Environment, c.Environment)
	for _, d := range []*time.Duration{&c.Timers.PreStopDelay, &c.Worker.PreStopDelay} {
		orDefault(d, c.PreStopDelay)
	}
	for _, d := range []*time.Duration{&c.Timers.DrainTimeout, &c.Worker.DrainTimeout, &c.Relay.DrainTimeout} {
		orDefault(d, c.DrainTimeout)
	}
	for _, l := range []**slog.Logger{&c.Timers.Logger, &c.Worker.Logger, &c.Relay.Logger, &c.Registry.Logger} {
		orDefault(l, c.Logger)
	}
	for _, r := range []*prometheus.Registerer{&c.Timers.Registerer, &c.Worker.Registerer, &c.Relay.Registerer,
		&c.Registry.Registerer} {
		if *r == nil {
			*r = c.Registerer
		}
	}
}

func orDefault[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

// assemble creates the parts. It returns the faults of all parts that could be checked.
func (s *Service) assemble(timers []timer.Timer) error {
	if s.stores.Locks == nil || s.stores.Registry == nil {
		return nil // the fault was already reported
	}
	var faults [4]error
	c := s.config
	c.Registry.Store, c.Registry.Locks = s.stores.Registry, s.stores.Locks
	s.registry, faults[0] = cluster.New(c.Registry)
	c.Timers.Store = s.stores.Locks
	if s.registry != nil {
		s.locks = s.registry.Decorate(s.stores.Locks)
		c.Timers.Store, c.Timers.Hooks = s.locks, clustertimer.Hooks(s.registry, c.Timers.Hooks)
		c.Relay.Decorate = s.registry.Decorate
	}
	s.timers, faults[1] = timer.New(c.Timers, timers...)
	if s.stores.Runs != nil {
		s.worker, faults[2] = durable.NewWorker(s.stores.Runs, c.Worker)
	}
	if s.stores.Outbox != nil && c.hasSink() {
		s.relay, faults[3] = outbox.NewRelay(s.stores.Outbox, c.Relay)
	}
	return errors.Join(faults[:]...)
}

// Timers returns the scheduler. Use it to register, trigger and change timers.
func (s *Service) Timers() *timer.Scheduler { return s.timers }

// Worker returns the worker for durable runs, or nil if the service has no store for them. Add its
// handlers and schedules before Run.
func (s *Service) Worker() *durable.Worker { return s.worker }

// Relay returns the relay, or nil if Config.Relay has no sink.
func (s *Service) Relay() *outbox.Relay { return s.relay }

// Registry returns the registry of the fleet.
func (s *Service) Registry() *cluster.Registry { return s.registry }

// Locks returns the store of locks, for your own mutexes and elections (dlock.NewSession). The
// registry shows their leases.
func (s *Service) Locks() dlock.DistributedLock { return s.locks }

// Runs returns the store of durable runs, or nil if there is none.
func (s *Service) Runs() *durable.Store { return s.stores.Runs }

// Outbox returns the outbox, or nil if there is none.
func (s *Service) Outbox() *outbox.Outbox { return s.stores.Outbox }

// Close closes what the stores have opened. Run does so when it returns; call Close only if you do
// not call Run.
func (s *Service) Close() error {
	var faults []error
	for name, store := range s.stores.list() {
		if c, ok := store.(interface{ Close() error }); ok {
			if err := c.Close(); err != nil {
				faults = append(faults, fmt.Errorf("service: closing the store of %s: %w", name, err))
			}
		}
	}
	return errors.Join(faults...)
}

// errNoRuns is the error for durable runs without a store.
var errNoRuns = errors.New("service: there are no durable runs with TimersOnly or on Redis")

var errNoOutbox = errors.New("service: there is no outbox with TimersOnly or on Redis")

// A checker is a store with tables.
type checker interface {
	Migrate(ctx context.Context) error
	Verify(ctx context.Context) error
}
