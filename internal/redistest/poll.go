package redistest

import (
	"context"
	"fmt"
	"time"
)

const (
	pollEvery = 5 * time.Millisecond

	// startLimit bounds the wait for a single server, settleLimit the wait for
	// several that have to find each other.
	startLimit  = 10 * time.Second
	settleLimit = 30 * time.Second
)

// poll calls check until it returns nil, and gives up after limit with what
// check said last.
func poll(limit time.Duration, what string, check func(context.Context) error) error {
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
			return fmt.Errorf("redistest: %s: not within %v: %w", what, limit, err)
		case <-tick.C:
		}
	}
}
