package timer_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/timertest"
	"github.com/tickslot/tickslot/timer"
)

// A virtualFleet runs in one bubble of virtual time. Its hosts share an in-memory store that can be
// made to fail for each host separately.
type virtualFleet struct {
	timertest.Fleet[*dlocktest.Faulty]
	t     *testing.T
	store *memlock.Store
	watch *watcher
}

type host = timertest.Host[*dlocktest.Faulty]

func newFleet(t *testing.T) *virtualFleet {
	const patience = 24 * time.Hour // in virtual time; some hosts drain for hours
	return &virtualFleet{Fleet: timertest.NewFleet[*dlocktest.Faulty](t, patience), t: t, store: memlock.New(),
		watch: &watcher{}}
}

func (f *virtualFleet) start(config timer.Config, timers ...timer.Timer) *host {
	f.t.Helper()
	return f.startOn(f.store, config, timers...)
}

// startOn starts a host on a store other than the fleet's.
func (f *virtualFleet) startOn(store dlock.DistributedLock, config timer.Config, timers ...timer.Timer) *host {
	f.t.Helper()
	h := f.NewHost(dlocktest.NewFaulty(store), config, timers...)
	f.Run(f.t.Context(), h)
	synctest.Wait() // wait until the host runs
	return h
}

// A watcher records what handlers report. It gets no information from the library.
type watcher struct {
	mu      sync.Mutex
	running map[string]int
	peak    map[string]int
	starts  map[string]map[time.Time]int // by timer and tick
	fences  map[slotOf]dlock.Fence
	holders map[slotOf]*timer.Run
	faults  []string
}

type slotOf struct {
	timer string
	slot  int
}

func (w *watcher) enter(ctx context.Context) (leave func()) {
	r, _ := timer.RunFromContext(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running == nil {
		w.running, w.peak = map[string]int{}, map[string]int{}
		w.starts = map[string]map[time.Time]int{}
		w.fences, w.holders = map[slotOf]dlock.Fence{}, map[slotOf]*timer.Run{}
	}
	name := r.Timer()
	w.running[name]++
	w.peak[name] = max(w.peak[name], w.running[name])
	if w.starts[name] == nil {
		w.starts[name] = map[time.Time]int{}
	}
	w.starts[name][r.Tick()]++
	if slot := (slotOf{name, r.Slot()}); r.Fence() != 0 {
		if r.Fence() <= w.fences[slot] {
			w.faults = append(w.faults, "a fence did not grow")
		}
		w.fences[slot] = r.Fence()
		// The other run may have got another slot after an outage.
		if other := w.holders[slot]; other != nil && other.Valid() && other.Slot() == r.Slot() {
			w.faults = append(w.faults, "two valid runs in one slot")
		}
		w.holders[slot] = r
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.running[name]--
		if slot := (slotOf{name, r.Slot()}); w.holders[slot] == r {
			delete(w.holders, slot)
		}
	}
}

func (w *watcher) check(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.faults {
		t.Error(f)
	}
}

// ticks returns how many ticks of a timer ran, and the largest number of starts of one tick.
func (w *watcher) ticks(name string) (ran, most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.starts[name] {
		most = max(most, n)
	}
	return len(w.starts[name]), most
}

// startsOf returns how many times a tick of a timer was started.
func (w *watcher) startsOf(name string, tick time.Time) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.starts[name][tick]
}

// handler returns a handler that takes d, or less if its context ends.
func (f *virtualFleet) handler(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		defer f.watch.enter(ctx)()
		return sleep(ctx, d)
	}
}

// sleep sets no timer if d is 0. The race detector of Go 1.26 sometimes crashes if a timer of
// virtual time is due when it is set (go.dev/issue/78156).
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// bubble runs a test in virtual time. The test fails if a goroutine is left at its end.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// otherSession returns a session that can hold slots without running any timers.
func otherSession(t *testing.T, store dlock.DistributedLock) *dlock.Session {
	t.Helper()
	session, err := dlock.NewSession(store, dlock.SessionOptions{Holder: dlock.Holder{Host: "other", PID: 1, ID: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close(context.Background()) })
	return session
}

func textLogger(log *testkit.Log) *slog.Logger {
	return slog.New(slog.NewTextHandler(log, nil))
}

func newRegistry() *prometheus.Registry { return prometheus.NewPedanticRegistry() }
