package durable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/answers"
	"github.com/tickslot/tickslot/internal/loop"
)

// lockedAgain is the delay after which a worker looks again for runs whose limit another
// transaction has locked.
const lockedAgain = 500 * time.Millisecond

var errClaimedLate = errors.New("the answer to the claim came so late that the lease was nearly over")

// A claimer claims at most as many due runs as there are free places, and passes them to the
// runner. A place that becomes free wakes the claimer's loop.
type claimer struct {
	*loop.Loop
	store    store.Worker
	database *database
	book     *leaseBook
	runner   *runner
	events   *events
	batch    *answers.Batch
	request  store.ClaimRequest // only its Limit changes
	draining atomic.Bool        // no further run starts

	wakeOthers func()    // wakes the claimers of the fleet
	wokeAt     time.Time // when wakeOthers was last called; used only by the loop's goroutine

	mu       sync.Mutex           // guards locked and reported, which checks read
	locked   map[string]time.Time // limits whose rows another session keeps locked, and since when
	reported map[string]bool      // the limits in locked that were logged
}

// claim is a step of the loop.
func (c *claimer) claim() time.Duration {
	limit := min(c.batch.Limit(), c.book.room())
	if limit == 0 || c.draining.Load() {
		return loop.Never // a place that becomes free wakes the loop
	}
	if !c.book.renewedLately() {
		c.events.Log(slog.LevelDebug, "durable: claim cycle skipped, because no lease was renewed recently")
		return c.book.ttl / 10
	}
	c.events.Log(slog.LevelDebug, "durable: claim cycle starting", "room", limit)
	request := c.request
	request.Limit = limit
	sent := now()
	claimed, err := call(c.database, opClaim, func(ctx context.Context) (store.Claimed, error) {
		return c.store.Claim(ctx, request)
	})
	c.batch.Ended(now().since(sent), err)
	if err != nil {
		return afterFailure() // any runs that the failed call has claimed will be reclaimed
	}
	c.noteLocked(claimed.Locked)
	for _, row := range claimed.Runs {
		switch {
		case c.draining.Load():
			c.runner.release(row, sent, ErrDraining)
		case c.book.late(sent):
			c.runner.release(row, sent, errClaimedLate)
		default:
			c.runner.start(row, sent, claimed.Now)
		}
	}
	c.events.Log(slog.LevelDebug, "durable: claim cycle completed", "claimed", len(claimed.Runs))
	wait := loop.Never
	switch {
	case len(claimed.Runs) == limit || claimed.More:
		return 0 // more runs may be due
	case !claimed.Next.IsZero():
		wait = claimed.Next.Sub(claimed.Now)
	}
	if claimed.Held {
		wait = min(wait, c.heldBack())
	}
	if len(claimed.Locked) > 0 {
		wait = min(wait, loop.Jittered(lockedAgain, 0.3))
	}
	return wait
}

// heldBack wakes the workers for which runs were left, at most once per Patience. It returns how
// soon this worker may take those runs itself.
func (c *claimer) heldBack() time.Duration {
	if time.Since(c.wokeAt) >= c.request.Patience {
		c.wakeOthers()
		c.wokeAt = time.Now()
	}
	return c.request.Patience + time.Millisecond // SQLite's clock counts milliseconds
}

// noteLocked records the limits whose rows were locked, and logs those that stay locked.
func (c *claimer) noteLocked(names []string) {
	c.mu.Lock()
	since := make(map[string]time.Time, len(names))
	for _, name := range names {
		since[name] = time.Now()
		if at, ok := c.locked[name]; ok {
			since[name] = at
		}
	}
	c.locked = since
	c.mu.Unlock()
	told := map[string]bool{}
	for name, at := range since {
		if told[name] = c.reported[name] || time.Since(at) >= lockedFor; told[name] && !c.reported[name] {
			c.events.Log(slog.LevelWarn, "durable: runs wait: another session has locked the row of their limit",
				"limit", limitName(name))
		}
	}
	c.reported = told
}

// limitsFree returns an error that names each limit whose row another session has kept locked for
// lockedFor.
func (c *claimer) limitsFree() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.locked)) {
		if took := time.Since(c.locked[name]); took >= lockedFor {
			errs = append(errs, fmt.Errorf("%s: another session has kept its row in the table of handlers locked "+
				"for %v: the runs that it limits wait", limitName(name), took.Round(time.Second)))
		}
	}
	return errors.Join(errs...)
}

func limitName(handler string) string {
	if handler == "" {
		return "MaxActive"
	}
	return fmt.Sprintf("the limits of handler %q", handler)
}

// afterFailure returns how soon to repeat a failed call that looks for work. It does not depend on
// PollInterval, because without an answer the worker does not know when the next run or tick is
// due.
func afterFailure() time.Duration { return loop.Jittered(defaultPollInterval, DefaultPollJitter) }
