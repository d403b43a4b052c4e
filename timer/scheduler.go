package timer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

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

	prodded chan struct{} // the store is back: the prober should look at once

	mu            sync.Mutex
	base          context.Context // of all runs: the values of Run's context, cancelled when draining takes too long
	attempts      int             // under way
	starts        []start         // of the batch at hand
	queue         queue           // who waits for an attempt to end
	remarked      struct{ faults, lost, ended, adopted few }
	without       int  // runs that started without the store since it last answered
	given         bool // Run has given up on the runs that are left
	breaker       breaker
	servers       map[string]*breaker // of a store of several servers, by what dlock.Sharder says; see shards.go
	quarantine    time.Time           // until when the store grants nothing, as it said
	ownFault      error               // what the store finds wrong with what the hosts keep there for themselves
	auditing      bool
	warned        map[string]time.Time // when each warning of an audit was last logged
	greeting      bool                 // Run waits for the store's first answer
	degraded      int                  // runs that go on without the store
	hosts         int                  // that were last seen to share the store, this one included; 0: not known
	probed        bool                 // the store has been asked once, whatever it said
	heardVersion  int64                // version of the overrides that this host has heard of
	learntVersion int64                // version that it has read
	pauses        bool                 // a timer may be paused

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
		prodded:  make(chan struct{}, 1),
	}
	if config.Lock == nil {
		s.hosts = 1
	}
	var leaseErr error
	if config.Lock == nil {
		leaseErr = config.lease().Validate()
	} else {
		s.store = newStoreWatch(s, config.Lock)
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
