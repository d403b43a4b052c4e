package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/internal/lifecycle"
	"github.com/tickslot/tickslot/internal/mask"
	"github.com/tickslot/tickslot/timer"
)

const (
	// defaultSyncInterval is the default of Config.SyncInterval.
	defaultSyncInterval = time.Minute
	// defaultSyncTimeout is the default of Config.SyncTimeout.
	defaultSyncTimeout = 10 * time.Second
)

// Config has the settings of a Manager. Scheduler, Rows, Name and Timer are required.
type Config[Row comparable] struct {
	// Scheduler runs the timers. Required.
	Scheduler *timer.Scheduler

	// Rows returns the whole set. An error, a panic or a call that takes longer than SyncTimeout
	// changes nothing. An empty set without an error removes all timers of the Manager. Required.
	Rows func(ctx context.Context) ([]Row, error)

	// Name returns the name of the timer of a row. A row for which it panics is left out. Required.
	Name func(Row) string

	// Timer returns the timer of a row; the Manager sets its Name. It is called for rows that are
	// new, have changed, or had a fault. Rows are compared with ==, so let a Row hold numbers and
	// text only: one with pointers, or with instants that are read anew, may seem changed in every
	// round, and one for which == panics, as with a []byte in a field of type any, has a fault.
	// Required.
	Timer func(Row) (timer.Timer, error)

	// SyncInterval is the time between two rounds of Run. It is shortened at random by up to a
	// tenth, so that not all hosts read the rows at once. After a round that could not be carried
	// out, the next one comes after a tenth of it. Default 1 min.
	SyncInterval time.Duration

	// SyncTimeout bounds two parts of a round: first its calls of Rows, Name and Timer together,
	// before which nothing changes; then the registering and updating of timers, which calls each
	// timer's Schedule, Config.Middleware and Config.TimerLabel. If one of these takes longer, the
	// timers after it stay as they are, and its own timer changes when the call returns. A round
	// begins only when all calls of the one before have returned. Default 10 s.
	SyncTimeout time.Duration

	// Logger gets a line when timers have changed, when rows cannot be read, when they can be read
	// again, and for each fault of a row. Default slog.Default().
	Logger *slog.Logger
}

// A Manager keeps the timers of a Scheduler in step with rows. In each round it reads the rows. It
// registers the timers of new rows, updates those whose row has changed, as Scheduler.Update does,
// removes those whose row is gone, without waiting for their runs, and leaves all others unchanged.
// It touches only its own timers: if other code has registered a name first, that is a fault of the
// row.
//
// A row with a fault harms no other. If Config.Timer fails or panics for a row, or its timer does
// not pass the checks of Register, the timer stays as it was, or is not registered if it is new;
// every round tries the row again. If several rows have one name, the Manager uses one of them, and
// reports a fault. Sync and Err return the faults; each is logged once, until it changes. Only a
// call that hangs, or ends with runtime.Goexit, ends a round: see Config.SyncTimeout. The error
// then names the row whose timer was being made.
//
// If other code removes a timer of the Manager, the next round registers it again, unless its
// schedule is an At whose instants have all passed. The name belongs to the Manager until its row
// is gone. If other code registers a timer by that name in the meantime, that timer counts as the
// row's: it is updated when the row changes, and removed with it.
//
// If a row disappears and comes back, so does its timer: as after a restart of the fleet, its
// latest tick runs immediately if it came due in the meantime and CatchUp says so. If a tenant may
// be suspended, give its timer CatchUpSkip, or keep the row and pause the timer with a
// control.Control.
//
// Hosts do not all see a change at the same time: as in a rolling deploy, they may differ for up to
// a Config.SyncInterval.
type Manager[Row comparable] struct {
	config Config[Row]

	mu     sync.Mutex    // guards the next three
	busy   chan struct{} // closed when the round in progress has ended; nil: none is
	err    error         // of the latest round
	failed bool          // it was logged that the rows cannot be followed

	// The rest belongs to the round in progress.
	timers   map[string]*managed[Row] // by name
	round    uint64
	nameless string                 // how many rows were left out, and why the first one was
	making   atomic.Pointer[string] // the name of the timer that is being made from a row; nil: none is
}

// New returns a Manager, or every fault of its settings. It calls nothing.
func New[Row comparable](config Config[Row]) (*Manager[Row], error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	return &Manager[Row]{config: config}, nil
}

// Run carries out a round immediately, and then one every SyncInterval, until ctx ends or the
// Scheduler drains. The timers stay registered. If a call that Config.SyncTimeout bounds has not
// returned within timer.CancelGrace of the end of ctx, so that a goroutine is left, Run returns an
// error; otherwise nil. It may be called before, during or without Scheduler.Run.
func (m *Manager[Row]) Run(ctx context.Context) error {
	if err := m.check(ctx); err != nil {
		return err
	}
	wait := time.NewTimer(0)
	defer wait.Stop()
	var broken *roundError // how the previous round ended; nil: it was carried out
	for {
		select {
		case <-ctx.Done():
			if broken != nil && broken.ignoresContext(timer.CancelGrace) {
				return broken
			}
			return nil
		case <-wait.C:
		}
		failed, grace := false, timer.CancelGrace
		broken, failed = m.Sync(ctx).(*roundError)
		if failed && broken.stuck {
			grace = 0 // the call has had its grace
		}
		switch {
		case ctx.Err() != nil && failed && broken.ignoresContext(grace):
			return broken
		case ctx.Err() != nil || m.isOver():
			return nil
		}
		pause := m.config.SyncInterval
		if failed {
			pause /= 10
		}
		wait.Reset(pause - rand.N(pause/10+1))
	}
}

// Sync carries out one round now, after the round in progress if there is one: for tests, and for a
// program that has changed the rows itself. It returns every fault, of rows at most 20, or why the
// round could not be carried out.
func (m *Manager[Row]) Sync(ctx context.Context) error {
	if err := m.check(ctx); err != nil {
		return err
	}
	timeout := m.config.SyncTimeout
	bounded, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	err := m.sync(bounded)
	if ctx.Err() == nil {
		m.note(err)
	}
	return err
}

// sync carries out a round in a goroutine of its own, because the user's code may hang or call
// runtime.Goexit.
func (m *Manager[Row]) sync(ctx context.Context) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	done := make(chan error, 1)
	go m.carryOut(ctx, done)
	err, returned := lifecycle.AwaitEnd(ctx, done, timer.CancelGrace)
	if returned {
		m.end()
		return err
	}
	stuck := newRoundError(m.locate(context.Cause(ctx)))
	stuck.stuck, stuck.underWay = true, m.busy
	go func() { // no other round begins until the call has returned
		<-done
		m.end()
	}()
	return stuck
}

// Err returns the error of the latest round; nil: it found no fault, or there was no round yet.
func (m *Manager[Row]) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

func (m *Manager[Row]) check(ctx context.Context) error {
	switch {
	case m == nil || m.config.Scheduler == nil:
		return errors.New("manager: an empty *Manager: make one with New")
	case ctx == nil:
		return errors.New("manager: the context is nil: use context.Background()")
	}
	return nil
}

// complete fills in the defaults, and returns every fault.
func (c *Config[Row]) complete() error {
	var errs []error
	for _, required := range []struct {
		field string
		isNil bool
	}{{"Scheduler", c.Scheduler == nil}, {"Rows", c.Rows == nil}, {"Name", c.Name == nil}, {"Timer", c.Timer == nil}} {
		if required.isNil {
			errs = append(errs, fmt.Errorf("manager: Config.%s: it is nil: set it", required.field))
		}
	}
	for _, d := range []struct {
		field string
		value *time.Duration
		or    time.Duration
	}{{"SyncInterval", &c.SyncInterval, defaultSyncInterval}, {"SyncTimeout", &c.SyncTimeout, defaultSyncTimeout}} {
		if *d.value < 0 {
			errs = append(errs, fmt.Errorf("manager: Config.%s: %v is negative: use a positive duration, or 0 for "+
				"the default", d.field, *d.value))
		}
		*d.value = cmp.Or(*d.value, d.or)
	}
	return errors.Join(errs...)
}

// isOver reports whether the Scheduler accepts no more timers.
func (m *Manager[Row]) isOver() (over bool) {
	m.config.Scheduler.Runners(func(kind, _, state string, _ time.Time, _ error) {
		phase := timer.Phase(state)
		over = over || kind == "scheduler" && (phase == timer.PhaseDraining || phase == timer.PhaseStopped)
	})
	return over
}

// begin begins a round when no other is in progress.
func (m *Manager[Row]) begin(ctx context.Context) error {
	for {
		m.mu.Lock()
		other := m.busy
		if other == nil {
			m.busy = make(chan struct{})
		}
		m.mu.Unlock()
		if other == nil {
			return nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			err := newRoundError(m.locate(fmt.Errorf("the round before has not ended: %w", context.Cause(ctx))))
			err.underWay = other
			return err
		}
	}
}

func (m *Manager[Row]) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.busy)
	m.busy = nil
}

// locate adds to an error which row the round in progress is at, if it is at one.
func (m *Manager[Row]) locate(err error) error {
	if name := m.making.Load(); name != nil {
		return fmt.Errorf("%w (at the row of timer %.60q)", err, *name)
	}
	return err
}

// A roundError says why a round was not carried out.
type roundError struct {
	err      error
	text     string
	stuck    bool            // a call of this round has not returned; otherwise a call of the round before
	underWay <-chan struct{} // closed when that call has returned; nil: all have
}

// ignoresContext reports whether a call of the user's code is still running after another grace.
func (r *roundError) ignoresContext(grace time.Duration) bool {
	if r.underWay == nil {
		return false
	}
	_, returned := lifecycle.Await(r.underWay, grace)
	return !returned
}

// newRoundError makes the text immediately, because the methods of the error may be the user's.
func newRoundError(err error) *roundError { return &roundError{err: err, text: fmt.Sprintf("%v", err)} }

func (r *roundError) Error() string { return "manager: the timers do not follow the rows: " + r.text }

func (r *roundError) Unwrap() error { return r.err }

// note keeps the error of a round, and logs that the rows cannot be followed, or can be again.
func (m *Manager[Row]) note(err error) {
	broken, failed := err.(*roundError)
	m.mu.Lock()
	before := m.failed
	m.err, m.failed = err, failed
	m.mu.Unlock()
	switch {
	case failed && !before:
		m.log().Warn("manager: the timers do not follow the rows", "err", broken.text)
	case !failed && before:
		m.log().Info("manager: the timers follow the rows again")
	}
}

// log returns the Logger, anew each time, because slog.Default may change.
func (m *Manager[Row]) log() *slog.Logger { return mask.Logger(m.config.Logger) }
