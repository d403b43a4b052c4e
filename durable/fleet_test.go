package durable_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/internal/memory"
	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/schedule"
)

// Schedules that many tests use.
var (
	everyMinute = schedule.Every(time.Minute).Offset(0) // at each full minute, regardless of the schedule's name
	after       = schedule.After(time.Minute)
	dailyAtNoon = schedule.Daily("12:00", "")
)

var errDown = errors.New("the database is down")

// bubble runs a test in virtual time. The test fails if a goroutine is left at the end.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// pass lets time pass, and waits until everything due by then has happened.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// A fleet is a number of workers that share one database.
type fleet struct {
	t     *testing.T
	store *memory.Store
	watch *watch
	hosts []*host
	level slog.Level // of the logs
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t, store: memory.New()}
	f.watch = newWatch(f.store)
	return f
}

// A host is a process of the fleet, with one worker.
type host struct {
	*durable.Worker
	fleet   *fleet
	name    string
	link    *link // to the database
	log     text
	cancel  context.CancelFunc
	ended   chan error
	started bool

	replaced bool // its Run may return any error
}

// add adds a host with a worker that is not running yet.
func (f *fleet) add(config durable.Config) *host {
	f.t.Helper()
	h := &host{fleet: f, link: newLink(f.store), ended: make(chan error, 1)}
	if config.Name == "" {
		config.Name = fmt.Sprint("host-", len(f.hosts))
	}
	h.name = config.Name
	if config.Logger == nil {
		config.Logger = slog.New(slog.NewTextHandler(&h.log, &slog.HandlerOptions{Level: f.level}))
	}
	config.Middleware = append(config.Middleware, f.watch.around(h))
	var err error
	if h.Worker, err = durable.NewWorker(durable.NewStore(h.link), config); err != nil {
		f.t.Fatal(err)
	}
	f.watch.limits(h.name, config)
	f.hosts = append(f.hosts, h)
	return h
}

// handle adds a handler to the host, and has its limit watched.
func (h *host) handle(name string, handle durable.Handler, options durable.HandlerOptions) *host {
	h.Handle(name, handle, options)
	h.fleet.watch.limit(name, options.MaxConcurrency)
	return h
}

func (h *host) schedule(name, handler string, s schedule.Schedule, options durable.ScheduleOptions) *host {
	h.Schedule(name, handler, s, options)
	return h
}

// start runs the worker.
func (h *host) start() *host {
	h.fleet.t.Helper()
	if err := h.Check(); err != nil {
		h.fleet.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(h.fleet.t.Context())
	h.cancel, h.started = cancel, true
	go func() { h.ended <- h.Run(ctx) }()
	return h
}

// stop ends Run and returns its error.
func (h *host) stop() error {
	if !h.started {
		return nil
	}
	h.cancel()
	err := <-h.ended
	h.ended <- err
	return err
}

// kill simulates the death of the process: it makes no further call, and nothing that its handlers
// do counts. end cleans up.
func (h *host) kill() {
	h.link.set(dead)
	h.fleet.watch.killed(h)
	h.cancel()
}

// end stops all live hosts and reports the faults that the watch has seen.
func (f *fleet) end() {
	f.t.Helper()
	for _, h := range f.hosts {
		if err := h.stop(); err != nil && !f.watch.isDead(h) && !h.replaced {
			f.t.Errorf("%s: %v", h.name, err)
		}
	}
	for _, h := range f.hosts {
		h.link.drop()
		for _, wrong := range h.link.wrong {
			f.t.Error(wrong)
		}
	}
	for _, fault := range f.watch.close() {
		f.t.Error(fault)
	}
}

// queue queues a run without waking the hosts. Hosts that have just polled find the run at their
// next poll.
func (f *fleet) queue(handler string, options durable.TriggerOptions) int64 {
	f.t.Helper()
	id, err := durable.NewStore(f.store).Trigger(f.t.Context(), nil, handler, nil, options)
	if err != nil {
		f.t.Fatal(err)
	}
	return id
}

// trigger queues a run, and wakes the hosts.
func (f *fleet) trigger(handler string, options durable.TriggerOptions) int64 {
	f.t.Helper()
	id := f.queue(handler, options)
	if err := f.store.Notify(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	return id
}

// run returns a run and its attempts.
func (f *fleet) run(id int64) (store.Run, []store.Attempt) {
	f.t.Helper()
	run, attempts, ok, err := f.store.Run(f.t.Context(), id)
	if err != nil || !ok {
		f.t.Fatalf("run %d: %v, %v", id, ok, err)
	}
	return run, attempts
}

// runs returns all runs in the given states, newest first.
func (f *fleet) runs(states ...store.State) []store.Run {
	f.t.Helper()
	runs, err := f.store.Runs(f.t.Context(), store.Filter{States: states}, 1<<30)
	if err != nil {
		f.t.Fatal(err)
	}
	return runs
}

// ticks returns the row of a schedule.
func (f *fleet) ticks(name string) store.ScheduleRow {
	f.t.Helper()
	rows, err := f.store.Schedules(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	for _, row := range rows {
		if row.Name == name {
			return row
		}
	}
	f.t.Fatalf("there is no schedule %s", name)
	return store.ScheduleRow{}
}

// outcomes returns how the attempts of a run ended.
func outcomes(attempts []store.Attempt) (list []store.Outcome) {
	for _, a := range attempts {
		list = append(list, a.Outcome)
	}
	return list
}

// sleeps returns a handler that works for d or until its context ends.
func sleeps(d time.Duration) durable.Handler {
	return func(ctx context.Context, _ *durable.Run) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// A text collects the output of a Logger.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (x *text) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(p)
}

func (x *text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}
