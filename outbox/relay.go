package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/lifecycle"
	"github.com/tickslot/tickslot/internal/retention"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

const (
	idleJitter = 0.2
	// layoutInterval is how often a relay reads the layout, which says how keys are distributed
	// over shards. A leading relay also gets the layout with every answer to Due.
	layoutInterval = 5 * time.Second
	// writeGrace is how long Run tries to write results at its end.
	writeGrace = 5 * time.Second
)

// A Relay delivers the messages of the shards that it leads. Create one with NewRelay. Its methods
// may be called from any goroutine.
type Relay struct {
	outbox *Outbox
	config RelayConfig
	topics []string // topics with a sink; nil means all topics
	store  store.Store
	events *events
	calls  *calls
	life   lifecycle.Life

	marker   *marker
	listener *listener
	sampler  *lifecycle.Sampler[sample]
	sweeper  *retention.Sweeper
	metrics  *metrics // nil without RelayConfig.Registerer
	counts   counts

	mu      sync.Mutex // used by all callers
	layout  store.Layout
	shards  map[int]*shard // shards that this relay leads
	stuckIn map[string]int // sink calls that ignore their contexts, by topic

	alone chan struct{} // full while the relay delivers a message that may have killed relays
}

// NewRelay returns a Relay, or an error with every fault of the outbox's options and of config. It
// starts nothing and does not call the database.
func NewRelay(box *Outbox, config RelayConfig) (*Relay, error) {
	config = config.withDefaults()
	if err := errors.Join(box.ready(context.Background()), config.check()); err != nil {
		return nil, err
	}
	r := &Relay{outbox: box, store: box.store, config: config, shards: map[int]*shard{}, stuckIn: map[string]int{},
		alone: make(chan struct{}, 1),
		life:  lifecycle.Life{Prefix: "outbox", Type: "Relay", Is: "relay is", CreatedAt: time.Now()}}
	if r.config.DefaultSink == nil && r.config.UnknownTopic == UnknownTopicWait {
		r.topics = []string{} // nil would mean all topics
		for topic := range r.config.Sinks {
			r.topics = append(r.topics, topic)
		}
		slices.Sort(r.topics)
	}
	r.events = newEvents(r.config)
	r.calls = newCalls(r.store.String(), r.config, r.events)
	r.marker = newMarker(r)
	r.listener = &listener{relay: r}
	r.sampler = newSampler(r)
	r.sweeper = newSweeper(r)
	if r.config.Registerer != nil {
		r.metrics = newMetrics(r)
		if err := r.config.Registerer.Register(r.metrics); err != nil {
			return nil, fmt.Errorf("outbox: RelayConfig.Registerer: %w: two relays at a time need two registries, or "+
				"prometheus.WrapRegistererWith", err)
		}
	}
	return r, nil
}

// sink returns the sink of a topic, or nil.
func (r RelayConfig) sink(topic string) Sink {
	if s := r.Sinks[topic]; s != nil {
		return s
	}
	return r.DefaultSink
}

// Run takes part in the election of each shard and delivers the messages of the shards that this
// host leads, until ctx ends. Then it starts no further delivery, waits for deliveries in progress,
// writes their results, and releases the shards, so that other hosts take over immediately. Run
// returns nil, or an error that names a sink or a hook that does not return, or that says how many
// results could not be written. The messages of unwritten results are delivered again. Run can be
// called only once.
//
// If the first answer of the database shows that it is not set up correctly, for example because
// Outbox.Migrate was not called, Run returns an error that matches dlock.ErrSetup. If the database
// does not answer, Run retries until it does.
//
// Before it starts anything, Run calls the function passed to AdmitBy, such as Admit of a
// cluster.Registry. If the function refuses this process, Run starts nothing and returns the error.
// If it refuses the process later, Run ends as if ctx had ended.
func (r *Relay) Run(ctx context.Context) error {
	if err := r.life.Begin(ctx); err != nil {
		return err
	}
	if r.metrics != nil {
		defer r.config.Registerer.Unregister(r.metrics)
	}
	return r.life.Work(ctx, r.run)
}

// AdmitBy makes Run call ask before it delivers anything. An error of ask keeps Run from starting,
// and a later call of refused stops it. Ready and Started return the error, too. Registry.Add of
// package cluster calls AdmitBy, so that a process connected to the database of another environment
// delivers nothing.
func (r *Relay) AdmitBy(ask func(ctx context.Context, refused func(error)) (stop func(), err error)) {
	r.life.AdmitBy(ask)
}

func (r *Relay) run(ctx context.Context) error {
	life, endLife := context.WithCancel(context.WithoutCancel(ctx))
	defer endLife()
	r.calls.Begin(life)
	r.life.Enter(lifecycle.Running)
	r.events.AskDebug()
	r.events.Log(slog.LevelInfo, "outbox: relay started", "relay", r.config.Name, "topics", strings.Join(r.topics, ","))
	r.outbox.add(r)
	defer r.outbox.remove(r)

	err := r.first(ctx)
	switch {
	case err == nil:
		err = r.work(ctx, endLife)
	case ctx.Err() != nil:
		err = nil
	default:
		err = fmt.Errorf("outbox: nothing was started: the database (%s) is not usable: %w", r.calls.Name(), err)
	}
	r.life.Enter(lifecycle.Stopped)
	if hook := r.events.Close(HookGrace); hook != "" {
		err = errors.Join(err, fmt.Errorf("outbox: the hook %s does not return", hook))
	}
	return err
}

// first verifies the tables and sets the layout. It retries until it succeeds, ctx ends, or the
// database reports that it is not set up correctly.
func (r *Relay) first(ctx context.Context) error {
	return lifecycle.FirstAnswer(ctx, dlock.ErrSetup, func() error {
		_, err := call(r.calls, opVerify, func(ctx context.Context) (none struct{}, err error) {
			return none, errors.Join(r.store.Verify(ctx), r.outbox.locks.get().Verify(ctx))
		})
		if err == nil {
			err = r.readLayout(r.config.Shards)
		}
		return err
	})
}

// work runs the parts until ctx ends, and then drains.
func (r *Relay) work(ctx context.Context, endLife func()) error {
	var locks dlock.DistributedLock = r.outbox.locks.get()
	if r.config.Decorate != nil {
		locks = r.config.Decorate(locks)
	}
	session, err := dlock.NewSession(locks, dlock.SessionOptions{TTL: r.config.TTL, Holder: r.config.Holder})
	if err != nil {
		return err
	}
	var asking, writing sync.WaitGroup
	asks, endAsks := context.WithCancel(r.calls.Life())
	writes, stopWriting := context.WithCancel(context.Background())
	defer endAsks()
	defer stopWriting()
	asking.Go(func() { r.sampler.Run(asks) })
	asking.Go(func() { r.sweeper.Run(asks, r.leadsFirst) })
	asking.Go(func() { r.listener.run(asks) })
	left := 0
	writing.Go(func() { left = r.marker.run(writes) })

	ended := make(chan time.Time, 1)
	defer context.AfterFunc(ctx, func() { ended <- time.Now() })()
	err = r.electAll(ctx, session) // waits for deliveries in progress
	draining := time.Now()
	select {
	case draining = <-ended:
	default:
	}
	r.life.Enter(lifecycle.Draining)
	endAsks()
	asking.Wait()
	grace, cancel := context.WithTimeout(context.Background(), writeGrace)
	defer cancel()
	r.marker.waitEmpty(grace)
	endLife()
	stopWriting()
	writing.Wait()
	if left > 0 {
		err = errors.Join(err, fmt.Errorf("outbox: the results of %d deliveries could not be written: these messages "+
			"are delivered again", left))
	}
	r.mu.Lock()
	topics := slices.Sorted(maps.Keys(r.stuckIn))
	r.mu.Unlock()
	if len(topics) > 0 {
		err = errors.Join(err, &StuckError{Topics: topics})
	}
	closing, done := context.WithTimeout(context.Background(), writeGrace)
	defer done()
	if e := session.Close(closing); e != nil {
		r.events.Log(slog.LevelWarn, "outbox: could not release the locks of the shards: they expire within a TTL",
			"err", e)
	}
	r.events.Log(slog.LevelInfo, "outbox: relay stopped", "relay", r.config.Name, "drain", time.Since(draining),
		"still_running", lifecycle.StillRunning(topics))
	return err
}

// wake makes the shards poll for messages immediately.
func (r *Relay) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.shards {
		s.wake()
	}
}
