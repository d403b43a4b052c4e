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
	// ErrOtherMessage is matched by the error of Append if there is a message with the same ID and
	// another topic, key or payload: two things that happened have the same ID, and one of them
	// would be lost.
	ErrOtherMessage = errors.New("outbox: another message has this ID")
	// ErrTooLong is matched by the error for a payload, or headers, that are too long.
	ErrTooLong = errors.New("outbox: too long")
	// ErrTooOld is matched by the error of Requeue for messages that a receiver may have had and
	// forgotten.
	ErrTooOld = errors.New("outbox: a receiver may have forgotten that it has had them")
	// ErrPermanent is matched by what Permanent returns.
	ErrPermanent = errors.New("outbox: another attempt would not fix it")
	// ErrNoMessage is matched by the error for a message that does not exist, or does not any more.
	ErrNoMessage = errors.New("outbox: there is no such message")

	errNoDatabase = fmt.Errorf("outbox: %w: there is no database: make the Outbox with pgxoutbox.New, or with "+
		"outbox.MySQL, SQLite or SQLServer", dlock.ErrSetup)
	errClosed     = fmt.Errorf("outbox: %w", dlock.ErrClosed)
	errNilContext = errors.New("outbox: the context is nil: use context.Background()")
	errNoTx       = errors.New("outbox: there is no transaction: a message is appended in the one that changes the " +
		"state it belongs to; see outbox.SQLTx and pgxoutbox.Tx")
)

// Permanent marks an error that another attempt would not fix: the message is dead at once. It
// matches ErrPermanent, and errors.Is and errors.As see through it. Permanent(nil) is nil.
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

// RetryAfter marks an error after which the message is tried again in d, and not when
// RelayConfig.Retry says; 0 to 24 h, and no longer than until Retry.MaxElapsedTime is over. The
// attempt counts. errors.Is and errors.As see through it.
// RetryAfter(d, nil) is nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &RetryAfterError{Wait: min(max(d, 0), maxWait), Err: err}
}

// A RetryAfterError is what RetryAfter returns.
type RetryAfterError struct {
	Wait time.Duration
	Err  error
}

func (r *RetryAfterError) Error() string { return r.Err.Error() }
func (r *RetryAfterError) Unwrap() error { return r.Err }

// A PanicError is the error of a sink that panicked. Its Value is what the sink called panic with,
// and Stack that of its goroutine, as debug.Stack returns it.
type PanicError = guard.PanicError

// A StuckError is returned by Run when sinks have not returned although their contexts have ended,
// and their goroutines are still there. Another relay delivers their messages again.
type StuckError struct{ Topics []string }

func (s *StuckError) Error() string {
	return "outbox: shut down with sinks that ignore their context, of the topics " + strings.Join(s.Topics, ", ")
}
