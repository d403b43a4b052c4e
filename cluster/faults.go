package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/mask"
	"github.com/tickslot/tickslot/internal/notify"
)

// An op is a call of the registry, as metrics name it.
type op string

const (
	opWrite     op = "write"
	opRead      op = "read"
	opSweep     op = "sweep"
	opEnumerate op = "enumerate" // of the store of locks
)

var ops = []op{opWrite, opRead, opSweep, opEnumerate}

// faults knows which calls fail: call records the result of each. It logs only when the first
// begins to fail, and when all work again.
type faults struct {
	timeout time.Duration
	logger  *slog.Logger
	lines   notify.Queue // of the log: the Logger may block, or panic

	mu        sync.Mutex
	failing   map[op]error // of the last call
	changedAt time.Time    // when failing became empty, or not
	errors    map[op]uint64
	hanging   map[op]int // calls that were left behind
}

func newFaults(o Options) *faults {
	return &faults{timeout: o.StoreTimeout, logger: o.Logger, changedAt: time.Now(),
		failing: map[op]error{}, errors: map[op]uint64{}, hanging: map[op]int{}}
}

// callGrace is how long after its time-out a call is waited for.
const callGrace = time.Second

var errHangs = errors.New("an earlier call has not returned, although its time is over")

// call makes one call, bounded by the time-out, and recovers its panics. An error is not recorded
// if ctx has ended. A call that does not return is left behind, and no other of its op is made
// until it does.
func call[A any](
	ctx context.Context, f *faults, what op, do func(context.Context) (A, error),
) (a A, err error) {
	if err := context.Cause(ctx); err != nil {
		return a, err
	}
	defer func() {
		if err != nil {
			err = mask.Error(fmt.Errorf("cluster: %s: %w", what, err))
		}
		if err == nil || ctx.Err() == nil {
			f.record(what, err)
		}
	}()
	if f.hangs(what) {
		return a, errHangs
	}
	bounded, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	type answer struct {
		a   A
		err error
	}
	answered := make(chan answer, 1)
	behind := false // it was left behind; under f.mu
	go func() {
		got := answer{err: errors.New("the store called runtime.Goexit")}
		defer func() {
			if p := recover(); p != nil {
				got.err = fmt.Errorf("the store panicked: %v", p)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if behind {
				f.hanging[what]--
			}
			answered <- got
		}()
		got.a, got.err = do(bounded)
	}()
	select {
	case got := <-answered:
		return got.a, got.err
	case <-bounded.Done():
	}
	grace := time.NewTimer(callGrace)
	defer grace.Stop()
	select {
	case got := <-answered:
		return got.a, got.err
	case <-grace.C:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case got := <-answered:
		return got.a, got.err
	default:
		behind = true
		f.hanging[what]++
		return a, context.Cause(bounded)
	}
}

// hangs reports whether a call was left behind and has not returned.
func (f *faults) hangs(what op) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hanging[what] > 0
}

// record records the result of a call.
func (f *faults) record(what op, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.errors[what]++
	}
	// That the store of locks is down is logged by the sessions that hold leases there. Only the
	// registry can say that its user may not list them (ErrSetup).
	if what == opEnumerate && err != nil && !errors.Is(err, dlock.ErrSetup) {
		return
	}
	was := len(f.failing) > 0
	if err != nil {
		f.failing[what] = err
	} else {
		delete(f.failing, what)
	}
	is := len(f.failing) > 0
	if was == is {
		return
	}
	lasted := time.Since(f.changedAt)
	f.changedAt = time.Now()
	if is {
		f.log(slog.LevelWarn, "cluster: the registry fails; locks and timers do not depend on it", "err", err)
	} else {
		f.log(slog.LevelInfo, "cluster: the registry works again", "down_for", lasted.Round(time.Millisecond))
	}
}

// errorOf returns the error of the last call.
func (f *faults) errorOf(what op) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failing[what]
}

// current returns the last errors of the calls that fail, and when the first of them began to fail;
// if none fails, when the last one worked again.
func (f *faults) current() (changedAt time.Time, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, o := range ops {
		if e := f.failing[o]; e != nil {
			errs = append(errs, e)
		}
	}
	return f.changedAt, errors.Join(errs...)
}

func (f *faults) counts() map[op]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := make(map[op]uint64, len(ops))
	for _, o := range ops {
		n[o] = f.errors[o]
	}
	return n
}

// log runs no user code, so a mutex may be held.
func (f *faults) log(level slog.Level, line string, args ...any) {
	f.lines.Put("Logger", func() { f.logger.Log(context.Background(), level, line, args...) })
}

func (f *faults) warn(line string, args ...any) { f.log(slog.LevelWarn, line, args...) }
