// Package service has what the services of tickslot have in common: schedulers of timers, workers
// of durable runs and relays of an outbox. Each runs once, moves through the same phases, asks its
// server until that answers for the first time, samples what probes and metrics show, and listens
// to its database. Loops are in package loop, hooks and lines in notify, calls in answers.
package service

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/loop"
)

// A Phase is what a service is doing.
type Phase string

// The phases, in their order. A service may leave out some.
const (
	Created  Phase = "created"  // Run was not called
	Running  Phase = "running"  // work begins
	PreStop  Phase = "pre_stop" // work still begins, but Ready fails
	Draining Phase = "draining" // Run waits for work that has begun
	Stopped  Phase = "stopped"  // Run has returned, or is about to
)

var order = map[Phase]int{"": 0, Created: 0, Running: 1, PreStop: 2, Draining: 3, Stopped: 4}

// Phases are the phases of a service, which never go back. The zero value is Created.
type Phases struct {
	CreatedAt time.Time // since when it is Created, for Current

	mu        sync.Mutex
	phase     Phase
	changedAt time.Time
}

// Begin enters Running. It reports false if the service has begun before.
func (p *Phases) Begin() bool { return p.enter(Running) }

// Enter enters a phase, unless the service is in that one or a later one.
func (p *Phases) Enter(phase Phase) { p.enter(phase) }

func (p *Phases) enter(phase Phase) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if order[phase] <= order[p.phase] {
		return false
	}
	p.phase, p.changedAt = phase, time.Now()
	return true
}

// Current returns the phase, and since when the service is in it.
func (p *Phases) Current() (Phase, time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase == "" {
		return Created, p.CreatedAt
	}
	return p.phase, p.changedAt
}

// Ready returns an error unless the service is running. name is what it is, such as "worker".
func (p *Phases) Ready(name string) error {
	switch phase, _ := p.Current(); phase {
	case Running:
		return nil
	case Created:
		return fmt.Errorf("the %s is not running yet", name)
	case Stopped:
		return fmt.Errorf("the %s is stopped", name)
	default:
		return fmt.Errorf("the %s is draining", name)
	}
}

// A call that has failed is repeated after pauses that grow from MinWait to MaxWait.
const (
	MinWait = 100 * time.Millisecond
	MaxWait = 2 * time.Second
)

// FirstAnswer calls begin, which asks the server for the first time, until that succeeds, ctx ends,
// or the error is one that final matches: that of a server that is not set up right.
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

// A connection that listens is made again after pauses that grow from the first to the second.
const (
	minListenWait = time.Second
	maxListenWait = time.Minute
)

// KeepListening calls listen, which connects and listens, until ctx ends. Whenever that has
// returned, it calls ended, and pauses. A panic of listen is its error.
func KeepListening(ctx context.Context, listen func(context.Context) error, ended func(error)) {
	wait := minListenWait
	for ctx.Err() == nil {
		began := time.Now()
		err := guard.Call("connection that listens", func() error { return listen(ctx) })
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

// A Sampler is a loop that reads what health and metrics show, so that a probe or a scrape costs
// the server nothing.
type Sampler[T any] struct {
	*loop.Loop
	read     func() (T, error)
	interval time.Duration

	mu     sync.Mutex // of all readers
	latest T
	readAt time.Time // zero: never
}

// NewSampler returns a Sampler that calls read every interval, or about that.
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

// Latest returns what was read last, and reports false if that is too old to say anything.
func (s *Sampler[T]) Latest() (latest T, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest, !s.readAt.IsZero() && time.Since(s.readAt) < 4*s.interval
}
