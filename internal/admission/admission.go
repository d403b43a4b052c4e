// Package admission has a part of a process ask, before it takes any work, whether the process may:
// one that was started on the store of another environment may not.
package admission

import (
	"context"
	"errors"
	"sync"
)

// Ask asks once, in a bounded time, whether the part may begin. An error refuses it. If the part is
// refused later, refused is called with the error, unless stop was called before. Registry.Admit of
// package cluster is an Ask.
type Ask = func(ctx context.Context, refused func(error)) (stop func(), err error)

// A Door is what a part passes before it takes work. The zero value is open. Its methods may be
// called from any goroutine.
type Door struct {
	mu     sync.Mutex
	asks   []Ask
	inside context.Context // of the part that has entered; nil: none has
	close  context.CancelCauseFunc
	stops  []func()
	late   sync.WaitGroup // asks that were added after the part has entered
	left   bool
	err    error // the first no
}

// AdmitBy adds who is asked. If the part has entered, it is asked at once, and a no stops the part.
func (d *Door) AdmitBy(ask Ask) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asks = append(d.asks, ask)
	if inside := d.inside; inside != nil && !d.left {
		d.late.Go(func() { d.ask(inside, ask) })
	}
}

// ErrEntered is what Enter returns if it was called before.
var ErrEntered = errors.New("this part has entered before")

// Enter asks, and has the part work unless the answer is no. The context of work ends when ctx
// does, or when a no has come later. Enter returns a no, and what work has returned.
func (d *Door) Enter(ctx context.Context, work func(ctx context.Context) error) error {
	d.mu.Lock()
	if d.inside != nil {
		d.mu.Unlock()
		return ErrEntered
	}
	d.inside, d.close = context.WithCancelCause(ctx)
	inside, asks := d.inside, d.asks
	d.mu.Unlock()
	defer d.leave()
	for _, ask := range asks {
		d.ask(inside, ask)
	}
	if err := d.Refused(); err != nil {
		return err
	}
	err := work(inside)
	if refused := d.Refused(); refused != nil {
		return errors.Join(refused, err)
	}
	return err
}

func (d *Door) ask(ctx context.Context, ask Ask) {
	stop, err := ask(ctx, d.refuse)
	if err != nil {
		d.refuse(err)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stops = append(d.stops, stop)
}

func (d *Door) refuse(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left || d.err != nil {
		return
	}
	d.err = err
	d.close(err)
}

func (d *Door) leave() {
	d.mu.Lock()
	d.left = true
	d.close(nil)
	d.mu.Unlock()
	d.late.Wait()
	for _, stop := range d.stops {
		stop()
	}
}

// Refused returns the no; nil: there is none.
func (d *Door) Refused() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}
