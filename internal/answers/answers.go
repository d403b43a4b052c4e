// Package answers tracks whether the other side, a database or a store, answers calls. Calls bounds
// the calls, counts which kinds of calls fail, and reports when the other side goes down and
// recovers. A Batch limits the rows of one call, and shrinks when they were too many. A Breaker is
// for callers that bound their calls in another way.
//
// The package does not repeat calls. It cannot end a call whose driver ignores its context, and
// abandons such a call. An abandoned call may still succeed later, like a call whose reply is lost,
// so it must not write to variables that its caller still uses.
package answers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/internal/guard"
)

// grace is the additional time before a call is abandoned. If the process was paused, the answer
// may have arrived in the meantime.
const grace = time.Second

var errHangs = errors.New("an earlier call has not returned, although its time is over")

// Options are the settings of Calls. The functions may be nil. The functions after Ignored are
// called with a mutex held, in the order of events, so they must not block or call methods of
// Calls.
type Options struct {
	Name    string        // of the other side
	Timeout time.Duration // for each call
	Behind  time.Duration // when a call that does not return is abandoned; the larger of this and Timeout counts

	Wrap    func(op string, err error) error // returns the error that callers and health checks see
	Ignored func(op string, err error) bool  // only counted: it says nothing about the other side

	Failed func(op string, err error, first bool) // first: the previous call did not fail
	Down   func(err error)                        // the third consecutive call has failed
	Up     func(downFor time.Duration)            // a call has succeeded again
	Turned func(err error, lasted time.Duration)  // the first kind of call fails, or (err is nil) all kinds work again
}

// A Failure is the state of one kind of call. Err is the error of the latest call, or nil if it
// succeeded. Since is when such calls started to fail or to succeed again, or zero if none has
// failed.
type Failure struct {
	Err   error
	Since time.Time
	Times int // consecutive failures
}

// Calls are the calls to one other side. Create them with New.
type Calls struct {
	options Options
	life    context.Context // set by Begin

	mu        sync.Mutex // used by all callers
	called    bool
	breaker   Breaker            // over all calls: open while the other side is down
	changedAt time.Time          // when it last opened or closed; zero if never
	err       error              // of the last call; nil if it succeeded
	failing   map[string]Failure // by kind of call
	turnedAt  time.Time          // when the first kind of call started to fail, or the last one recovered
	errors    map[string]uint64
	behind    map[lane][]hanging // abandoned calls
}

// A lane is a kind of call made for one part of the caller.
type lane struct {
	op   string
	part int
}

// hanging is an abandoned call.
type hanging struct {
	since time.Time    // when the call was made
	ended <-chan error // receives the result if the call returns after all
}

func (h hanging) returned() bool { return len(h.ended) > 0 }

// New returns Calls with the given options.
func New(o Options) *Calls {
	return &Calls{options: o, failing: map[string]Failure{}, turnedAt: time.Now(), errors: map[string]uint64{},
		behind: map[lane][]hanging{}}
}

// Begin sets the result of Life.
func (c *Calls) Begin(life context.Context) { c.life = life }

// Life returns the context of all calls of a service. Its values reach the driver, and when it
// ends, calls are cut off.
func (c *Calls) Life() context.Context { return c.life }

// Name returns the name of the other side.
func (c *Calls) Name() string { return c.options.Name }

// Timeout returns the maximum duration of each call.
func (c *Calls) Timeout() time.Duration { return c.options.Timeout }

// Do makes a call. A panic or runtime.Goexit in the driver, or in a method of its error, counts as
// a failure. If the end of ctx cuts a call off, its error is not recorded, because it says nothing
// about the other side.
//
// If f does not return in time (see Options.Behind), or soon after ctx has ended, Do abandons it.
// No other call of its kind is made until f returns. Like a call whose reply is lost, f may still
// have an effect, and its answer is dropped. So f must not use anything that the caller changes
// later.
func Do[T any](ctx context.Context, c *Calls, op string, f func(context.Context) (T, error)) (T, error) {
	return DoFor(ctx, c, op, 0, f)
}

// DoFor is like Do, for one of several parts of the caller that make calls of this kind. A call
// abandoned by one part does not block the others.
func DoFor[T any](
	ctx context.Context, c *Calls, op string, part int, f func(context.Context) (T, error),
) (answer T, err error) {
	if ctx.Err() != nil {
		return answer, context.Cause(ctx)
	}
	var got T // not answer, because an abandoned call must not write to it
	err, returned := c.wait(ctx, lane{op, part}, func(ctx context.Context) (err error) {
		got, err = f(ctx)
		return checked(err)
	})
	if returned {
		answer = got
	}
	made := err != errHangs
	if err != nil && c.options.Wrap != nil {
		err = c.options.Wrap(op, err)
	}
	if err == nil || ctx.Err() == nil {
		c.record(op, err, made)
	}
	return answer, err
}

// checked calls the methods of an error, so that one that panics does so here, where the panic is
// recovered and becomes the error.
func checked(err error) error {
	if err != nil {
		_, _, _ = err.Error(), errors.Is(err, errHangs), errors.As(err, new(*guard.PanicError))
	}
	return err
}

// wait calls f and waits until f returns or is abandoned.
func (c *Calls) wait(ctx context.Context, l lane, f func(context.Context) error) (err error, returned bool) {
	if c.hangs(l) {
		return errHangs, false
	}
	bounded, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	began, ended := time.Now(), guard.Go("store", func() error { return f(bounded) })
	limit := time.NewTimer(max(c.options.Timeout, c.options.Behind))
	defer limit.Stop()
	select {
	case err := <-ended:
		return err, true
	case <-ctx.Done():
	case <-limit.C:
	}
	limit.Reset(grace)
	select {
	case err := <-ended:
		return err, true
	case <-limit.C:
	}
	if len(ended) > 0 {
		return <-ended, true
	}
	<-bounded.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.behind[l] = append(c.behind[l], hanging{began, ended})
	return context.Cause(bounded), false
}

// hangs reports whether an abandoned call has not returned yet.
func (c *Calls) hangs(l lane) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.behind[l] = slices.DeleteFunc(c.behind[l], hanging.returned)
	return len(c.behind[l]) > 0
}

// anyHangs is like hangs, for all parts of the caller. The caller holds mu.
func (c *Calls) anyHangs(op string) bool {
	for l, calls := range c.behind {
		if l.op == op && slices.ContainsFunc(calls, func(h hanging) bool { return !h.returned() }) {
			return true
		}
	}
	return false
}

// record records whether a call succeeded, and reports changes. A call that was not made because
// another one hangs is a failure of its kind, but does not count against the other side. Otherwise
// three such calls in a row, between calls that succeed, would each time report that the other side
// went down and recovered.
func (c *Calls) record(op string, err error, made bool) {
	o := c.options
	ignored := err != nil && o.Ignored != nil && o.Ignored(op, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.errors[op]++
	}
	if ignored {
		return
	}
	c.called, c.err = true, err
	before := c.failing[op]
	switch {
	case err != nil && before.Err != nil:
		c.failing[op] = Failure{err, before.Since, before.Times + 1}
	case before.Err != nil && c.anyHangs(op): // it works for other parts, but one part is stuck
	case err != nil || before.Err != nil:
		c.turn(op, err)
	}
	if err != nil && o.Failed != nil {
		o.Failed(op, err, before.Err == nil && !c.breaker.Open())
	}
	if !made {
		return
	}
	opened, closed := c.breaker.Count(err == nil, 1)
	lasted := time.Since(c.changedAt)
	if opened || closed {
		c.changedAt = time.Now()
	}
	switch {
	case opened && o.Down != nil:
		o.Down(err)
	case closed && o.Up != nil:
		o.Up(lasted)
	}
}

// turn records that calls of one kind start to fail or work again. The caller holds mu.
func (c *Calls) turn(op string, err error) {
	now := time.Now()
	failed := c.broken() != nil
	c.failing[op] = Failure{Err: err, Since: now, Times: 1}
	if fails := c.broken() != nil; fails == failed {
		return
	}
	lasted := now.Sub(c.turnedAt)
	c.turnedAt = now
	if c.options.Turned != nil {
		c.options.Turned(err, lasted)
	}
}

// broken returns the last errors of the failing kinds of calls. The caller holds mu.
func (c *Calls) broken() error {
	var errs []error
	for _, op := range slices.Sorted(maps.Keys(c.failing)) {
		errs = append(errs, c.failing[op].Err)
	}
	return errors.Join(errs...) // nil errors are left out
}

// Status returns three values: whether the other side is up (false before the first call), when it
// last went down or recovered (zero if it never was down), and the error of the last call.
func (c *Calls) Status() (up bool, changedAt time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.called && !c.breaker.Open(), c.changedAt, c.err
}

// WasCalled reports whether any call has returned.
func (c *Calls) WasCalled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.called
}

// Broken returns the last errors of the failing kinds of calls and when the first of them started
// to fail. If none fails, it returns when the last one recovered.
func (c *Calls) Broken() (turnedAt time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.turnedAt, c.broken()
}

// FailureOf returns the state of one kind of call.
func (c *Calls) FailureOf(op string) Failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failing[op]
}

// Reachable returns an error while the other side is down.
func (c *Calls) Reachable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.breaker.Open() {
		return nil
	}
	return fmt.Errorf("%s has not answered for %v: %w", c.options.Name,
		time.Since(c.changedAt).Round(time.Second), c.err)
}

// Working returns an error while the other side is down. It also returns an error if calls of one
// kind have failed more than once, for longer than three of them may take. The work of that kind is
// then stuck, although the other side answers other calls.
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

// Hanging returns an error if a call made longer ago than the given duration exceeds its time and
// has not returned: it may never return.
func (c *Calls) Hanging(longer time.Duration) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for l, calls := range c.behind {
		for _, h := range calls {
			if age := time.Since(h.since); age > longer && !h.returned() {
				longer, err = age, fmt.Errorf("the call %s has not returned for %v", l.op, age.Round(time.Second))
			}
		}
	}
	return err
}

// ErrorCounts returns the number of failed calls of each kind.
func (c *Calls) ErrorCounts() map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.errors)
}
