package timer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// DefaultSyncInterval is the default of Manager.SyncInterval.
	DefaultSyncInterval = time.Minute
	// DefaultSyncTimeout is the default of Manager.SyncTimeout.
	DefaultSyncTimeout = 10 * time.Second

	// manyFaults is how many faults Err names.
	maxNamedFaults = 20
)

// A Manager keeps the timers of a Scheduler in step with a set that changes at run time, such as a
// table with a row for each tenant. In each round it reads the set. It registers the timers of new
// rows, updates those whose row has changed, as Update does, removes those whose row is gone,
// without waiting for their runs, and leaves all others alone. It touches no timer but its own: a
// name that the code has registered is a fault of the row.
//
// A row with a fault harms no other: if the Timer of a row fails, panics, or does not pass the
// checks of Register, the timer goes on as it was, or is not registered if it is new, and the row
// is tried again in every round. If several rows have one name, one of them is used, and that there
// are several is a fault. Sync and Err return the faults; each is logged once, until it changes.
// Only a call that hangs, or ends with runtime.Goexit, stops all changes: see SyncTimeout. The
// error names the row whose timer was being made.
//
// If other code removes a timer of the Manager, the next round registers it again, unless its
// schedule is an At of which no instant is left.
//
// A row that went and comes back is a timer that comes back: its latest tick runs at once if it
// came due meanwhile and CatchUp says so, as after a restart of the fleet. Let the Timer of a
// tenant that may be suspended have CatchUpSkip, or keep the row and pause the timer with a
// Control.
//
// It does not promise that all hosts see a change at once: for up to a SyncInterval they differ, as
// in a rolling deploy.
type Manager[Row comparable] struct {
	// Scheduler runs the timers. Required.
	Scheduler *Scheduler

	// Rows returns the whole set. An error, a panic or a call that takes longer than SyncTimeout
	// changes nothing; an empty set without an error removes all timers of the Manager. Required.
	Rows func(ctx context.Context) ([]Row, error)

	// Name returns the name of the timer of a row. A row for which it panics is left out. Required.
	Name func(Row) string

	// Timer returns the timer of a row; its Name is set for it. It is called for rows that are new,
	// have changed, or had a fault. Rows are compared with ==: one with pointers, or with instants
	// that are read anew, may seem to have changed in every round, and one for which == panics, as
	// with a []byte in a field of type any, has a fault. So let a Row hold numbers and text.
	// Required.
	Timer func(Row) (Timer, error)

	// SyncInterval is the time between two rounds of Run. It is shortened at random by up to a
	// tenth, so that not all hosts ask at once. After a round in which Rows failed the next one
	// comes ten times as soon. Default 1 min.
	SyncInterval time.Duration

	// SyncTimeout bounds a round's calls of Rows, Name and Timer together, and those that make a
	// timer of a row: of its Schedule, Config.Middleware and Config.TimerLabel. A round does not
	// begin before those of the one before have returned. Default 10 s.
	SyncTimeout time.Duration

	mu     sync.Mutex    // guards the next three
	busy   chan struct{} // closed when the round under way has ended; nil: none is
	err    error         // of the latest round
	failed bool          // it was logged that the rows cannot be read

	// The rest belongs to the round under way.
	timers     map[string]*managed[Row] // by name
	round      uint64
	nameless   string // how many rows were left out, and why the first was
	faultLines rateLimit
	making     atomic.Pointer[string] // the name of the timer that is being made of a row; nil: none is
}

// Run begins a round at once, and then one every SyncInterval, until ctx ends or the Scheduler
// drains. The timers stay registered. It returns every fault of the Manager's settings, or an error
// if a call that SyncTimeout bounds did not return within CancelGrace of the end of ctx, so that a
// goroutine is left; otherwise nil. It may run before, beside or without Scheduler.Run.
func (m *Manager[Row]) Run(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	if err := m.check(); err != nil {
		return err
	}
	wait := time.NewTimer(0)
	defer wait.Stop()
	var broken *roundError // what the round before ended with; nil: the rows were read
	for {
		select {
		case <-ctx.Done():
			if broken != nil && broken.goesOn(CancelGrace) {
				return broken
			}
			return nil
		case <-wait.C:
		}
		failed, grace := false, CancelGrace
		broken, failed = m.Sync(ctx).(*roundError)
		if failed && broken.stuck {
			grace = 0 // it has had its grace
		}
		switch phase := m.Scheduler.registry.current(); {
		case ctx.Err() != nil && failed && broken.goesOn(grace):
			return broken
		case ctx.Err() != nil || phase == PhaseDraining || phase == PhaseStopped:
			return nil
		}
		pause := orDefault(m.SyncInterval, DefaultSyncInterval)
		if failed {
			pause /= 10
		}
		wait.Reset(pause - rand.N(pause/10+1))
	}
}

// Sync carries out one round now, after the one that is under way if there is one: for tests, and
// for a program that has changed the set itself. It returns every fault, at most 20 of rows; or why
// Rows failed, in which case nothing has changed.
func (m *Manager[Row]) Sync(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	if err := m.check(); err != nil {
		return err
	}
	timeout := orDefault(m.SyncTimeout, DefaultSyncTimeout)
	bounded, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	err := m.sync(bounded)
	if ctx.Err() == nil {
		m.note(err)
	}
	m.Scheduler.log.flush()
	return err
}

// sync carries out a round.
func (m *Manager[Row]) sync(ctx context.Context) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	done := make(chan error, 1)
	go m.carryOut(ctx, done)
	err, returned := m.await(ctx, done)
	if returned {
		m.end()
		return err
	}
	stuck := newRoundError(m.locate(context.Cause(ctx)))
	stuck.stuck, stuck.underWay = true, m.busy
	go func() { // nothing else happens until the call has returned
		<-done
		m.end()
	}()
	return stuck
}

// Err returns what the latest round returned; nil: it found no fault, or there was none yet.
func (m *Manager[Row]) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

func (m *Manager[Row]) check() error {
	var errs []error
	for _, required := range []struct {
		field string
		isNil bool
	}{{"Scheduler", m.Scheduler == nil}, {"Rows", m.Rows == nil}, {"Name", m.Name == nil}, {"Timer", m.Timer == nil}} {
		if required.isNil {
			errs = append(errs, fmt.Errorf("timer: Manager.%s: it is nil: set it", required.field))
		}
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"SyncInterval", m.SyncInterval}, {"SyncTimeout", m.SyncTimeout}} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("timer: Manager.%s: %v is negative: use a positive duration, or 0 for the "+
				"default", d.field, d.value))
		}
	}
	return errors.Join(errs...)
}

// begin begins a round when no other is under way.
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

// await waits for the end of a round, and for CancelGrace after the end of ctx. returned is false
// if it goes on.
func (m *Manager[Row]) await(ctx context.Context, done <-chan error) (err error, returned bool) {
	select {
	case err = <-done:
		return err, true
	case <-ctx.Done():
	}
	grace := time.NewTimer(CancelGrace)
	defer grace.Stop()
	select {
	case err = <-done:
		return err, true
	case <-grace.C:
		return nil, false
	}
}

// locate adds to an error which row the round under way is at, if it is at one.
func (m *Manager[Row]) locate(err error) error {
	if name := m.making.Load(); name != nil {
		return fmt.Errorf("%w (at the row of timer %.60q)", err, *name)
	}
	return err
}

// A roundError is why a round changed nothing.
type roundError struct {
	err      error
	text     string
	stuck    bool            // a call of this round has not returned; else, of the one before it
	underWay <-chan struct{} // closed when that has returned; nil: all have
}

// goesOn reports whether a call of the user's code has not returned, and does not within grace.
func (e *roundError) goesOn(grace time.Duration) bool {
	if e.underWay == nil {
		return false
	}
	select {
	case <-e.underWay:
		return false
	case <-time.After(grace):
		return true
	}
}

// newRoundError makes the text at once: the methods of the error may be the user's.
func newRoundError(err error) *roundError { return &roundError{err: err, text: fmt.Sprintf("%v", err)} }

func (e *roundError) Error() string {
	return "timer: the rows of a Manager were not read, so its timers stay as they are: " + e.text
}

func (e *roundError) Unwrap() error { return e.err }

// note keeps what a round returned, and logs that the rows cannot be read, or can be again.
func (m *Manager[Row]) note(err error) {
	broken, failed := err.(*roundError)
	m.mu.Lock()
	before := m.failed
	m.err, m.failed = err, failed
	m.mu.Unlock()
	switch log := m.Scheduler.log; {
	case failed && !before:
		log.later(slog.LevelWarn, "timer: the rows of a Manager were not read; its timers stay as they are",
			"err", broken.text)
	case !failed && before:
		log.later(slog.LevelInfo, "timer: the rows of a Manager were read again")
	}
}

// faults returns the faults of rows, sorted by name.
func (m *Manager[Row]) faults(nameless []namelessRow) error {
	var errs []error
	for _, row := range nameless {
		errs = append(errs, row)
	}
	for name, t := range m.timers {
		if fault := t.faultOf(name); fault != nil {
			errs = append(errs, fault)
		}
	}
	if len(errs) > maxNamedFaults {
		slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		left := len(errs) - maxNamedFaults
		errs = append(errs[:maxNamedFaults:maxNamedFaults], fmt.Errorf("timer: %d more rows have a fault", left))
		return errors.Join(errs...)
	}
	return sorted(errs)
}

func orDefault(d, byDefault time.Duration) time.Duration {
	if d == 0 {
		return byDefault
	}
	return d
}
