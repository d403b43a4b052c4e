// Package lifecycle has the common parts of the services of tickslot: schedulers of timers, workers
// of durable runs, relays of an outbox, electors and registries. Each runs once, unless it is
// refused, moves through the same phases, asks its server until that answers for the first time,
// samples data for probes and metrics, listens to its database, and drains. Loops are in package
// loop, hooks and lines in notify, calls in answers, deletes of old rows in retention.
package lifecycle

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/loop"
)

// A call that has failed is repeated after pauses that grow from MinWait to MaxWait.
const (
	MinWait = 100 * time.Millisecond
	MaxWait = 2 * time.Second
)

// FirstAnswer calls begin, which asks the server for the first time, until it succeeds, ctx ends,
// or its error matches final: the error of a server that is not set up right.
func FirstAnswer(ctx context.Context, final error, begin func() error) error {
	for wait := MinWait; ; wait = min(2*wait, MaxWait) {
		err := begin()
		if err == nil || guard.Is(err, final) {
			return err
		}
		if !Sleep(ctx, loop.Jittered(wait, 0.3)) {
			return ctx.Err()
		}
	}
}

// A connection that listens is replaced after pauses that grow from the first to the second.
const (
	minListenWait = time.Second
	maxListenWait = time.Minute
)

// listenGrace is how long a connection that listens may take to end.
const listenGrace = 5 * time.Second

// KeepListening calls listen, which connects and listens, until ctx ends. Whenever listen has
// returned, it calls ended, and pauses. If listen panics or calls runtime.Goexit, that is its
// error. A listen that ignores the end of ctx is left behind.
func KeepListening(ctx context.Context, listen func(context.Context) error, ended func(error)) {
	wait := minListenWait
	for ctx.Err() == nil {
		began := time.Now()
		ends := guard.Go("connection that listens", func() error { return listen(ctx) })
		err, _ := AwaitEnd(ctx, ends, listenGrace)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > maxListenWait {
			wait = minListenWait
		}
		ended(err)
		if !Sleep(ctx, loop.Jittered(wait, 0.3)) {
			return
		}
		wait = min(2*wait, maxListenWait)
	}
}

// Sleep reports false if ctx ends before d has passed.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Await receives from a channel, and reports false if d passes before.
func Await[T any](from <-chan T, d time.Duration) (got T, ok bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case got = <-from:
		return got, true
	case <-timer.C:
	}
	select { // both are ready
	case got = <-from:
		return got, true
	default:
		return got, false
	}
}

// AwaitEnd receives the value that code of a user sends when it returns. It waits until ctx ends,
// and then for grace: it reports false if the code ignores that its time is over.
func AwaitEnd[T any](ctx context.Context, ended <-chan T, grace time.Duration) (got T, ok bool) {
	select {
	case got = <-ended:
		return got, true
	case <-ctx.Done():
		return Await(ended, grace)
	}
}

// Drain waits until idle is closed. After timeout it calls end, which ends the contexts of the
// remaining work. It reports false if that work ignores this for grace.
func Drain(idle <-chan struct{}, timeout time.Duration, end func(), grace time.Duration) bool {
	_, ok := Await(idle, timeout)
	if !ok {
		end()
		_, ok = Await(idle, grace)
	}
	return ok
}

// A Sampler is a loop that reads the data that health and metrics show, so that a probe or a scrape
// costs the server nothing.
type Sampler[T any] struct {
	*loop.Loop
	read     func() (T, error)
	interval time.Duration

	mu     sync.Mutex // of all readers
	latest T
	readAt time.Time // zero: never
}

// NewSampler returns a Sampler that calls read about every interval.
func NewSampler[T any](interval time.Duration, read func() (T, error)) *Sampler[T] {
	const jitter = 0.2
	s := &Sampler[T]{read: read, interval: interval}
	s.Loop = loop.New("sampler", interval, jitter, s.sample)
	return s
}

func (s *Sampler[T]) sample() time.Duration {
	if read, err := s.read(); err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.latest, s.readAt = read, time.Now()
	}
	return loop.Never
}

// Latest returns the last read, and reports false if that is too old to say anything.
func (s *Sampler[T]) Latest() (latest T, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest, !s.readAt.IsZero() && time.Since(s.readAt) < 4*s.interval
}

// StillRunning names, for a line of the log, the work that did not return while a part drained.
func StillRunning(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}
