package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/guard"
)

const (
	// verifyTimeout bounds the first check of the tables. Creating them may take longer.
	verifyTimeout = 5 * time.Second
	// graces is the total time that parts may take beyond their drain timeouts: CancelGrace and
	// HookGrace for timers, runs and deliveries, the grace period for requests, and the registry's
	// last write.
	graces = 20 * time.Second
)

// Run runs the service until ctx ends or a part fails. First it creates or verifies the tables and
// asks the registry whether this process may begin (Config.Environment). Then it starts the given
// parts, such as a tickslot.Server, and after them timers, worker and relay. When ctx ends, timers,
// worker and relay drain at the same time. When they have ended, the given parts stop, and finally
// the registry.
//
// The server of probes and page starts only when the tables exist, so on a new database it briefly
// refuses connections. If the database cannot be reached, everything starts nevertheless, and each
// part behaves as in an outage. If tables turn out to be missing later, the part that discovers it
// fails, and Run returns its error: start the program again.
//
// The error names each failed part, the first failure first. It matches dlock.ErrSetup if a right,
// a table, or an option needs to be set up. Run closes what the stores have opened. Call it once.
func (s *Service) Run(ctx context.Context, parts ...tickslot.Part) error {
	return errors.Join(s.run(ctx, parts), s.Close())
}

func (s *Service) run(ctx context.Context, parts []tickslot.Part) error {
	if ctx == nil {
		return errors.New("service: the context is nil: use context.Background()")
	}
	if err := errors.Join(s.pages.faults()...); err != nil {
		return fmt.Errorf("service: %w", err)
	}
	work := s.work()
	if len(work) == 1 && len(parts) == 0 && len(s.timers.Status().Timers) == 0 {
		return errors.New("service: there is nothing to run: register a timer, a handler, a schedule or a sink, or " +
			"give Run a part of your own, such as tickslot.Server")
	}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	g := &gate{service: s, open: make(chan struct{})}
	all := append([]tickslot.Part{
		tickslot.Named("registry", tickslot.PartFunc(func(ctx context.Context) error {
			err := s.registry.Run(ctx)
			if refusal := g.refusal.Load(); refusal != nil && errors.Is(err, *refusal) {
				return nil // the gate has already returned this error
			}
			return err
		})),
		tickslot.Named("admission", g),
	}, parts...)
	all = append(all, tickslot.Named("pages", tickslot.PartFunc(s.pages.run)), tickslot.Named("work", work))
	return tickslot.Runner{DrainTimeout: s.config.PreStopDelay + s.config.DrainTimeout + graces}.Run(ctx, all...)
}

// work returns the parts that take work, without parts that have nothing to do.
func (s *Service) work() together {
	work := together{"timers": s.timers}
	s.registry.Add(s.timers)
	if s.hasRuns() {
		work["durable runs"] = s.worker
		s.registry.Add(s.worker)
	}
	if s.relay != nil {
		work["outbox"] = s.relay
		s.registry.Add(s.relay)
	}
	return work
}

func (s *Service) hasRuns() bool {
	if s.worker == nil {
		return false
	}
	status := s.worker.Status()
	return len(status.Handlers) > 0 || len(status.Schedules) > 0 || s.worker.Check() != nil
}

// Migrate creates or upgrades the tables of all parts, as Run does without NoMigrate. It is for
// programs and tests that need the tables before Run or without it.
func (s *Service) Migrate(ctx context.Context) error {
	var faults []error
	for name, store := range s.stores.list() {
		if c, ok := store.(checker); ok {
			if err := c.Migrate(ctx); err != nil {
				faults = append(faults, fmt.Errorf("service: the tables of %s: %w", name, err))
			}
		}
	}
	return errors.Join(faults...)
}

// prepare creates or verifies the tables.
func (s *Service) prepare(ctx context.Context) error {
	look, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	stores := s.stores.list()
	for _, name := range slices.Sorted(maps.Keys(stores)) {
		store, ok := stores[name].(checker)
		if !ok {
			continue
		}
		err := store.Verify(look)
		if guard.Is(err, dlock.ErrSetup) && !s.config.NoMigrate {
			err = store.Migrate(ctx)
		}
		switch {
		case err == nil:
		case guard.Is(err, dlock.ErrSetup):
			return fmt.Errorf("service: the tables of %s: %w", name, err)
		case ctx.Err() != nil:
			return nil // the caller also notices that ctx has ended
		default:
			s.config.Logger.Warn("service: the tables could not be verified: the parts start anyway", "tables", name,
				"err", err)
			return nil
		}
	}
	return nil
}

// A gate opens once the registry has not refused this process.
type gate struct {
	service *Service
	open    chan struct{}
	refusal atomic.Pointer[error]
}

// Running returns a channel that is closed when this process is admitted or the registry does not
// answer.
func (g *gate) Running() <-chan struct{} { return g.open }

func (g *gate) Run(ctx context.Context) error {
	inside, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	stop, err := g.service.registry.Admit(inside, refuse)
	if err != nil {
		g.refusal.Store(&err)
		return err
	}
	defer stop()
	close(g.open)
	<-inside.Done()
	if ctx.Err() != nil {
		return nil
	}
	err = context.Cause(inside)
	g.refusal.Store(&err)
	return err
}

// together is a set of parts that start and drain at the same time.
type together map[string]tickslot.Part

// Run runs the parts until ctx ends or one of them returns.
func (t together) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type end struct {
		name string
		err  error
	}
	ends := make(chan end, len(t))
	for name, part := range t {
		returned := guard.Go(name, func() error { return part.Run(ctx) })
		go func() { ends <- end{name, <-returned} }()
	}
	var faults []error
	for range t {
		e := <-ends
		switch {
		case e.err != nil:
			faults = append(faults, fmt.Errorf("%s: %w", e.name, e.err))
		case ctx.Err() == nil:
			faults = append(faults, fmt.Errorf("%s returned before it was stopped", e.name))
		}
		cancel()
	}
	return errors.Join(faults...)
}
