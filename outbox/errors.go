package outbox

import (
	"errors"
	"fmt"
	"strings"
	"time"
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
	// ErrNoMessage is matched by the error for a message that does not exist, or does not any more.
	ErrNoMessage = errors.New("outbox: there is no such message")

	errNoDatabase = errors.New("outbox: there is no database: use outbox.New with outbox.Postgres, MySQL or SQLite")
	errNilContext = errors.New("outbox: the context is nil: use context.Background()")
	errNoTx       = errors.New("outbox: there is no transaction: a message is appended in the one that changes the " +
		"state it belongs to; see outbox.PgxTx and outbox.SQLTx")
	errGoexit = errors.New("the sink called runtime.Goexit")
)

// Reject marks an error that another attempt would not mend: the message is dead at once.
// errors.Is and errors.As see through the mark. Reject(nil) is nil.
func Reject(err error) error {
	if err == nil {
		return nil
	}
	return &markedError{err: err, rejected: true}
}

// RetryAfter marks an error after which the message is tried again in d, and not when
// RelayConfig.Retry says; 0 to 24 h. The attempt counts. RetryAfter(d, nil) is nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &markedError{err: err, wait: min(max(d, 0), longestWait)}
}

// A markedError says what is to become of the message.
type markedError struct {
	err      error
	rejected bool
	wait     time.Duration
}

func (e *markedError) Error() string { return e.err.Error() }
func (e *markedError) Unwrap() error { return e.err }

// markOf returns the outermost mark; nil: none.
func markOf(err error) *markedError {
	mark, _ := errors.AsType[*markedError](err)
	return mark
}

// A PanicError is the error of a sink that panicked.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("the sink panicked: %v", e.Value) }

// A StuckError is returned by Run when sinks have not returned although their contexts have ended,
// and their goroutines are still there. Another relay delivers their messages again.
type StuckError struct{ Topics []string }

func (e *StuckError) Error() string {
	return "outbox: shut down with sinks that ignore their context, of the topics " + strings.Join(e.Topics, ", ")
}
