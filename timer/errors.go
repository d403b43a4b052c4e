package timer

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/timer/control"
)

var (
	// ErrMaxRunTime is the cause of a run's context after MaxRunTime.
	ErrMaxRunTime = errors.New("timer: the run reached its MaxRunTime")
	// ErrDraining is the cause of a run's context if the run outlasted DrainTimeout.
	ErrDraining = errors.New("timer: the host is shutting down")
	// ErrCanceled is matched by every *CanceledError: an operator or the program canceled the run.
	ErrCanceled = errors.New("timer: the run was canceled")
	// ErrNoRun is returned by CancelRun if no matching run is in progress.
	ErrNoRun = control.ErrNoRun
	// ErrRefused is matched by every *RefusedError.
	ErrRefused = errors.New("refused")
	// ErrNoTimer is returned if no timer of that name is registered on this host.
	ErrNoTimer = errors.New("timer: no timer of that name")

	errShuttingDown = errors.New("timer: the scheduler is shutting down: nothing can be registered any more")

	errNilContext = errors.New("timer: the context is nil: use context.Background()")
	errGoexit     = guard.Goexit("handler")
)

// A RefusedError says why Trigger started no run.
type RefusedError struct {
	Timer  string
	Reason Reason
	Err    error // a *dlock.NotAcquiredError or *dlock.StoreError if the store refused
}

func (r *RefusedError) Error() string {
	if r.Err != nil {
		return fmt.Sprintf("timer %q: refused: %s: %v", r.Timer, r.Reason, r.Err)
	}
	return fmt.Sprintf("timer %q: refused: %s", r.Timer, r.Reason)
}

// Is makes errors.Is(err, ErrRefused) return true.
func (r *RefusedError) Is(target error) bool { return target == ErrRefused }

func (r *RefusedError) Unwrap() error { return r.Err }

// A CanceledError is the cause of a run's context after CancelRun or CancelSlot.
type CanceledError struct {
	By  driver.Cause // who canceled the run, and why
	Err error        // the *dlock.LostError if the run was canceled through the store, else nil
}

func (c *CanceledError) Error() string { return fmt.Sprintf("timer: the run was canceled %s", c.By) }

// Is makes errors.Is(err, ErrCanceled) return true.
func (c *CanceledError) Is(target error) bool { return target == ErrCanceled }

func (c *CanceledError) Unwrap() error { return c.Err }

// A PanicError is the error of a handler that panicked. Value is the argument of panic. Stack is
// the stack of the goroutine, as debug.Stack returns it.
type PanicError = guard.PanicError

// A StuckError is returned by Run if a handler did not return although its context had ended, or if
// a hook did not return. Their goroutines still exist. The slots of the handlers are left to
// expire.
type StuckError struct {
	Timers []string // the timers of the handlers, by name, once per run
	Hook   string   // the hook in Config.Hooks, such as "RunEnded"; "" if none is stuck
}

func (s *StuckError) Error() string {
	var left []string
	if len(s.Timers) > 0 {
		left = append(left, fmt.Sprintf("%d handlers that ignore their context: %s", len(s.Timers),
			strings.Join(s.Timers, ", ")))
	}
	if s.Hook != "" {
		left = append(left, fmt.Sprintf("the hook %s, which does not return", s.Hook))
	}
	return "timer: shut down with " + strings.Join(left, ", and ")
}
