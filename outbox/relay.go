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
	"github.com/tickslot/tickslot/internal/loop"
	"github.com/tickslot/tickslot/internal/retention"
	"github.com/tickslot/tickslot/leader"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

const (
	idleJitter = 0.2
	// layoutInterval is how often a relay asks how keys are spread over shards. One that leads is
	// told with every answer to Due.
	layoutInterval = 5 * time.Second
	// writeGrace is how long Run goes on at its end to write results.
	writeGrace = 5 * time.Second
	sweepBatch = 1000
	sweepPause = time.Second
)

// A Relay delivers messages, while it leads a shard. Make one with NewRelay. Its methods may be
// called from any goroutine.
type Relay struct {
	outbox *Outbox
	config RelayConfig
	topics []string // with a sink; nil: all
	store  store.Store
	events *events
	calls  *calls

	marker   *marker
	listener *listener
	sampler  *sampler
	sweeper  *retention.Sweeper
	metrics  *metrics // nil: nobody wants them
	counts   counts

	mu        sync.Mutex // of all callers
	faults    []error
	phase     phase
	changedAt time.Time // when the phase last changed
	layout    store.Layout
	shards    map[int]*shard // that this relay leads
	stuckIn   map[string]int // sinks that ignore their contexts, by topic
}

// A phase is where a relay is in its life.
type phase uint8

const (
	created phase = iota
	running
	draining
	stopped
)

func (p phase) String() string { return [...]string{"created", "running", "draining", "stopped"}[p] }

// NewRelay returns a relay. It starts nothing and does not call the database. What is wrong with
// the arguments Check says, and Run.
func NewRelay(box *Outbox, config RelayConfig) *Relay {
	r := &Relay{outbox: box, config: config.withDefaults(), shards: map[int]*shard{}, stuckIn: map[string]int{},
		changedAt: time.Now()}
	if err := r.config.check(); err != nil {
		r.faults = append(r.faults, err)
	}
	name := "none"
	switch {
	case box == nil || box.database.store == nil && box.database.fault == nil:
		r.faults = append(r.faults, errNoDatabase)
	case box.database.fault != nil:
		r.faults = append(r.faults, box.database.fault)
	default:
		r.store, name = box.database.store, box.database.store.String()
	}
	if r.config.DefaultSink == nil && r.config.UnknownTopic == TopicWait {
		r.topics = []string{} // not nil, which is all
		for topic := range r.config.Sinks {
			r.topics = append(r.topics, topic)
		}
		slices.Sort(r.topics)
	}
	r.events = newEvents(r.config)
	r.calls = &calls{name: name, timeout: r.config.CallTimeout, events: r.events, failing: map[string]error{},
		errors: map[string]uint64{}}
	r.marker = &marker{relay: r, news: make(chan struct{}, 1)}
	r.listener = &listener{relay: r}
	r.sampler = newSampler(r)
	r.sweeper = r.newSweeper()
	if r.config.Registerer != nil {
		r.metrics = newMetrics(r)
		if err := r.config.Registerer.Register(r.metrics); err != nil {
			r.faults = append(r.faults, fmt.Errorf("outbox: RelayConfig.Registerer: %w: two relays at a time need two "+
				"registries, or prometheus.WrapRegistererWith", err))
			r.metrics = nil
		}
	}
	return r
}

// sink returns the sink of a topic; nil: there is none.
func (r *Relay) sink(topic string) Sink {
	if s := r.config.Sinks[topic]; s != nil {
		return s
	}
	return r.config.DefaultSink
}

// Check returns everything that is wrong with the arguments of NewRelay. It does not call the
// database.
func (r *Relay) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.faults...)
}

// Run takes part in the election of each shard, and delivers the messages of those that this host
// leads, until ctx ends. Then it starts no delivery any more, waits for those under way, writes
// their results, and releases the shards, so that other hosts go on at once. It returns nil then,
// or an error that names a sink, or a hook, that does not return, or says how many results could
// not be written: these messages are delivered again. Run can be called once.
//
// It returns every fault that Check finds, and starts nothing then. It also returns an error if the
// database's first answer is that it is not set up right (an error that matches dlock.ErrSetup),
// such as that Outbox.Migrate is needed. A database that does not answer is asked again until it
// does.
func (r *Relay) Run(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	if err := r.Check(); err != nil {
		return err
	}
	if !r.setPhase(created, running) {
		return errors.New("outbox: Run was called before: make another Relay")
	}
	if r.metrics != nil {
		defer r.config.Registerer.Unregister(r.metrics)
	}
	life, endLife := context.WithCancel(context.WithoutCancel(ctx))
	defer endLife()
	r.calls.life = life
	r.events.askDebug()
	r.events.log(slog.LevelInfo, "outbox: relay started", "relay", r.config.Name, "topics", strings.Join(r.topics, ","))
	r.outbox.add(r)
	defer r.outbox.remove(r)

	err := r.first(ctx)
	switch {
	case err == nil:
		err = r.work(ctx, endLife)
	case ctx.Err() != nil:
		err = nil
	default:
		err = fmt.Errorf("outbox: nothing was started, because the database (%s) cannot serve: %w", r.calls.name, err)
	}
	r.setPhase(running, stopped)
	r.setPhase(draining, stopped)
	if hook := r.events.close(); hook != "" {
		err = errors.Join(err, fmt.Errorf("outbox: the hook %s does not return", hook))
	}
	return err
}

// first verifies the tables and sets the layout. It goes on until that has succeeded or ctx ends,
// unless the database says that it is not set up right.
func (r *Relay) first(ctx context.Context) error {
	for wait := firstCallWait; ; wait = min(2*wait, longestCallWait) {
		_, err := call(r.calls, opVerify, func(ctx context.Context) (none struct{}, err error) {
			return none, errors.Join(r.store.Verify(ctx), r.outbox.database.locks.Verify(ctx))
		})
		if err == nil {
			err = r.readLayout(r.config.Shards)
		}
		switch {
		case err == nil:
			return nil
		case isSetup(err):
			return err
		}
		if !sleep(ctx, loop.Jittered(wait, 0.3)) {
			return ctx.Err()
		}
	}
}

// readLayout asks for the layout, and sets the number of shards if want is not 0.
func (r *Relay) readLayout(want int) error {
	layout, err := call(r.calls, opLayout, func(ctx context.Context) (store.Layout, error) {
		return r.store.Layout(ctx, want)
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	changed := r.layout.Epoch != 0 && r.layout != layout
	r.layout = layout
	r.mu.Unlock()
	if changed {
		r.events.log(slog.LevelInfo, "outbox: the number of shards has changed", "shards", layout.Shards, "epoch",
			layout.Epoch)
	}
	return nil
}

func (r *Relay) currentLayout() store.Layout {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.layout
}

func isSetup(err error) (yes bool) {
	defer func() { _ = recover() }() // a driver's error may be anything
	return errors.Is(err, dlock.ErrSetup)
}

// sleep reports false if ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// work runs the parts until ctx ends, and drains.
func (r *Relay) work(ctx context.Context, endLife func()) error {
	session, err := dlock.NewSession(r.outbox.database.locks, dlock.SessionOptions{TTL: r.config.TTL})
	if err != nil {
		return err
	}
	var asking, writing sync.WaitGroup
	stop := make(chan struct{})
	asks, endAsks := context.WithCancel(r.calls.life)
	writes, stopWriting := context.WithCancel(context.Background())
	defer endAsks()
	defer stopWriting()
	asking.Go(func() { r.sampler.Run(stop) })
	asking.Go(func() { r.sweep(asks) })
	asking.Go(func() { r.listener.run(asks) })
	left := 0
	writing.Go(func() { left = r.marker.run(writes) })

	err = r.electAll(ctx, session)
	r.setPhase(running, draining)
	close(stop)
	endAsks()
	asking.Wait()
	grace, cancel := context.WithTimeout(context.Background(), writeGrace)
	defer cancel()
	r.marker.flush(grace)
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
		r.events.log(slog.LevelWarn, "outbox: the locks of the shards were not released: they expire within a TTL",
			"err", e)
	}
	return err
}

// electAll takes part in the elections of one layout after the other.
func (r *Relay) electAll(ctx context.Context, session *dlock.Session) error {
	for ctx.Err() == nil {
		if err := r.elect(ctx, session, r.currentLayout()); err != nil {
			return err
		}
	}
	return nil
}

// elect takes part in the elections of the shards of a layout, until ctx ends or the layout is
// another one.
func (r *Relay) elect(ctx context.Context, session *dlock.Session, layout store.Layout) error {
	term, end := context.WithCancel(ctx)
	defer end()
	errs := make([]error, layout.Shards)
	var electors sync.WaitGroup
	for i := range layout.Shards {
		electors.Go(func() {
			errs[i] = leader.Run(term, session, leader.Role{
				Name: r.roleOf(layout.Epoch), Max: layout.Shards, RetryInterval: r.config.RetryInterval,
				StopTimeout: r.config.DrainTimeout + 2*returnGrace, Logger: r.events.logger,
				Run: func(ctx context.Context, t *leader.Term) error { return r.lead(ctx, layout, t) },
			})
			if errs[i] != nil {
				end() // the others cannot do without it
			}
		})
	}
	electors.Go(func() {
		for r.currentLayout() == layout && sleep(term, loop.Jittered(layoutInterval, idleJitter)) {
			_ = r.readLayout(0) // a call that fails is counted, and the next one comes
		}
		end()
	})
	electors.Wait()
	return errors.Join(errs...)
}

// roleOf returns the name of what the relays compete for. Each layout has a name of its own.
func (r *Relay) roleOf(epoch int64) string {
	return fmt.Sprintf("%s:%d", r.outbox.database.role, epoch)
}

// lead delivers the messages of a shard for one term.
func (r *Relay) lead(ctx context.Context, layout store.Layout, term *leader.Term) error {
	if !r.othersHaveStopped(ctx, layout) {
		return nil
	}
	s := newShard(r, layout, term)
	r.mu.Lock()
	r.shards[term.Slot()] = s
	r.mu.Unlock()
	r.events.log(slog.LevelInfo, "outbox: this relay delivers", "shard", term.Slot(), "shards", layout.Shards, "fence",
		term.Fence())
	defer func() {
		r.mu.Lock()
		delete(r.shards, term.Slot())
		r.mu.Unlock()
	}()
	s.run(ctx)
	if s.changed {
		_ = r.readLayout(0)
	}
	return nil
}

// othersHaveStopped waits until no relay has a shard of another layout, so that a key is delivered
// by one at a time. It reports false if ctx has ended first. Nobody can start to deliver under an
// old layout meanwhile, because Due answers only under the current one.
func (r *Relay) othersHaveStopped(ctx context.Context, layout store.Layout) bool {
	prefix := "leader:" + r.outbox.database.role + ":"
	own := prefix + fmt.Sprint(layout.Epoch)
	for {
		held, err := call(r.calls, opLocks, func(ctx context.Context) (bool, error) {
			return anyHeld(ctx, r.outbox.database.locks, func(name string) bool {
				return strings.HasPrefix(name, prefix) && name != own
			})
		})
		if err == nil && !held {
			return true
		}
		if !sleep(ctx, loop.Jittered(min(r.config.RetryInterval, r.config.TTL/10), idleJitter)) {
			return false
		}
	}
}

// anyHeld reports whether one of the locks is held.
func anyHeld(ctx context.Context, locks dlock.Enumerator, which func(name string) bool) (bool, error) {
	after := ""
	for {
		page, err := locks.Enumerate(ctx, after, dlock.MaxPage)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(page.Leases, func(l dlock.LeaseInfo) bool {
			return which(l.Name) && l.ReleasedAgo == 0
		}) {
			return true, nil
		}
		if after = page.Next; after == "" {
			return false, nil
		}
	}
}

// wake has the shards look for messages now.
func (r *Relay) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.shards {
		s.wake()
	}
}

// setPhase reports false if the relay was not in the phase from.
func (r *Relay) setPhase(from, to phase) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.phase != from {
		return false
	}
	r.phase, r.changedAt = to, time.Now()
	return true
}

func (r *Relay) current() (phase, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.phase, r.changedAt
}

// told says what came of an attempt, once the database has it.
func (r *Relay) told(a attempt, counts bool) {
	m, outcome := a.message, Outcome(a.result.Outcome)
	line := func(more ...any) []any {
		line := append([]any{"message", ID(m.ID).String(), "topic", m.Topic, "key", m.Key, "attempt", m.Attempts + 1,
			"took", a.result.Took}, more...)
		if a.err != nil {
			line = append(line, "err", a.err)
		}
		return line
	}
	if !counts {
		r.events.log(slog.LevelInfo, "outbox: the result of a delivery does not count, because another relay has "+
			"delivered the message", line("outcome", string(outcome))...)
		return
	}
	r.counts.ended(outcome, a.result.Took)
	r.metrics.observe(a.result.Took)
	switch outcome {
	case OutcomeSuccess:
		r.events.log(slog.LevelDebug, "outbox: message delivered", line()...)
	case OutcomeTransient:
		r.events.log(slog.LevelDebug, "outbox: an attempt has failed, another follows", line("retry_in",
			a.result.RetryIn)...)
	default:
		if p, ok := a.err.(*PanicError); ok {
			r.events.log(slog.LevelError, "outbox: a message is dead", line("outcome", string(outcome), "stack",
				string(p.Stack))...)
		} else {
			r.events.log(slog.LevelError, "outbox: a message is dead", line("outcome", string(outcome))...)
		}
	}
	tell(r.events, "Attempted", r.events.hooks.Attempted, AttemptInfo{ID: ID(m.ID), Topic: m.Topic, Key: m.Key,
		Attempt: m.Attempts + 1, Outcome: outcome, Took: a.result.Took, Err: a.err, RetryIn: a.result.RetryIn})
}

// newSweeper returns what deletes old rows.
func (r *Relay) newSweeper() *retention.Sweeper {
	keep := func(d time.Duration) time.Duration { return max(0, d) } // NoLimit
	c := r.config
	old := store.Retention{Dispatched: keep(c.Retention.Dispatched), Dead: keep(c.Retention.Dead),
		Inbox: keep(c.InboxRetention)}
	return &retention.Sweeper{Interval: c.SweepInterval, Pause: min(sweepPause, c.SweepInterval), Batch: sweepBatch,
		Delete: func(ctx context.Context, limit int) (int, error) {
			return call(r.calls, opSweep, func(ctx context.Context) (int, error) {
				return r.store.Sweep(ctx, old, limit)
			})
		}}
}

// sweep deletes old rows while this relay leads the first shard, until ctx ends.
func (r *Relay) sweep(ctx context.Context) {
	for sleep(ctx, r.sweeper.Next(1)) {
		r.mu.Lock()
		leads := r.shards[0] != nil
		r.mu.Unlock()
		if leads {
			_ = r.sweeper.Once(ctx) // a call that fails is counted, and the next one comes
		}
	}
}
