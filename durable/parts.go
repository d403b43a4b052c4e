package durable

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/loop"
	"github.com/tickslot/tickslot/internal/retention"
)

const (
	// sampleInterval is how often a worker asks for what health and metrics show.
	sampleInterval = 30 * time.Second
	sampleJitter   = 0.2
	sweepBatch     = 1000
	sweepPause     = 200 * time.Millisecond // between full batches: 5,000 rows a second, more than can end
	// A connection that listens is made again after pauses that grow from the first to the second.
	firstListenWait = time.Second
	longestListen   = time.Minute
)

// afterFailure is how soon a failed call that looks for work is repeated, even if PollInterval is
// longer: without its answer nobody knows when the next run or tick is due.
func afterFailure() time.Duration { return loop.Jittered(DefaultPollInterval, DefaultPollJitter) }

var errClaimedLate = errors.New("the answer to the claim came so late that the lease was nearly over")

// newSweeper returns a sweeper that deletes old rows.
func newSweeper(c Config, s store.Worker, d *database) *retention.Sweeper {
	keep := func(d time.Duration) time.Duration { return max(0, d) } // NoLimit
	old := store.Retention{Succeeded: keep(c.Retention.Succeeded), Dead: keep(c.Retention.Dead),
		Canceled: keep(c.Retention.Canceled), Unseen: keep(c.Retention.Unseen)}
	return &retention.Sweeper{Interval: c.SweepInterval, Pause: min(sweepPause, c.SweepInterval), Batch: sweepBatch,
		Delete: func(ctx context.Context, limit int) (int, error) {
			return call(d, opSweep, func(ctx context.Context) (int, error) { return s.Sweep(ctx, old, limit) })
		}}
}

// runSweeper deletes old rows until ctx ends.
func runSweeper(ctx context.Context, s *retention.Sweeper) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.Next(1)):
		}
		_ = s.Once(ctx) // a call that fails is counted, and the next one comes
	}
}

// A listener wakes the worker when another process has queued runs, if the database has
// notifications. They are hints: a run whose notification is lost is found by polling.
type listener struct {
	store  store.Worker
	events *events
	woken  func()
}

// run listens until ctx ends, and connects again after pauses that grow.
func (l *listener) run(ctx context.Context) {
	wait := firstListenWait
	for ctx.Err() == nil {
		began := time.Now()
		err := l.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > longestListen {
			wait = firstListenWait
		}
		l.events.log(slog.LevelDebug, "durable: a connection that listens has ended: polls go on", "err", err)
		again := time.NewTimer(loop.Jittered(wait, 0.3))
		select {
		case <-ctx.Done():
		case <-again.C:
		}
		again.Stop()
		wait = min(2*wait, longestListen)
	}
}

func (l *listener) listen(ctx context.Context) (err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("it panicked")
		}
	}()
	return l.store.Listen(ctx, l.woken)
}

// A sampler reads what health and metrics show of the fleet, so that a probe or a scrape costs the
// database nothing.
type sampler struct {
	*loop.Loop
	store    store.Worker
	database *database

	mu     sync.Mutex // of all readers
	stats  store.Stats
	readAt time.Time // zero: never
}

// sample is a step of the loop.
func (s *sampler) sample() time.Duration {
	stats, err := call(s.database, opStats, func(ctx context.Context) (store.Stats, error) {
		return s.store.Stats(ctx, unseenAfter)
	})
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stats, s.readAt = stats, time.Now()
	}
	return loop.Never
}

// latest returns what was read last, and reports false if that is too old to say anything.
func (s *sampler) latest() (stats store.Stats, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats, !s.readAt.IsZero() && time.Since(s.readAt) < 4*sampleInterval
}
