package durable

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/loop"
)

var errClaimedLate = errors.New("the answer to the claim came so late that the lease was nearly over")

// A claimer takes runs that are due, as many as there is room for, and has the runner start them.
// Its loop takes a step also when a place has become free.
type claimer struct {
	*loop.Loop
	store    store.Worker
	database *database
	book     *leaseBook
	runner   *runner
	events   *events
	batch    int
	request  store.ClaimRequest // of which only Limit changes
	draining atomic.Bool        // nothing starts any more
}

// claim is a step of the loop.
func (c *claimer) claim() time.Duration {
	limit := min(c.batch, c.book.room())
	if limit == 0 || c.draining.Load() {
		return loop.Never // a place that becomes free wakes the loop
	}
	if !c.book.renewedLately() {
		c.events.Log(slog.LevelDebug, "durable: claim cycle skipped, because no lease was renewed lately")
		return c.book.ttl / 10
	}
	c.events.Log(slog.LevelDebug, "durable: claim cycle starting", "room", limit)
	request := c.request
	request.Limit = limit
	sent := now()
	claimed, err := call(c.database, opClaim, func(ctx context.Context) (store.Claimed, error) {
		return c.store.Claim(ctx, request)
	})
	if err != nil {
		return afterFailure() // what it may have claimed is reclaimed
	}
	for _, row := range claimed.Runs {
		switch {
		case c.draining.Load():
			c.runner.giveBack(row, sent, ErrDraining)
		case c.book.late(sent):
			c.runner.giveBack(row, sent, errClaimedLate)
		default:
			c.runner.start(row, sent, claimed.Now)
		}
	}
	c.events.Log(slog.LevelDebug, "durable: claim cycle completed", "claimed", len(claimed.Runs))
	switch {
	case len(claimed.Runs) == limit:
		return 0 // there may be more
	case claimed.Next.IsZero():
		return loop.Never
	default:
		return claimed.Next.Sub(claimed.Now)
	}
}

// afterFailure is how soon a failed call that looks for work is repeated, even if PollInterval is
// longer: without its answer nobody knows when the next run or tick is due.
func afterFailure() time.Duration { return loop.Jittered(DefaultPollInterval, DefaultPollJitter) }
