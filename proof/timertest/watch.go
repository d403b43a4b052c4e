package timertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/timer"
)

// A watcher wraps every handler of a fleet, and takes from the library only what a run reports
// about itself. Whenever a run starts, it checks I1, I3 and I4. It misses no overlap of valid runs,
// because each overlap begins when a run starts. It reports none wrongly, however busy the machine
// is, because a run that is valid now has been valid since its grant.
type watcher struct {
	mu     sync.Mutex
	limits map[string]timer.Timer // by name
	sizes  map[string]int         // of shared limits, by name
	active map[*visit]struct{}
	past   []*visit          // by start
	owner  map[slotOf]*visit // the latest valid run of each slot
	starts map[tickOf]int    // with a grant of the store
	peaks  map[string]int    // concurrently valid runs
	most   map[string]int    // starts of one tick
	broken []string
}

// A visit is a run of a handler.
type visit struct {
	*timer.Run
	ctx   context.Context
	host  *host
	began time.Time
	valid bool // when it started
	left  bool // it has returned; guarded by watcher.mu
}

type slotOf struct {
	timer string
	slot  int
}

type tickOf struct {
	timer string
	tick  time.Time
}

func newWatcher() *watcher {
	return &watcher{limits: map[string]timer.Timer{}, sizes: map[string]int{}, active: map[*visit]struct{}{},
		owner: map[slotOf]*visit{}, starts: map[tickOf]int{}, peaks: map[string]int{}, most: map[string]int{}}
}

// before returns the timer with its handler wrapped by the watcher. Its host may be created later.
func (w *watcher) before(h func() *host, t timer.Timer) timer.Timer {
	limits := t
	limits.MaxConcurrency = max(1, t.MaxConcurrency)
	if limits.MaxPerTick == 0 {
		limits.MaxPerTick = limits.MaxConcurrency
	}
	w.mu.Lock()
	w.limits[t.Name] = limits
	w.mu.Unlock()
	run := t.Run
	if run == nil {
		return t
	}
	t.Run = func(ctx context.Context) error {
		defer w.leave(w.enter(h(), ctx))
		return run(ctx)
	}
	return t
}

func (w *watcher) enter(h *host, ctx context.Context) *visit {
	r, _ := timer.RunFromContext(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	v := &visit{Run: r, ctx: ctx, host: h, began: time.Now(), valid: r.Valid()}
	w.past = append(w.past, v)
	w.active[v] = struct{}{}
	limits := w.limits[r.Timer()]
	if !r.Tick().IsZero() && !r.Degraded() {
		tick := tickOf{r.Timer(), r.Tick()}
		w.starts[tick]++
		w.most[r.Timer()] = max(w.most[r.Timer()], w.starts[tick])
		if n := w.starts[tick]; n > limits.MaxPerTick {
			w.fault("I3: %s: %d starts of the tick %v, MaxPerTick %d", r.Timer(), n, r.Tick(), limits.MaxPerTick)
		}
	}
	if !v.valid { // the lease was lost before the handler started, so its order is unknown
		return v
	}
	valid := 0
	for other := range w.active {
		if other.Timer() == r.Timer() && (other == v || other.Valid()) {
			valid++
		}
	}
	w.peaks[r.Timer()] = max(w.peaks[r.Timer()], valid)
	if valid > limits.MaxConcurrency {
		w.fault("I1: %s: %d valid runs at once, MaxConcurrency %d", r.Timer(), valid, limits.MaxConcurrency)
	}
	for _, name := range limits.Limits {
		w.countShared(v, name)
	}
	slot := slotOf{r.Timer(), r.Slot()}
	if before := w.owner[slot]; before != nil {
		if !before.left && before.Valid() {
			w.fault("I1: %s: two valid runs in slot %d, fences %d and %d", slot.timer, slot.slot, before.Fence(),
				r.Fence())
		}
		if r.Fence() <= before.Fence() {
			w.fault("I4: %s: slot %d: fence %d after %d", slot.timer, slot.slot, r.Fence(), before.Fence())
		}
	}
	w.owner[slot] = v
	return v
}

// countShared counts the valid runs of the timers that share a limit. The caller holds mu.
func (w *watcher) countShared(v *visit, limit string) {
	valid := 0
	for other := range w.active {
		if slices.Contains(w.limits[other.Timer()].Limits, limit) && (other == v || other.Valid()) {
			valid++
		}
	}
	w.peaks["limit "+limit] = max(w.peaks["limit "+limit], valid)
	if valid > w.sizes[limit] {
		w.fault("I1: limit %s: %d valid runs at once, Size %d", limit, valid, w.sizes[limit])
	}
}

func (w *watcher) leave(v *visit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v.left = true
	delete(w.active, v)
}

// fault records a violation. The caller holds mu.
func (w *watcher) fault(format string, args ...any) {
	if len(w.broken) < 10 {
		w.broken = append(w.broken, fmt.Sprintf(format, args...))
	}
}

// check fails the test for violations since the last check.
func (w *watcher) check(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.broken {
		t.Error(b)
	}
	w.broken = nil
}

// runs counts the runs of a timer that match.
func (w *watcher) runs(name string, match func(*visit) bool) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range w.past {
		if v.Timer() == name && match(v) {
			n++
		}
	}
	return n
}

// now returns a current run of the timer, or nil.
func (w *watcher) now(name string) *visit {
	w.mu.Lock()
	defer w.mu.Unlock()
	for v := range w.active {
		if v.Timer() == name {
			return v
		}
	}
	return nil
}

// on returns a current run of the timer on a host, or nil.
func (w *watcher) on(h *host, name string) *visit {
	w.mu.Lock()
	defer w.mu.Unlock()
	for v := range w.active {
		if v.Timer() == name && v.host == h {
			return v
		}
	}
	return nil
}

// latest returns the latest valid run of a slot, or nil.
func (w *watcher) latest(name string, slot int) *visit {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.owner[slotOf{name, slot}]
}

// peak returns the largest number of concurrently valid runs, and of starts per tick.
func (w *watcher) peak(name string) (valid, perTick int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.peaks[name], w.most[name]
}

// ticks returns how many ticks of a timer ran.
func (w *watcher) ticks(name string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for tick := range w.starts {
		if tick.timer == name {
			n++
		}
	}
	return n
}

// since returns a function that matches runs that started after an instant.
func since(at time.Time) func(*visit) bool { return func(v *visit) bool { return v.began.After(at) } }

// all matches every run.
func all(*visit) bool { return true }

// in returns a function that matches the valid runs of a slot.
func in(slot int) func(*visit) bool {
	return func(v *visit) bool { return v.valid && v.Slot() == slot }
}

// fenceOf returns the fence of a run, or 0 for nil.
func fenceOf(v *visit) dlock.Fence {
	if v == nil {
		return 0
	}
	return v.Fence()
}
