package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/timer"
)

// A recorder counts runs. Each handler reports its start and its return. The recorder takes only a
// run's slot and tick from tickslot, so it can detect errors in tickslot.
type recorder struct {
	began time.Time
	out   io.Writer

	mu       sync.Mutex
	tallies  map[string]*tally // by timer
	exceeded []error           // one error for each time a limit was exceeded
	cut      []string          // hosts that were cut off
	waiters  map[*waiter]struct{}
}

// limits are the limits of one timer in the fleet.
type limits struct {
	timer   string
	period  time.Duration
	atOnce  int // MaxConcurrency
	perTick int // MaxPerTick
}

// A tally counts the runs of one timer.
type tally struct {
	limits
	running    int // now
	maxRunning int
	runs       int
	inSlot     map[int]string    // the host that runs in a slot now
	wasInSlot  map[int]string    // the host of the last run in a slot that ended since the previous line
	starts     map[time.Time]int // number of starts per tick
	maxStarts  int
}

// A start is a run that starts.
type start struct {
	host  string
	timer string
	slot  int
	tick  time.Time
	at    time.Time
}

type waiter struct {
	wanted func(start) bool
	found  chan start
}

func newRecorder(out io.Writer) *recorder {
	r := &recorder{began: time.Now(), out: out, tallies: make(map[string]*tally), waiters: make(map[*waiter]struct{})}
	for _, l := range allLimits {
		r.tallies[l.timer] = &tally{limits: l, inSlot: make(map[int]string), wasInSlot: make(map[int]string),
			starts: make(map[time.Time]int)}
	}
	return r
}

// watched wraps a handler so that it reports. A run counts until its handler has returned, even if
// its lease was lost earlier: a disconnected host counts for as long as it works.
func (r *recorder) watched(host string, handler func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		run, _ := timer.RunFromContext(ctx)
		s := start{host: host, timer: run.Timer(), slot: run.Slot(), tick: run.Tick(), at: time.Now()}
		r.begin(s)
		err := handler(ctx)
		r.end(s, err)
		return err
	}
}

func (r *recorder) begin(s start) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tallies[s.timer]
	t.runs++
	t.running++
	t.maxRunning = max(t.maxRunning, t.running)
	t.starts[s.tick]++
	t.maxStarts = max(t.maxStarts, t.starts[s.tick])

	if t.running > t.atOnce {
		r.violation("%s: %d runs at once, the limit is %d", s.timer, t.running, t.atOnce)
	}
	if t.starts[s.tick] > t.perTick {
		r.violation("%s: %d starts of one tick, the limit is %d", s.timer, t.starts[s.tick], t.perTick)
	}
	if other, taken := t.inSlot[s.slot]; taken {
		r.violation("%s: %s began in slot %d while %s was still there", s.timer, s.host, s.slot, other)
	}
	t.inSlot[s.slot] = s.host

	for w := range r.waiters {
		if w.wanted(s) {
			w.found <- s
			delete(r.waiters, w)
		}
	}
}

func (r *recorder) end(s start, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tallies[s.timer]
	t.running--
	delete(t.inSlot, s.slot)
	t.wasInSlot[s.slot] = s.host
	if errors.Is(err, dlock.ErrLost) {
		r.sayLocked("%s stops its run of %s in slot %d: its lease is lost", s.host, s.timer, s.slot)
	}
}

// await waits for the next start for which wanted returns true.
func (r *recorder) await(ctx context.Context, timeout time.Duration, wanted func(start) bool) (start, error) {
	w := &waiter{wanted: wanted, found: make(chan start, 1)}
	r.mu.Lock()
	r.waiters[w] = struct{}{}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case s := <-w.found:
		return s, nil
	case <-ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.waiters, w)
		return start{}, ctx.Err()
	}
}

// violation records that a limit was exceeded. The caller holds mu.
func (r *recorder) violation(format string, args ...any) {
	r.exceeded = append(r.exceeded, fmt.Errorf(format, args...))
}

// violations returns an error if a limit was ever exceeded.
func (r *recorder) violations() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.exceeded...)
}

func (r *recorder) cutOff(host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = append(r.cut, host)
	r.sayLocked("%s is CUT OFF, from now on (%[1]s): its calls to the store hang", host)
}
