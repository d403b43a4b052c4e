package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

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

// faults makes the calls, and knows which fail. It is told of every call by whoever makes it, and
// logs only changes.
type faults struct {
	timeout time.Duration
	logger  *slog.Logger
	lines   notify.Queue // of the log: the Logger may block, or panic

	mu        sync.Mutex
	failing   map[op]error // of the last call
	changedAt time.Time    // when failing became empty, or not
	errors    map[op]uint64
}

func newFaults(o Options) *faults {
	return &faults{timeout: o.StoreTimeout, logger: o.Logger, changedAt: time.Now(),
		failing: map[op]error{}, errors: map[op]uint64{}}
}

// call makes one call, bounded by the time-out, and recovers its panics. If ctx has ended, what it
// returned means nothing.
func (f *faults) call(ctx context.Context, what op, call func(context.Context) error) (err error) {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the store panicked: %v", p)
		}
		if err != nil {
			err = fmt.Errorf("cluster: %s: %w", what, err)
		}
		if err == nil || ctx.Err() == nil {
			f.note(what, err)
		}
	}()
	return call(bounded)
}

// note notes how a call went.
func (f *faults) note(what op, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.errors[what]++
	}
	if what == opEnumerate { // whoever holds leases there says so himself
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
		f.log(slog.LevelInfo, "cluster: the registry works again", "after", lasted.Round(time.Millisecond))
	}
}

// errorOf returns the error of the last call.
func (f *faults) errorOf(what op) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failing[what]
}

// now returns what fails, and since when that, or nothing, does.
func (f *faults) now() (changedAt time.Time, err error) {
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
