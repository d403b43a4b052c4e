package timer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tickslot/tickslot/dlock"
)

const (
	// maxAttempts bounds the calls to the store that are under way; further ticks wait in line.
	maxAttempts = 64
)

// A Scheduler runs the timers of one host. Its methods may be called from any goroutine.
type Scheduler struct {
	config   Config
	log      *lineLog
	registry *registry
	planner  *planner
	store    *storeWatch    // nil: no store
	session  *dlock.Session // nil: no store
	metrics  *metrics       // nil: none
	ledger   ledger

	losses, endings, adoptions few

	mu       sync.Mutex
	base     context.Context // of all runs: the values of Run's context, cancelled when draining takes too long
	attempts int             // under way
	starts   []start         // of the batch at hand
	queue    queue           // who waits for an attempt to end
	given    bool            // Run has given up on the runs that are left

}

// New checks the configuration and the timers, and reports all faults at once, each naming the
// timer, the field, the value and how to mend it. It starts nothing and does not call the store. It
// logs the limits of each timer at Info, with what was left out filled in; of more than twenty
// timers those that have the same limits share a line, and each has its own at Debug.
func New(config Config, timers ...Timer) (*Scheduler, error) {
	config = config.withDefaults()
	err := config.check()
	s := &Scheduler{
		config:   config,
		log:      newLineLog(config.Logger.Handler()),
		registry: newRegistry(),
	}
	var leaseErr error
	if config.Lock == nil {
		leaseErr = config.lease().Validate()
	} else {
		s.store = newStoreWatch(config, s.log, s.registry, &s.ledger)
		options := config.lease()
		options.Hooks.Called = s.store.called
		s.session, leaseErr = dlock.NewSession(config.Lock, options)
	}
	if leaseErr != nil {
		err = errors.Join(err, fmt.Errorf("timer: Config: %w", leaseErr))
	}
	s.planner = newPlanner(config, s.log, s.registry, &s.ledger, s.arrive)
	entries, registerErr := s.register(timers)
	err = errors.Join(err, registerErr)
	if err != nil {
		return nil, err
	}
	if config.Registerer != nil {
		s.ledger.metered = true
		s.metrics = newMetrics(s)
		if s.store != nil {
			s.metrics.ofStore(s.store)
		}
		if err := config.Registerer.Register(s.metrics); err != nil {
			return nil, fmt.Errorf("timer: Config.Registerer: %w: give each scheduler its own registry, or wrap both with prometheus.WrapRegistererWith", err)
		}
	}
	s.logRegistered(entries)
	return s, nil
}

func (s *Scheduler) lock() { s.mu.Lock() }

func (s *Scheduler) unlock() {
	s.mu.Unlock()
	s.log.flush()
}
