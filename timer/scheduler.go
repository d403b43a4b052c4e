package timer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/timer/control"
)

// A Scheduler runs the timers of one host. Its methods may be called from any goroutine.
type Scheduler struct {
	config   Config
	log      *lineLog
	changes  rateLimit // limits how many calls of Register and Update log at Info
	events   *events
	session  *dlock.Session // nil without a store
	metrics  *metrics       // nil without metrics
	registry *registry
	limits   *limits
	waiting  *waiting

	// The parts on the path of a tick, in order.
	planner  *planner
	gate     *gate
	acquirer *acquirer
	runner   *runner
	ledger   *ledger

	store     *storeWatch // not on the path; nil without a store
	triggers  *triggers   // not on the path; nil without a store
	announcer *announcer  // not on the path; nil without a store
}

// New checks the configuration and the timers, and returns all faults together. Each error names
// the timer, the field, the value and how to fix it. New starts nothing and does not call the
// store. It logs the limits of each timer at Info, including defaults. If there are more than
// twenty timers, those with the same limits share a line, and each has its own line at Debug.
func New(config Config, timers ...Timer) (*Scheduler, error) {
	config = config.withDefaults()
	err := config.check()
	s := &Scheduler{
		config:   config,
		log:      newLineLog(config.Logger),
		registry: newRegistry(config),
	}
	s.events = newEvents(config, s.log)
	s.ledger = &ledger{events: s.events}
	s.limits = newLimits(config, s.log, s.registry)
	var leaseErr error
	if config.Store == nil {
		leaseErr = config.lease().Validate()
	} else {
		s.store = newStoreWatch(config, s.log, s.events, s.registry, s.ledger)
		options := config.lease()
		options.Hooks.Called = s.store.called
		if config.Hooks.StoreCalled != nil {
			options.Hooks.Called = func(c dlock.StoreCall) { s.store.called(c); s.events.storeCalled(c) }
		}
		s.session, leaseErr = dlock.NewSession(config.Store, options)
	}
	if leaseErr != nil {
		err = errors.Join(err, fmt.Errorf("timer: Config: %w", leaseErr))
	}
	s.build()
	if config.Registerer != nil {
		s.ledger.metered, s.ledger.classic = true, config.ClassicHistograms
		s.metrics = newMetrics(s)
		if config.TimerLabel != nil {
			s.registry.labels = make(labels)
		}
	}
	list, registerErr := s.register(timers)
	err = errors.Join(err, registerErr)
	if err != nil {
		return nil, err
	}
	if s.metrics != nil {
		if err := config.Registerer.Register(s.metrics); err != nil {
			return nil,
				fmt.Errorf("timer: Config.Registerer: %w: give each scheduler its own registry, or wrap both with "+
					"prometheus.WrapRegistererWith",
					err)
		}
	}
	logRegistered(s.log, slog.LevelInfo, list, s.session != nil)
	return s, nil
}

// build creates the parts and connects them.
func (s *Scheduler) build() {
	s.waiting = s.registry.waiting
	s.runner = &runner{log: s.log, events: s.events, registry: s.registry, limits: s.limits, waiting: s.waiting,
		ledger: s.ledger, store: s.store, runHost: newRunHost(s.config.Holder)}
	s.planner = newPlanner(s.config, s.log, s.registry, s.ledger, s.waiting)
	s.acquirer = &acquirer{
		log: s.log, registry: s.registry, limits: s.limits, waiting: s.waiting,
		runner: s.runner, ledger: s.ledger, store: s.store, session: s.session,
	}
	s.gate = &gate{
		log: s.log, registry: s.registry, limits: s.limits, waiting: s.waiting,
		acquirer: s.acquirer, runner: s.runner, ledger: s.ledger, store: s.store,
	}
	s.planner.gate = s.gate
	if s.store != nil {
		s.triggers = s.newTriggers()
		s.gate.triggers, s.runner.triggers = s.triggers, s.triggers
		s.announcer = &announcer{registry: s.registry, session: s.session, store: s.store,
			base: func() context.Context { return s.runner.base }}
	}
}

// Control returns a Control for the fleet that shares this scheduler's store. Each of its calls to
// the store takes at most Config.StoreTimeout.
func (s *Scheduler) Control() *control.Control {
	return control.New(control.Config{Store: s.config.Store, Timeout: s.config.StoreTimeout, Logger: s.config.Logger,
		Local: func(timer string) (registered, localOnly bool) {
			set := s.registry.get(timer)
			return set != nil, set != nil && set.timer.LocalOnly
		}})
}
