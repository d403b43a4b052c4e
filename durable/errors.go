package durable

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/guard"
)

var (
	// ErrLeaseLost is the cause of a run's context after its lease has ended. Another worker may
	// own the run now or soon.
	ErrLeaseLost = errors.New("durable: the lease of the run was lost")
	// ErrMaxRunTime is the cause of a run's context after HandlerOptions.MaxRunTime.
	ErrMaxRunTime = errors.New("durable: the run reached its MaxRunTime")
	// ErrDraining is the cause of a run's context when the run outlasted DrainTimeout.
	ErrDraining = errors.New("durable: the worker is shutting down")
	// ErrCanceled is matched by every *CanceledError: the run was canceled.
	ErrCanceled = errors.New("durable: the run was canceled")
	// ErrPayloadTooLong is matched by the error for a payload of more than MaxPayloadLen.
	ErrPayloadTooLong = errors.New("the payload is too long")

	errNilContext = errors.New("the context is nil: use context.Background()")
	errGoexit     = guard.Goexit("handler")
)

// named prefixes an error of a store with the name of this package. named(nil) is nil.
func named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("durable: %w", err)
}

// plural returns one if n is 1; otherwise it returns many with n in place of its %d.
func plural(n int64, one, many string) string {
	if n == 1 {
		return one
	}
	return fmt.Sprintf(many, n)
}

// A CanceledError is the cause of the context of a run that was canceled.
type CanceledError struct {
	By driver.Cause // who canceled it, and why
}

func (c *CanceledError) Error() string { return fmt.Sprintf("durable: the run was canceled %s", c.By) }

// Is makes errors.Is(err, ErrCanceled) true.
func (c *CanceledError) Is(target error) bool { return target == ErrCanceled }

// A PanicError is the error of a handler that panicked. Value is the argument of panic. Stack is
// the stack of the handler's goroutine, as debug.Stack returns it.
type PanicError = guard.PanicError

// A StuckError is the error of Run when a handler or a schedule's Next has not returned and its
// goroutine is still running. The leases of the handlers are left to expire, and other workers
// execute their runs again.
type StuckError struct {
	Handlers  []string // by name, once per run
	Schedules []string // whose Next does not return
	Hook      string   // of Config.Hooks, such as "RunEnded"; "": none
}

func (s *StuckError) Error() string {
	var left []string
	if len(s.Handlers) > 0 {
		left = append(left, plural(int64(len(s.Handlers)), "1 handler that ignores its context: ",
			"%d handlers that ignore their context: ")+strings.Join(s.Handlers, ", "))
	}
	if len(s.Schedules) > 0 {
		left = append(left, "schedules that do not return: "+strings.Join(s.Schedules, ", "))
	}
	if s.Hook != "" {
		left = append(left, fmt.Sprintf("the hook %s, which does not return", s.Hook))
	}
	return "durable: shut down with " + strings.Join(left, ", and ")
}

// Permanent marks an error that another attempt would not fix, so that the run becomes a dead
// letter immediately. errors.Is and errors.As see through the mark. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &markedError{err: err, permanent: true}
}

// RetryAfter marks an error so that the run is tried again after d instead of the wait of
// HandlerOptions.Retry, for example because a service has answered with Retry-After. The attempt
// counts. A negative d counts as 0, and a d of more than 366 days counts as 366 days. errors.Is and
// errors.As see through the mark. RetryAfter(d, nil) is nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &markedError{err: err, wait: min(max(0, d), maxRetryAfter)}
}

const maxRetryAfter = 366 * 24 * time.Hour

// A markedError is an error marked by Permanent or RetryAfter.
type markedError struct {
	err       error
	permanent bool
	wait      time.Duration // unless permanent
}

func (m *markedError) Error() string { return m.err.Error() }

func (m *markedError) Unwrap() error { return m.err }

// markOf returns the mark of an error, or nil if it has none. It calls methods of the user's error,
// which may panic.
func markOf(err error) *markedError {
	mark, _ := guard.As[*markedError](err)
	return mark
}

// unmarked removes the mark.
func unmarked(err error) error {
	if m, ok := err.(*markedError); ok {
		return m.err
	}
	return err
}

// maxErrorLen is the maximum number of bytes of an error that the database keeps.
const maxErrorLen = 4096

func textOf(err error) string { return guard.Text(err, maxErrorLen) }
