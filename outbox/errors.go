package outbox

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/guard"
)

var (
	// ErrOtherMessage is matched by the error of Append if a message with the same ID has another
	// topic, key or payload. Then two events have the same ID, so one of them would be lost.
	ErrOtherMessage = errors.New("outbox: another message has this ID")
	// ErrTooLong is matched by the error for a payload or headers that are too long.
	ErrTooLong = errors.New("outbox: too long")
	// ErrTooOld is matched by the error of Requeue for messages that are so old that a receiver may
	// have forgotten them.
	ErrTooOld = errors.New("outbox: a receiver may have forgotten them")
	// ErrPermanent is matched by the errors that Permanent returns.
	ErrPermanent = errors.New("outbox: another attempt would not fix it")
	// ErrNoMessage is matched by the error for a message that does not exist, or was deleted.
	ErrNoMessage = errors.New("outbox: there is no such message")

	errNoDatabase = fmt.Errorf("outbox: %w: there is no database: make the Outbox with pgxoutbox.New, or with "+
		"outbox.MySQL, SQLite or SQLServer", dlock.ErrSetup)
	errClosed     = fmt.Errorf("outbox: %w", dlock.ErrClosed)
	errNilContext = errors.New("outbox: the context is nil: use context.Background()")
	errNoTx       = errors.New("outbox: there is no transaction: append a message in the transaction that changes " +
		"the state it belongs to: see outbox.SQLTx and pgxoutbox.Tx")
)

// Permanent marks an error that another attempt would not fix, so that the message is dead
// immediately. The error matches ErrPermanent, and errors.Is and errors.As see through the mark.
// Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanentError{err}
}

type permanentError struct{ err error }

func (p permanentError) Error() string        { return p.err.Error() }
func (p permanentError) Unwrap() error        { return p.err }
func (p permanentError) Is(target error) bool { return target == ErrPermanent }

// RetryAfter marks an error so that the message is tried again after d instead of the wait of
// RelayConfig.Retry. d is 0 to 24 h. The wait ends no later than when Retry.MaxElapsedTime is over.
// The attempt counts. errors.Is and errors.As see through the mark. RetryAfter(d, nil) is nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &RetryAfterError{Wait: min(max(d, 0), maxWait), Err: err}
}

// A RetryAfterError is the error that RetryAfter returns.
type RetryAfterError struct {
	Wait time.Duration
	Err  error
}

func (r *RetryAfterError) Error() string { return r.Err.Error() }
func (r *RetryAfterError) Unwrap() error { return r.Err }

// A PanicError is the error of a sink that panicked. Value is the argument of panic. Stack is the
// stack of the sink's goroutine, as debug.Stack returns it.
type PanicError = guard.PanicError

// A StuckError is the error of Run when sinks have not returned although their contexts have ended,
// and their goroutines are still running. Another relay delivers their messages again.
type StuckError struct{ Topics []string }

func (s *StuckError) Error() string {
	return "outbox: shut down with sinks that ignore their context, of the topics " + strings.Join(s.Topics, ", ")
}
