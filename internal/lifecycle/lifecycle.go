// Package lifecycle contains the common parts of tickslot's services: timer schedulers, workers for
// durable runs, outbox relays, electors and registries. Each service runs once, unless it is
// refused. It goes through the same phases, asks its server until the first answer, samples data
// for probes and metrics, listens to its database, and drains. Related packages are loop (loops),
// notify (hooks and log lines), answers (calls) and retention (deletes of old rows).
package lifecycle

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/loop"
)

// The pauses after failed calls grow from MinWait to MaxWait.
const (
	MinWait = 100 * time.Millisecond
	MaxWait = 2 * time.Second
)

// FirstAnswer calls begin, which makes the first call to the server, until it succeeds, ctx ends,
// or its error matches final, the error of a server that is not set up correctly.
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

// The pauses before a listening connection is replaced grow from minListenWait to maxListenWait.
const (
	minListenWait = time.Second
	maxListenWait = time.Minute
)

// listenGrace is how long a listening connection may take to end.
const listenGrace = 5 * time.Second

// KeepListening calls listen, which connects and listens, until ctx ends. Whenever listen has
// returned, KeepListening calls ended and pauses. A panic or runtime.Goexit in listen counts as its
// error. A listen that ignores the end of ctx is abandoned.
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

// Sleep waits for d. It reports false if ctx ends first.
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

// Await receives from a channel. It reports false if d passes first.
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

// AwaitEnd receives the value that users' code sends when it returns. It waits until ctx ends, and
// then for grace. It reports false if the code does not return by then.
func AwaitEnd[T any](ctx context.Context, ended <-chan T, grace time.Duration) (got T, ok bool) {
	select {
	case got = <-ended:
		return got, true
	case <-ctx.Done():
		return Await(ended, grace)
	}
}

// Drain waits until idle is closed. After timeout it calls end, which ends the contexts of the
// remaining work. It reports false if that work does not end within grace.
func Drain(idle <-chan struct{}, timeout time.Duration, end func(), grace time.Duration) bool {
	_, ok := Await(idle, timeout)
	if !ok {
		end()
		_, ok = Await(idle, grace)
	}
	return ok
}

// A Sampler is a loop that reads the data for health checks and metrics, so that a probe or a
// scrape makes no call to the server.
type Sampler[T any] struct {
	*loop.Loop
	read     func() (T, error)
	interval time.Duration

	mu     sync.Mutex // used by all readers
	latest T
	readAt time.Time // zero if never
}

// NewSampler returns a Sampler that calls read approximately every interval.
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

// Latest returns the last read. It reports false if that is too old to be used.
func (s *Sampler[T]) Latest() (latest T, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest, !s.readAt.IsZero() && time.Since(s.readAt) < 4*s.interval
}

// StillRunning lists, for a log line, the work that did not return while a part drained.
func StillRunning(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}
