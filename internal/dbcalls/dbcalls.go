// Package dbcalls bounds calls to a database, and knows whether they succeed.
package dbcalls

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// downAfter is how many calls in a row have to fail before the database counts as down.
const downAfter = 3

// Options of Calls. The functions are called with a mutex held, in the order in which things
// happened, so they must not block, and must not call methods of Calls.
type Options struct {
	Name    string        // of the database
	Timeout time.Duration // of each call

	Failed func(op string, err error, first bool) // first: the call before did not fail
	Down   func(err error)                        // the third call in a row has failed
	Up     func(downFor time.Duration)            // a call has succeeded again
}

// A Failure is the state of one kind of call: the error of its latest call (nil: it succeeded), and
// since when such calls fail, or succeed again (zero: none has failed).
type Failure struct {
	Err   error
	Since time.Time
	Times int // in a row
}

// Calls are those to one database. Make them with New, and call Begin before the first one.
type Calls struct {
	options Options
	life    context.Context // of all calls. Set by Begin

	mu        sync.Mutex // of all callers
	called    bool
	failures  int // in a row, of all calls
	down      bool
	changedAt time.Time          // when down last changed; zero: never
	err       error              // of the last call; nil: it succeeded
	failing   map[string]Failure // by kind of call
	errors    map[string]uint64
}

// New returns calls.
func New(o Options) *Calls {
	return &Calls{options: o, failing: map[string]Failure{}, errors: map[string]uint64{}}
}

// Begin sets the context of all calls. Its values reach the driver, and its end cuts calls off.
func (c *Calls) Begin(life context.Context) { c.life = life }

// Life returns the context that Begin has set.
func (c *Calls) Life() context.Context { return c.life }

// Name returns the name of the database.
func (c *Calls) Name() string { return c.options.Name }

// Do makes a call. A panic counts as a failure. The error of a call that the end of Life has cut
// off is not recorded, because it says nothing about the database.
func Do[T any](c *Calls, op string, f func(context.Context) (T, error)) (answer T, err error) {
	ctx, cancel := context.WithTimeout(c.life, c.options.Timeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the call panicked: %v", p)
		}
		if c.life.Err() == nil || err == nil {
			c.record(op, err)
		}
	}()
	answer, err = f(ctx)
	_ = errors.Is(err, context.Canceled) // an error whose Is or Unwrap panics does so here, where it is recovered
	return answer, err
}

// record records whether a call succeeded, and tells of changes.
func (c *Calls) record(op string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.called, c.err = true, err
	before := c.failing[op]
	if (err == nil) != (before.Err == nil) {
		c.failing[op] = Failure{Err: err, Since: time.Now(), Times: 1}
	} else if err != nil {
		c.failing[op] = Failure{err, before.Since, before.Times + 1}
	}
	if err == nil {
		c.failures = 0
		if c.down {
			downFor := time.Since(c.changedAt)
			c.down, c.changedAt = false, time.Now()
			c.options.Up(downFor)
		}
		return
	}
	c.errors[op]++
	c.failures++
	c.options.Failed(op, err, before.Err == nil && !c.down)
	if c.failures >= downAfter && !c.down {
		c.down, c.changedAt = true, time.Now()
		c.options.Down(err)
	}
}

// Status returns whether the database is up (false also before the first call), when it last went
// down or came back (zero: it never was down), and the error of the last call.
func (c *Calls) Status() (up bool, changedAt time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.called && !c.down, c.changedAt, c.err
}

// WasCalled reports whether a call has returned.
func (c *Calls) WasCalled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.called
}

// FailureOf returns the state of one kind of call.
func (c *Calls) FailureOf(op string) Failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failing[op]
}

// Reachable returns an error while the database is down.
func (c *Calls) Reachable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.down {
		return nil
	}
	return fmt.Errorf("%s has not answered for %v: %w", c.options.Name,
		time.Since(c.changedAt).Round(time.Second), c.err)
}

// Working returns an error while the database is down, or calls of one kind have failed, more than
// once, for longer than three of them may take, whatever becomes of the others: then their work
// stands still, although the database answers.
func (c *Calls) Working() error {
	if err := c.Reachable(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, op := range slices.Sorted(maps.Keys(c.failing)) {
		f := c.failing[op]
		if age := time.Since(f.Since); f.Err != nil && f.Times > 1 && age > 3*c.options.Timeout {
			errs = append(errs, fmt.Errorf("the call %s has failed for %v: %w", op, age.Round(time.Second), f.Err))
		}
	}
	return errors.Join(errs...)
}

// ErrorCounts returns how many calls of each kind have failed.
func (c *Calls) ErrorCounts() map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.errors)
}
