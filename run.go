package tickslot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/internal/guard"
)

// defaultDrainTimeout is the default of Runner.DrainTimeout.
const defaultDrainTimeout = 45 * time.Second

// lastGrace is how long parts have to return that were stopped because DrainTimeout had passed. A
// part that takes longer is left running, and the error names it.
const lastGrace = 10 * time.Second

// A Part is one part of a program: a *timer.Scheduler, *durable.Worker, *outbox.Relay,
// *leader.Elector, *cluster.Registry, a Server, or your own type. Its Run works until ctx ends,
// then cleans up and returns.
//
// If a part also has a method Running() <-chan struct{}, the parts after it start when that channel
// is closed.
type Part interface {
	Run(ctx context.Context) error
}

// A PartFunc is a part that consists of a function.
type PartFunc func(ctx context.Context) error

// Run calls f.
func (p PartFunc) Run(ctx context.Context) error { return p(ctx) }

// Named returns the part with a name for the errors of Run. Without a name, errors use its type.
func Named(name string, part Part) Part { return named{part, name} }

type named struct {
	Part
	name string
}

// Run runs the parts with a DrainTimeout of 45 s: see [Runner.Run].
func Run(ctx context.Context, parts ...Part) error { return Runner{}.Run(ctx, parts...) }

// A Runner runs the parts of a program. The zero value is ready to use.
type Runner struct {
	// DrainTimeout is how long all parts together have to stop. Each part also has its own drain
	// timeout, often 30 s: make this one at least as long as their sum. Whatever kills the process
	// must wait 10 s longer (in Kubernetes, terminationGracePeriodSeconds). Default 45 s.
	DrainTimeout time.Duration
}

// Run starts the parts in order, and runs them until ctx ends or the first of them returns. Then it
// stops them in reverse order, each when the part after it has returned. So begin with what the
// others need, such as a Server with the probes and a registry, and end with the parts that start
// work:
//
//	tickslot.Run(ctx, server, registry, relay, worker, timers)
//
// A part fails if it panics, and also if it returns before Run has stopped it, even with nil. When
// DrainTimeout has passed, all remaining parts are stopped at once, and Run returns at most 10 s
// later. The error is nil if ctx ended and every part then returned nil in time. Otherwise it names
// each part that failed, the first one first, and each part that has not returned. Those are left
// running.
func (r Runner) Run(ctx context.Context, parts ...Part) error {
	members, err := r.check(ctx, parts)
	if err != nil {
		return err
	}
	crew := &crew{fell: make(chan *member, len(members))}
	for _, m := range members {
		if !crew.start(ctx, m) {
			break
		}
	}
	if crew.first == nil {
		select {
		case <-ctx.Done():
		case crew.first = <-crew.fell:
		}
	}
	timeout := r.DrainTimeout
	if timeout == 0 {
		timeout = defaultDrainTimeout
	}
	crew.stop(timeout)
	return crew.faults(timeout)
}

func (r Runner) check(ctx context.Context, parts []Part) ([]*member, error) {
	var faults []error
	if ctx == nil {
		faults = append(faults, errors.New("tickslot: the context is nil: use context.Background()"))
	}
	if r.DrainTimeout < 0 {
		faults = append(faults, fmt.Errorf("tickslot: DrainTimeout is negative: %v", r.DrainTimeout))
	}
	if len(parts) == 0 {
		faults = append(faults, errors.New("tickslot: there is no part to run"))
	}
	members := make([]*member, 0, len(parts))
	for i, part := range parts {
		m := &member{part: part, name: fmt.Sprintf("%T", part), done: make(chan struct{})}
		if n, ok := part.(named); ok {
			m.part, m.name = n.Part, n.name
		}
		if m.part == nil {
			faults = append(faults, fmt.Errorf("tickslot: part %d of %d is nil", i+1, len(parts)))
		}
		members = append(members, m)
	}
	return members, errors.Join(faults...)
}

// A member is a part that was started.
type member struct {
	part    Part
	name    string
	end     context.CancelFunc
	stopped bool          // the crew has ended its context
	done    chan struct{} // closed when Run has returned
	err     error         // readable once done is closed
}

// A crew is the started parts. All its state belongs to the goroutine of Runner.Run.
type crew struct {
	started []*member
	fell    chan *member // receives each member that returned
	first   *member      // the first to return before ctx ended
}

// start starts a member, and reports whether the next one may start.
func (c *crew) start(ctx context.Context, m *member) bool {
	if ctx.Err() != nil {
		return false
	}
	inside, end := context.WithCancel(context.WithoutCancel(ctx)) // ends only when stop calls end
	m.end = end
	c.started = append(c.started, m)
	ended := guard.Go(m.name, func() error { return m.part.Run(inside) })
	go func() {
		m.err = <-ended
		close(m.done)
		c.fell <- m
	}()
	part, ok := m.part.(interface{ Running() <-chan struct{} })
	if !ok {
		return true
	}
	select {
	case <-part.Running():
		return true
	case <-ctx.Done():
		return false
	case c.first = <-c.fell:
		return false
	}
}

// stop stops the members from the last to the first, and all remaining ones after the timeout.
func (c *crew) stop(timeout time.Duration) {
	up := time.NewTimer(timeout)
	defer up.Stop()
	late := false
	for i := len(c.started) - 1; i >= 0; i-- {
		m := c.started[i]
		select {
		case <-m.done: // it returned before it was stopped
			m.end()
			continue
		default:
		}
		m.stopped = true
		m.end()
		if late {
			continue
		}
		select {
		case <-m.done:
		case <-up.C:
			late = true
			up.Reset(lastGrace)
		}
	}
	if !late {
		return
	}
	for _, m := range c.started {
		select {
		case <-m.done:
		case <-up.C:
			return
		}
	}
}

func (c *crew) faults(timeout time.Duration) error {
	var faults []error
	if c.first != nil {
		faults = append(faults, c.first.fault(timeout))
	}
	for _, m := range c.started {
		if m != c.first {
			faults = append(faults, m.fault(timeout))
		}
	}
	return errors.Join(faults...)
}

func (m *member) fault(timeout time.Duration) error {
	select {
	case <-m.done:
	default:
		return fmt.Errorf("tickslot: %s has not stopped within %v, nor when its context ended", m.name, timeout)
	}
	switch {
	case m.err != nil:
		return fmt.Errorf("tickslot: %s: %w", m.name, m.err)
	case !m.stopped:
		return fmt.Errorf("tickslot: %s returned before it was stopped", m.name)
	}
	return nil
}
