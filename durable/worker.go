package durable

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/answers"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/lifecycle"
	"github.com/tickslot/tickslot/internal/loop"
	"github.com/tickslot/tickslot/internal/retention"
	"github.com/tickslot/tickslot/schedule"
)

// A Worker queues the runs of due ticks and executes runs. Create one with NewWorker, register its
// handlers and schedules, and call Run. Its methods may be called from any goroutine.
type Worker struct {
	store  *Store
	config Config
	events *events
	life   lifecycle.Life

	database     *database
	book         *leaseBook
	runner       *runner
	finisher     *finisher
	renewer      *renewer
	claimer      *claimer
	reclaimer    *reclaimer
	materializer *materializer
	registrar    *registrar
	sampler      *lifecycle.Sampler[store.Stats]
	sweeper      *retention.Sweeper
	metrics      *metrics // nil without Config.Registerer

	mu        sync.Mutex // used by all callers
	faults    []error    // found by Handle and Schedule
	handlers  map[string]*handler
	schedules map[string]*scheduled
}

// A Phase is a stage in the life of a Worker. The phases are, in order: "created" until Run has
// asked whether it may begin; "running"; "pre_stop" during PreStopDelay, when runs are still
// claimed but Ready fails; "draining" while Run waits for the last handlers and their results; and
// "stopped".
type Phase = lifecycle.Phase

// NewWorker returns a Worker, or an error that lists every fault in the store's options and in
// config. It starts nothing and does not call the database.
func NewWorker(s *Store, config Config) (*Worker, error) {
	config = config.withDefaults()
	if err := errors.Join(named(s.ready(context.Background())), errors.Join(config.check()...)); err != nil {
		return nil, err
	}
	w := &Worker{store: s, config: config, handlers: map[string]*handler{}, schedules: map[string]*scheduled{},
		life: lifecycle.Life{Prefix: "durable", Type: "Worker", Is: "worker is", CreatedAt: time.Now()}}
	w.events = newEvents(config)
	w.database = newDatabase(s.store.String(), config, w.events)
	w.assemble(s.store)
	if config.Registerer != nil {
		w.metrics = newMetrics(w)
		if err := config.Registerer.Register(w.metrics); err != nil {
			return nil, fmt.Errorf("durable: Config.Registerer: %w: two workers at a time need two registries, or "+
				"prometheus.WrapRegistererWith", err)
		}
	}
	return w, nil
}

// assemble creates and connects the parts of w.
func (w *Worker) assemble(s store.Store) {
	c, d, v := w.config, w.database, w.events
	w.book = newLeaseBook(c.MaxRuns, c.TTL)
	w.finisher = &finisher{worker: c.Name, store: s, database: d, book: w.book, events: v,
		batch: answers.NewBatch(maxResults, c.CallTimeout), wake: make(chan struct{}, 1)}
	w.runner = &runner{worker: c.Name, book: w.book, finisher: w.finisher, events: v}
	w.claimer = &claimer{store: s, database: d, book: w.book, runner: w.runner, events: v,
		batch: answers.NewBatch(c.ClaimBatch, c.CallTimeout), wakeOthers: w.wakeOthers}
	w.claimer.Loop = loop.New("claimer", c.ClaimInterval, c.PollJitter, w.claimer.claim)
	w.renewer = &renewer{worker: c.Name, store: s, database: d, book: w.book, runner: w.runner, events: v}
	w.renewer.Loop = loop.New("renewer", c.TTL/3, 0, w.renewer.renew)
	w.reclaimer = &reclaimer{store: s, database: d, events: v, queued: w.claimer.Wake,
		crashes: max(0, c.MaxCrashes)}
	w.reclaimer.Loop = loop.New("reclaimer", c.ReclaimInterval, c.PollJitter, w.reclaimer.reclaim)
	w.materializer = &materializer{store: s, database: d, events: v, queued: w.queued, faults: map[string]string{},
		elsewhere: map[string]bool{}, batch: answers.NewBatch(maxPlans, c.CallTimeout)}
	w.materializer.Loop = loop.New("materializer", c.MaterializeInterval, c.PollJitter, w.materializer.materialize)
	w.registrar = &registrar{worker: c.Name, store: s, reader: s, database: d, events: v,
		takenOver: w.materializer.takenOver}
	w.registrar.Loop = loop.New("registrar", registerInterval, c.PollJitter, w.registrar.register)
	w.sampler = lifecycle.NewSampler(sampleInterval, func() (store.Stats, error) {
		return call(d, opStats, func(ctx context.Context) (store.Stats, error) { return s.Stats(ctx, unseenAfter) })
	})
	w.sweeper = newSweeper(c, s, d)
	w.book.ended, w.book.freed, w.book.renewNow = w.runner.lost, w.claimer.Wake, w.renewer.Wake
}

// sampleInterval is how often a worker reads the data for health checks and metrics.
const sampleInterval = 30 * time.Second

// queued wakes the claimer when the materializer has queued runs. If this worker has no room for
// them and the database supports notifications, queued also wakes other workers.
func (w *Worker) queued(runs int64) {
	w.claimer.Wake()
	if int64(w.book.room()) < runs {
		w.wakeOthers()
	}
}

// wakeOthers makes other workers poll for runs, if the database supports notifications.
func (w *Worker) wakeOthers() {
	_, _ = call(w.database, opNotify, func(ctx context.Context) (none struct{}, err error) {
		return none, w.store.store.Notify(ctx)
	})
}

// Handle registers a handler, so that this worker executes its runs. Call it before Run. Check and
// Run report invalid arguments.
func (w *Worker) Handle(name string, handle Handler, options HandlerOptions) {
	h := &handler{name: name, options: options.withDefaults()}
	var errs []error
	fault := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("durable: handler %.60q: %s: "+format, append([]any{name, field}, args...)...))
	}
	checkText(name, "name", fault)
	h.options.check(fault)
	if handle == nil {
		fault("function", "it is nil: give the function that does the work")
	} else if call, err := guard.Wrap(handle, w.config.Middleware); err != nil {
		fault("middleware", "%w", err)
	} else {
		h.call = call
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.handlers[name] != nil {
		fault("name", "there is another handler of that name: each needs its own")
	}
	if w.life.Begun() {
		fault("Handle", "Run was called before: call Handle first")
	} else if len(errs) == 0 {
		w.handlers[name] = h
		w.metrics.observe(h)
	}
	w.faults = append(w.faults, errs...)
}

// Schedule runs a handler at the ticks of a schedule. Each tick has at most one run in the fleet,
// no matter how many workers have the schedule. The handler must be registered with Handle, before
// or after this call. Call Schedule before Run. Check and Run report invalid arguments.
//
// The database stores the schedule, too. If two versions of a program use the same name for
// different schedules or handlers, the worker that started last decides, until no worker of its
// version has been seen for a few minutes. A tick of the old schedule that is already due still
// runs. After that, the new schedule applies. A schedule under another name is another schedule,
// whose first tick is the first one after its registration. A schedule that no worker has any more
// has no ticks. If it is registered again within Retention.Unseen, CatchUp decides about the ticks
// that it missed.
//
// The row of a schedule that was removed from the code is kept for Retention.Unseen, or longer
// while the schedule is paused. Control.Forget deletes it earlier.
//
// The schedule's Next is called on a separate goroutine and may take up to a second. A Next that
// fails or hangs delays only the ticks of its own schedule.
//
// With many schedules, those with the oldest ticks are planned first. After a deploy, planning
// takes a few seconds per 10,000 schedules.
func (w *Worker) Schedule(name, handler string, s schedule.Schedule, options ScheduleOptions) {
	var errs []error
	fault := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("durable: schedule %.60q: %s: "+format, append([]any{name, field}, args...)...))
	}
	checkText(name, "name", fault)
	checkText(handler, "handler", fault)
	checkSchedule(s, options, fault)
	orDefault(&options.CatchUp.Max, 100)
	options.Payload = slices.Clone(options.Payload)
	added := &scheduled{name: name, handler: handler, options: options}
	if len(errs) == 0 {
		added.schedule = schedule.ForName(s, name)
		added.spec, added.text = specOf(handler, added.schedule), schedule.Describe(s)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.schedules[name] != nil {
		fault("name", "there is another schedule of that name: each needs its own")
	}
	if w.life.Begun() {
		fault("Schedule", "Run was called before: call Schedule first")
	} else if w.schedules[name] == nil {
		w.schedules[name] = added
	}
	w.faults = append(w.faults, errs...)
}

// Check returns every fault of the handlers and the schedules, or nil if Run may be called. It does
// not call the database.
func (w *Worker) Check() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	errs := slices.Clone(w.faults)
	if len(w.handlers) == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("durable: there is no handler: call Handle"))
	}
	for _, name := range slices.Sorted(maps.Keys(w.schedules)) {
		if s := w.schedules[name]; s.handler != "" && w.handlers[s.handler] == nil {
			errs = append(errs, fmt.Errorf("durable: schedule %.60q: this worker has no handler %.60q: call Handle, "+
				"or correct the name", name, s.handler))
		}
	}
	return errors.Join(errs...)
}
