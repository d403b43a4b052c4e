package durable_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/internal/memory"
)

// A watch sees every handler call in the fleet and finds broken promises: two valid owners of a
// run, more valid runs than a limit allows, or more calls on a worker than its MaxRuns.
type watch struct {
	store *memory.Store

	mu        sync.Mutex
	now       map[*durable.Run]*host // calls in progress
	dead      map[*host]bool
	perHost   map[string]int // MaxRuns
	perFleet  int            // largest MaxActive; 0: any number
	perName   map[string]int // largest MaxConcurrency
	unlimited map[string]bool
	calls     map[int64]int // by run
	most      map[string]int
	faults    []string
}

func newWatch(s *memory.Store) *watch {
	return &watch{store: s, now: map[*durable.Run]*host{}, dead: map[*host]bool{}, perHost: map[string]int{},
		perName: map[string]int{}, unlimited: map[string]bool{}, calls: map[int64]int{}, most: map[string]int{}}
}

func (w *watch) limits(host string, c durable.Config) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.perHost[host] = c.MaxRuns; c.MaxRuns == 0 {
		w.perHost[host] = durable.DefaultMaxRuns
	}
	w.perFleet = max(w.perFleet, c.MaxActive)
}

func (w *watch) limit(handler string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.perName[handler] = max(w.perName[handler], n)
	if n == 0 {
		w.unlimited[handler] = true
	}
}

// around returns the middleware of a host.
func (w *watch) around(h *host) durable.Middleware {
	return func(next durable.Handler) durable.Handler {
		return func(ctx context.Context, run *durable.Run) error {
			defer w.begin(ctx, h, run)()
			return next(ctx, run)
		}
	}
}

func (w *watch) begin(ctx context.Context, h *host, run *durable.Run) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead[h] {
		return func() {}
	}
	w.calls[run.ID]++
	if !run.Valid() || ctx.Err() != nil {
		w.fault("run %d began on %s without a lease", run.ID, h.name)
	}
	if seen, ok := durable.RunFromContext(ctx); !ok || seen != run {
		w.fault("run %d is not in its context", run.ID)
	}
	onHost, ofName, ofAll := 1, 1, 1
	for other, its := range w.now {
		if its == h {
			onHost++
		}
		if !other.Valid() {
			continue
		}
		ofAll++
		if other.Handler == run.Handler {
			ofName++
		}
		if other.ID == run.ID {
			w.fault("run %d has two valid owners: %s and %s", run.ID, its.name, h.name)
		}
	}
	w.now[run] = h
	w.atMost("calls on "+h.name, onHost, w.perHost[h.name])
	if w.perFleet > 0 {
		w.atMost("runs in the fleet", ofAll, w.perFleet)
	}
	if !w.unlimited[run.Handler] {
		w.atMost("runs of "+run.Handler, ofName, w.perName[run.Handler])
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.now, run)
	}
}

// atMost reports a fault if n exceeds most. Called with mu held, like fault.
func (w *watch) atMost(what string, n, most int) {
	w.most[what] = max(w.most[what], n)
	if n > most {
		w.fault("%d %s at once, at most %d", n, what, most)
	}
}

func (w *watch) fault(format string, args ...any) {
	w.faults = append(w.faults, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (w *watch) killed(h *host) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead[h] = true
	for run, its := range w.now {
		if its == h {
			delete(w.now, run)
		}
	}
}

func (w *watch) isDead(h *host) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead[h]
}

// called returns how often the handler of a run was called on live hosts.
func (w *watch) called(id int64) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[id]
}

// maxOf returns the largest number seen at one instant.
func (w *watch) maxOf(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.most[what]
}

func (w *watch) close() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.faults
}
