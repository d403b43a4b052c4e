package servertest

import (
	"context"
	"fmt"
	"time"
)

const (
	pollEvery = 5 * time.Millisecond

	// limit bounds the wait for a single server to start, stop, or freeze. It
	// is generous: a busy disk has taken seconds for the first checkpoint.
	limit = 30 * time.Second
)

// Poll calls check until it returns nil, and gives up after limit with what
// check said last.
func Poll(limit time.Duration, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %v: %w", what, limit, err)
		case <-tick.C:
		}
	}
}
