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

// A recorder observes the handlers: each reports when it begins and when it has returned. It takes
// nothing from tickslot but the slot and the tick of a run.
type recorder struct {
	began time.Time
	out   io.Writer

	mu      sync.Mutex
	books   map[string]*book // by timer
	broken  []error
	cut     []string // hosts that were cut off
	waiters map[*waiter]struct{}
}

// A promise is a limit that must hold for one timer in the fleet.
type promise struct {
	timer   string
	period  time.Duration
	atOnce  int // MaxConcurrency
	perTick int // MaxPerTick
}

// A book records what was observed of one timer.
type book struct {
	promise
	running    int
	maxRunning int
	runs       int
	slots      map[int]string    // in use, by whom
	before     map[int]string    // who was in a slot since the picture's last line
	starts     map[time.Time]int // of each tick
	maxStarts  int
}

// A start is a run that begins.
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
	r := &recorder{began: time.Now(), out: out, books: make(map[string]*book), waiters: make(map[*waiter]struct{})}
	for _, p := range promises {
		r.books[p.timer] = &book{promise: p, slots: make(map[int]string), before: make(map[int]string),
			starts: make(map[time.Time]int)}
	}
	return r
}

// watched makes a handler report. Its run counts as running until it has returned, even after its
// lease was lost: a host that is cut off counts for as long as it really works.
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
	b := r.books[s.timer]
	b.runs++
	b.running++
	b.maxRunning = max(b.maxRunning, b.running)
	b.starts[s.tick]++
	b.maxStarts = max(b.maxStarts, b.starts[s.tick])

	if b.running > b.atOnce {
		r.blame("%s: %d runs at once, the limit is %d", s.timer, b.running, b.atOnce)
	}
	if b.starts[s.tick] > b.perTick {
		r.blame("%s: %d starts of one tick, the limit is %d", s.timer, b.starts[s.tick], b.perTick)
	}
	if other, taken := b.slots[s.slot]; taken {
		r.blame("%s: %s began in slot %d while %s was still there", s.timer, s.host, s.slot, other)
	}
	b.slots[s.slot] = s.host

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
	b := r.books[s.timer]
	b.running--
	delete(b.slots, s.slot)
	b.before[s.slot] = s.host
	if errors.Is(err, dlock.ErrLost) {
		r.sayLocked("%s stops its run of %s in slot %d: its lease is lost", s.host, s.timer, s.slot)
	}
}

// await returns the next start that is wanted.
func (r *recorder) await(ctx context.Context, patience time.Duration, wanted func(start) bool) (start, error) {
	w := &waiter{wanted: wanted, found: make(chan start, 1)}
	r.mu.Lock()
	r.waiters[w] = struct{}{}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
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

func (r *recorder) blame(format string, args ...any) {
	r.broken = append(r.broken, fmt.Errorf(format, args...))
}

// violations returns each time that a limit was exceeded.
func (r *recorder) violations() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.broken...)
}

func (r *recorder) cutOff(host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = append(r.cut, host)
	r.sayLocked("%s is CUT OFF: nothing that it sends arrives, and nobody tells it", host)
}
