package tickslotriver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
)

const (
	// defaultWait is the default of LimitOptions.Wait.
	defaultWait = 5 * time.Second
	// defaultSnooze is the default of LimitOptions.SnoozeFor.
	defaultSnooze = time.Second

	// Bounds for the pause between two calls to the store. In each process, only one waiting job
	// per kind calls the store.
	minPause = 10 * time.Millisecond
	maxPause = 40 * time.Millisecond
)

// LimitOptions are the settings of Limit. The zero value limits nothing. Limit returns the first
// fault.
type LimitOptions struct {
	// Max is the maximum number of jobs of each kind that all clients together work at the same
	// time. A kind that is missing from the map has no limit. If clients have different limits, as
	// during a rolling deployment, together they never exceed the largest. 1 to 10,000 for each
	// kind. Required for a limit.
	Max map[string]int

	// Prefix precedes the kind in the name of the semaphore. Default "river:".
	Prefix string

	// Wait is how long a job waits for a slot before it is snoozed. While it waits, it occupies one
	// of the MaxWorkers of its queue, so give kinds with a limit their own queue. Default 5 s.
	Wait time.Duration

	// SnoozeFor is how long a job without a slot is snoozed. River does not count this as an
	// attempt. Default 1 s.
	SnoozeFor time.Duration

	// Logger receives a line for each job that got no slot for a reason other than a full limit,
	// such as a store that is down. Default slog.Default().
	Logger *slog.Logger
}

// Limit returns a middleware that works a job only while it holds a slot for the job's kind in the
// session's store. So the limit holds for all clients of all processes, and the slots of a dead
// process become free within one TTL of the session.
//
// If a job loses its slot because its process was cut off from the store for too long, its context
// ends before another job can get the slot. While the store does not answer, jobs of a limited kind
// are snoozed instead of started.
//
// Put the middleware first in river.Config.Middleware, so that other middleware sees only jobs that
// are worked.
func Limit(session *dlock.Session, options LimitOptions) (rivertype.WorkerMiddleware, error) {
	m := &limit{options: options, kinds: map[string]*kind{}}
	if m.options.Prefix == "" {
		m.options.Prefix = "river:"
	}
	if m.options.Wait <= 0 {
		m.options.Wait = defaultWait
	}
	if m.options.SnoozeFor <= 0 {
		m.options.SnoozeFor = defaultSnooze
	}
	if m.options.Logger == nil {
		m.options.Logger = slog.Default()
	}
	if session == nil {
		return nil, errors.New("tickslotriver: no session: dlock.NewSession makes one")
	}
	for of, n := range options.Max {
		name := m.options.Prefix + of
		if err := driver.CheckName(name); err != nil {
			return nil, fmt.Errorf("tickslotriver: kind %.60q: %w", of, err)
		}
		if n < 1 || n > driver.MaxSlots {
			return nil, fmt.Errorf("tickslotriver: kind %.60q: %d: use 1 to %d", of, n, driver.MaxSlots)
		}
		m.kinds[of] = &kind{slots: session.Semaphore(name, n), turn: make(chan struct{}, 1),
			freed: make(chan struct{}, 1)}
	}
	return m, nil
}

type limit struct {
	river.MiddlewareDefaults
	options LimitOptions
	kinds   map[string]*kind
}

// A kind is a kind of job with a limit. In this process only one of its waiting jobs calls the
// store, so that more waiting jobs do not cause more calls.
type kind struct {
	slots dlock.Semaphore
	turn  chan struct{} // full while a job calls the store
	freed chan struct{} // signals that a job of this process has released its slot
}

// Work implements rivertype.WorkerMiddleware.
func (l *limit) Work(ctx context.Context, job *rivertype.JobRow, work func(context.Context) error) error {
	k, ok := l.kinds[job.Kind]
	if !ok {
		return work(ctx)
	}
	waits, cancel := context.WithTimeout(ctx, l.options.Wait)
	lease, err := k.acquire(waits)
	cancel()
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		if no, ok := errors.AsType[*dlock.NotAcquiredError](err); !ok || no.Reason != dlock.ReasonFull {
			l.options.Logger.WarnContext(ctx, "tickslotriver: a job got no slot, although there may be some: it is "+
				"snoozed", "kind", job.Kind, "job", job.ID, "err", err)
		}
		return river.JobSnooze(l.options.SnoozeFor)
	}
	working, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(lease.Context(), func() { end(context.Cause(lease.Context())) })()
	defer k.release(context.WithoutCancel(ctx), lease) // even when the job panics
	return work(working)
}

// acquire waits for a slot until ctx ends. Then it returns the store's last answer as an error.
func (k *kind) acquire(ctx context.Context) (*dlock.Lease, error) {
	full := error(&dlock.NotAcquiredError{Reason: dlock.ReasonFull}) // assumed while another job calls the store
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, full
	}
	defer func() { <-k.turn }()
	last := full
	for {
		lease, err := k.slots.TryAcquire(ctx)
		if err == nil {
			return lease, nil
		}
		if ctx.Err() != nil {
			return nil, last // the previous call's error: this call was cut off
		}
		last = err
		pause := time.NewTimer(minPause + rand.N(maxPause-minPause))
		select {
		case <-k.freed:
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
	}
}

// release gives back a slot. If the store does not answer, the session keeps trying.
func (k *kind) release(ctx context.Context, lease *dlock.Lease) {
	_ = lease.Release(ctx)
	select {
	case k.freed <- struct{}{}:
	default: // a signal is pending
	}
}
