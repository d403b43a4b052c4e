package sqlkit

import (
	"context"
	"time"
)

// LastResort bounds a wait in the database if the context has no deadline. A dlock.Session always
// sets one.
const LastResort = 5 * time.Second

// MaxStale is the number of consecutive connections that the server may have closed. Each is
// replaced.
const MaxStale = 100

// ReadOnly is the SQLSTATE with which a replica rejects writes.
const ReadOnly = "25006"

// MaxWait returns the maximum time that a statement may wait in the database: nine tenths of the
// caller's remaining time, up to most. So the error still reaches the caller, and no statement
// continues long after the caller has given up.
func MaxWait(ctx context.Context, most time.Duration) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return LastResort
	}
	return max(time.Millisecond, min(time.Until(deadline)*9/10, most))
}
