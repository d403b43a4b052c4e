package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/lifecycle"
	"github.com/tickslot/tickslot/internal/mask"
	"github.com/tickslot/tickslot/internal/notify"
)

// A Registry writes to a store what this process is and what it holds, and reads the same about the
// rest of the fleet. Its methods may be called from any goroutine.
type Registry struct {
	config Config

	admission *admission

	pending  *pending
	runners  *runners
	writer   *writer
	reader   *reader
	observer *observer
	listing  *listing
	kinds    *kinds
	faults   *faults
	loop     *loop
	metrics  *metrics // nil without Config.Registerer

	life   lifecycle.Life
	runs   atomic.Uint64 // runs recorded without an ID
	events atomic.Uint64 // events recorded without an ID
}

// New returns a Registry, or an error that lists every fault of config. It starts nothing and does
// not call the store.
func New(config Config) (*Registry, error) {
	o := config.withDefaults()
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	r := &Registry{config: o, pending: newPending(), listing: newListing(o.Locks), faults: newFaults(o),
		life: lifecycle.Life{Prefix: "cluster", Type: "Registry"}}
	r.admission = newAdmission(r)
	r.kinds = &kinds{user: o.Kind, warn: r.faults.warn}
	r.runners = &runners{own: r.runner, refused: func() bool { return r.admission.refused() != nil }}
	r.writer = &writer{config: o, pending: r.pending, runners: r.runners, kinds: r.kinds, faults: r.faults,
		listing: r.listing, startedAt: time.Now()}
	r.observer = &observer{config: o, pending: r.pending, faults: r.faults, admission: r.admission}
	r.reader = &reader{config: o, kinds: r.kinds, faults: r.faults, listing: r.listing, observer: r.observer}
	r.loop = newLoop(r)
	if o.Registerer != nil {
		r.metrics = newMetrics(r)
		if err := o.Registerer.Register(r.metrics); err != nil {
			return nil, fmt.Errorf("cluster: Registerer: %w: give each Registry its own prometheus.Registry, or wrap "+
				"both with prometheus.WrapRegistererWith", err)
		}
	}
	return r, nil
}

// Holder returns the identity of this process in the registry. Pass it to timer.Config.Holder and
// dlock.SessionOptions.Holder.
func (r *Registry) Holder() dlock.Holder { return r.config.Holder }

// Run writes heartbeats of this process to the registry, with its leases, events and runs, until
// ctx ends. Then it records that the process has left, which takes up to Config.StoreTimeout, and
// returns nil.
//
// End ctx only after schedulers, electors and sessions have stopped. Otherwise the leases that they
// release last are shown as held until they expire.
//
// If a live host of another Environment is on the same store, this process is refused: the parts
// passed to Add stop or do not start, and return an error (see Admit). Run continues to write
// heartbeats, so that every host sees the process in the state HostRefused, and returns the error
// when ctx ends.
//
// A second call of Run also returns an error. Run logs any other failure, such as a store that is
// down or lacks a table, and retries.
func (r *Registry) Run(ctx context.Context) error {
	if err := r.life.Begin(ctx); err != nil {
		return err
	}
	if r.metrics != nil {
		defer r.config.Registerer.Unregister(r.metrics)
	}
	defer r.faults.lines.Close(notify.LogGrace)
	return r.life.Work(ctx, r.run)
}

func (r *Registry) run(ctx context.Context) error {
	r.life.Enter(lifecycle.Running)
	r.hostEvent(EventHostJoined)
	r.loop.start(ctx)
	r.loop.run(ctx)
	leaving := time.Now()
	r.hostEvent(EventHostLeft)
	r.loop.leave(ctx)
	err := r.admission.refused()
	if err == nil {
		r.faults.log(slog.LevelInfo, "cluster: registry stopped", "drain", time.Since(leaving))
	}
	return err
}

func (r *Registry) hostEvent(kind EventKind) {
	h := r.config.Holder
	r.pending.addEvent(Event{ID: idOf(string(kind), h.String()), Kind: kind, Holder: h}, time.Now())
}

// runner returns the registry's own runner.
func (r *Registry) runner() RunnerDetail {
	d := r.writer.runner(r.life.Phase() == lifecycle.Running)
	if err := r.admission.refused(); err != nil {
		d.State, d.Err = "refused", clean(err.Error(), maxTextLen)
	}
	return d
}

// Record records leases manually, for locks that are not decorated. Call it when a lease is
// acquired, whenever it is renewed, and a last time with Released, or with a negative ExpiresIn if
// the lease was lost. Only the holder of a lease should record it. Durations are relative to now.
// Holder defaults to the registry's, and Kind to the kind of the name. Set Fence, or otherwise
// Grant, to distinguish one grant from the next; do not put a token there. Record does not block,
// does not call the store, and ignores a record whose Name is invalid (driver.CheckName).
func (r *Registry) Record(leases ...LeaseRecord) {
	now := time.Now()
	for _, l := range leases {
		if driver.CheckName(l.Name) != nil || l.Slot < 0 || l.Slots < 0 {
			continue
		}
		if l.Holder == (dlock.Holder{}) {
			l.Holder = r.config.Holder
		}
		if l.Grant == "" {
			l.Grant = strconv.FormatInt(int64(l.Fence), 10)
		}
		l.Holder, l.Kind, l.Grant = cleanHolder(l.Holder), clean(l.Kind, maxKindLen), clean(l.Grant, maxKindLen)
		r.pending.addLease(pendingOf(l, now), true)
	}
}

// RecordRun records an ended run of a timer. The record remains after this process has ended. It is
// written with the next heartbeat. EndedAgo is relative to now. Holder defaults to the registry's,
// and ID to a unique one. Package cluster/clustertimer calls RecordRun for the runs of a
// timer.Scheduler.
func (r *Registry) RecordRun(run Run) {
	if run.Holder == (dlock.Holder{}) {
		run.Holder = r.config.Holder
	}
	if run.ID == "" {
		run.ID = r.config.Holder.String() + "/" + strconv.FormatUint(r.runs.Add(1), 10)
	}
	run.ID = idOf("run", run.Timer, run.ID)
	run.Holder = cleanHolder(run.Holder)
	run.Timer, run.Outcome = clean(run.Timer, maxNameLen), clean(run.Outcome, maxKindLen)
	run.Err, run.By = clean(mask.Text(run.Err), maxTextLen), clean(run.By, maxTextLen)
	run.Stack = cleanLines(mask.Text(run.Stack), maxStackLen)
	run.Tick = cleanInstant(run.Tick)
	endedAt := time.Now().Add(-run.EndedAgo)
	run.EndedAgo = 0
	r.pending.addRun(run, endedAt)
}

// RecordEvent records an event for readers of the history, such as a change made by an operator
// (EventOperator). It is written within about a second. Ago is relative to now. Holder defaults to
// the registry's, and ID to a unique one.
func (r *Registry) RecordEvent(event Event) {
	if event.Holder == (dlock.Holder{}) {
		event.Holder = r.config.Holder
	}
	if event.ID == "" {
		event.ID = r.config.Holder.String() + "/" + strconv.FormatUint(r.events.Add(1), 10)
	}
	event.ID = idOf("event", string(event.Kind), event.Name, event.ID)
	event.Holder = cleanHolder(event.Holder)
	event.Kind = EventKind(clean(string(event.Kind), maxKindLen))
	event.Name, event.Text = clean(event.Name, maxNameLen), clean(mask.Text(event.Text), maxTextLen)
	at := time.Now().Add(-event.Ago)
	event.Ago = 0
	r.pending.addEvent(event, at)
}
