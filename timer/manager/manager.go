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

	// Rows returns the whole set. If it returns an error, panics or takes longer than SyncTimeout,
	// no timer changes. An empty set without an error removes all timers of the Manager. Required.
	Rows func(ctx context.Context) ([]Row, error)

	// Name returns the name of the timer of a row. If it panics, the row is skipped. Required.
	Name func(Row) string

	// Timer returns the timer of a row; the Manager sets its Name. It is called for rows that are
	// new, have changed, or had a fault. Rows are compared with ==, so use only numbers and text in
	// a Row. A row with pointers, or with times that are computed for each round, may seem changed
	// in every round. A row for which == panics, for example because a field of type any has a
	// []byte, is faulty. Required.
	Timer func(Row) (timer.Timer, error)

	// SyncInterval is the time between two rounds of Run. It is randomly shortened by up to a
	// tenth, so that hosts do not all read the rows at the same time. After a failed round, the
	// next one follows after a tenth of SyncInterval. Default 1 min.
	SyncInterval time.Duration

	// SyncTimeout bounds two parts of a round. The first part is all its calls of Rows, Name and
	// Timer together; no timer changes before they have returned. The second part registers and
	// updates timers, which calls each timer's Schedule, Config.Middleware and Config.TimerLabel.
	// If one of these calls takes too long, the timers after it remain unchanged, and its own timer
	// changes when the call returns. A round begins only after all calls of the previous round have
	// returned. Default 10 s.
	SyncTimeout time.Duration

	// Logger receives a line when timers have changed, when rows cannot be read, when they can be
	// read again, and for each fault of a row. Default slog.Default().
	Logger *slog.Logger
}

// A Manager keeps the timers of a Scheduler in sync with rows. Each round reads the rows, registers
// the timers of new rows, and updates the timers whose rows have changed, as Scheduler.Update does.
// It removes the timers whose rows are gone, without waiting for their runs, and leaves all others
// unchanged. A Manager changes only its own timers. If other code has already registered a name,
// the row with that name is faulty.
//
// A faulty row does not affect other rows. If Config.Timer fails or panics for a row, or its timer
// does not pass the checks of Register, an existing timer remains unchanged and a new one is not
// registered. Every round tries the row again. If several rows have the same name, the Manager uses
// one of them and reports a fault. Sync and Err return the faults. Each fault is logged once, until
// it changes. Only a call that hangs or ends with runtime.Goexit ends a round: see
// Config.SyncTimeout. The error then names the row whose timer was being created.
//
// If other code removes a timer of the Manager, the next round registers it again, unless its
// schedule is an At whose instants have all passed. The name belongs to the Manager until its row
// is gone. If other code registers a timer with that name in the meantime, the Manager treats that
// timer as the row's: it updates the timer when the row changes, and removes it with the row.
//
// If a row disappears and returns, so does its timer. As after a restart of the fleet, its latest
// tick runs immediately if it was due in the meantime and CatchUp says so. If a tenant may be
// suspended, set CatchUpSkip on its timer, or keep the row and pause the timer with a
// control.Control.
//
// Hosts do not all notice a change at the same time. As in a rolling deployment, they may differ
// for up to a Config.SyncInterval.
type Manager[Row comparable] struct {
	config Config[Row]

	mu     sync.Mutex    // guards the next three fields
	busy   chan struct{} // closed when the round in progress has ended; nil if there is none
	err    error         // the error of the latest round
	failed bool          // whether a failed round was logged

	// The remaining fields belong to the round in progress.
	timers   map[string]*managed[Row] // by name
	round    uint64
	nameless string                 // how many rows were skipped, and the error of the first one
	making   atomic.Pointer[string] // the name of the timer that is being created from a row; nil if none is
}

// New returns a Manager, or every fault of its settings. It does not call any function of the
// Config.
func New[Row comparable](config Config[Row]) (*Manager[Row], error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	return &Manager[Row]{config: config}, nil
}

// Run starts a round immediately, and then one every SyncInterval, until ctx ends or the Scheduler
// drains. The timers remain registered. Run returns an error if a call that Config.SyncTimeout
// bounds has not returned within timer.CancelGrace after the end of ctx. In that case a goroutine
// remains. Otherwise Run returns nil. Run may be called before, during or without Scheduler.Run.
func (m *Manager[Row]) Run(ctx context.Context) error {
	if err := m.check(ctx); err != nil {
		return err
	}
	wait := time.NewTimer(0)
	defer wait.Stop()
	var broken *roundError // how the previous round failed; nil if it did not
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
			grace = 0 // the call has already had its grace period
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

// Sync runs one round now, after any round in progress. It is meant for tests, and for programs
// that have changed the rows themselves. It returns every fault, at most 20 of them for rows, or
// why the round failed.
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

// sync runs a round in its own goroutine, because the user's code may hang or call runtime.Goexit.
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

// Err returns the error of the latest round. It returns nil if that round found no fault, or if
// there was no round yet.
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

// complete sets the defaults and returns every fault.
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

// begin begins a round once no other round is in progress.
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

// locate adds the name of the row that the round is processing, if any, to an error.
func (m *Manager[Row]) locate(err error) error {
	if name := m.making.Load(); name != nil {
		return fmt.Errorf("%w (at the row of timer %.60q)", err, *name)
	}
	return err
}

// A roundError says why a round failed.
type roundError struct {
	err      error
	text     string
	stuck    bool            // true: a call of this round has not returned; false: a call of the previous round
	underWay <-chan struct{} // closed when that call has returned; nil if all have
}

// ignoresContext reports whether a call of the user's code is still running after a further grace
// period.
func (r *roundError) ignoresContext(grace time.Duration) bool {
	if r.underWay == nil {
		return false
	}
	_, returned := lifecycle.Await(r.underWay, grace)
	return !returned
}

// newRoundError formats the text immediately, because the error's methods may be user code.
func newRoundError(err error) *roundError { return &roundError{err: err, text: fmt.Sprintf("%v", err)} }

func (r *roundError) Error() string { return "manager: the timers do not follow the rows: " + r.text }

func (r *roundError) Unwrap() error { return r.err }

// note keeps the error of a round. It logs when the rows cannot be followed, and when they can be
// followed again.
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

// log returns the Logger. It is called for each line, because slog.Default may change.
func (m *Manager[Row]) log() *slog.Logger { return mask.Logger(m.config.Logger) }
