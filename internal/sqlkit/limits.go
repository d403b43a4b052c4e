package sqlkit

import (
	"context"
	"time"
)

// LastResort bounds a wait in the database if the context has no deadline. A dlock.Session always
// sets one.
const LastResort = 5 * time.Second

// MaxStale is how many connections in a row may have been closed by the server. Each is replaced.
const MaxStale = 100

// ReadOnly is the SQLSTATE with which a replica refuses to write.
const ReadOnly = "25006"

// MaxWait returns how long a statement may wait in the database, at most: nine tenths of the time
// that the caller has left, so that the error still reaches the caller, and no statement continues
// for long after the caller has given up.
func MaxWait(ctx context.Context, most time.Duration) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return LastResort
	}
	return max(time.Millisecond, min(time.Until(deadline)*9/10, most))
}
