// Package answers tracks whether the other side, a database or a store, answers. Calls bounds the
// calls to it, counts which kinds of calls fail, and reports when it goes down and comes back. A
// Batch limits the rows of one call, and shrinks if they were too many. A Breaker is for callers
// that bound their calls by other means.
//
// It does not repeat calls, and cannot end one whose driver ignores its context: it leaves such a
// call behind. Like a call whose reply is lost, that may still succeed later, so it must not write
// to variables that its caller still uses.
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

// grace is how much longer a call is waited for before it is left behind: the process may have been
// paused, and the answer may be there.
const grace = time.Second

var errHangs = errors.New("an earlier call has not returned, although its time is over")

// Options of Calls. The functions may be nil. Those below Ignored are called with a mutex held, in
// the order in which things happened, so they must not block, and must not call methods of Calls.
type Options struct {
	Name    string        // of the other side
	Timeout time.Duration // of each call
	Behind  time.Duration // after how long a call that does not return is left behind, if longer

	Wrap    func(op string, err error) error // returns what callers and health see of an error
	Ignored func(op string, err error) bool  // a failure that is only counted: it says nothing about the other side

	Failed func(op string, err error, first bool) // first: the call before did not fail
	Down   func(err error)                        // the third call in a row has failed
	Up     func(downFor time.Duration)            // a call has succeeded again
	Turned func(err error, lasted time.Duration)  // a kind of call fails, after all worked, or (nil) all work again
}

// A Failure is the state of one kind of call: the error of its latest call (nil: it succeeded), and
// since when such calls fail, or succeed again (zero: none has failed).
type Failure struct {
	Err   error
	Since time.Time
	Times int // in a row
}

// Calls are the calls to one other side. Make them with New.
type Calls struct {
	options Options
	life    context.Context // set by Begin

	mu        sync.Mutex // of all callers
	called    bool
	breaker   Breaker            // of all calls: open while the other side is down
	changedAt time.Time          // when it last opened or closed; zero: never
	err       error              // of the last call; nil: it succeeded
	failing   map[string]Failure // by kind of call
	turnedAt  time.Time          // when the first kind of call began to fail, or the last one worked again
	errors    map[string]uint64
	behind    map[lane][]hanging // calls that were left behind
}

// A lane is a kind of call, made for one part of the caller.
type lane struct {
	op   string
	part int
}

// A hanging is a call that was left behind.
type hanging struct {
	since time.Time    // when it was made
	ended <-chan error // its result, when it has returned after all
}

func (h hanging) returned() bool { return len(h.ended) > 0 }

// New returns calls.
func New(o Options) *Calls {
	return &Calls{options: o, failing: map[string]Failure{}, turnedAt: time.Now(), errors: map[string]uint64{},
		behind: map[lane][]hanging{}}
}

// Begin sets the result of Life.
func (c *Calls) Begin(life context.Context) { c.life = life }

// Life returns the context of all calls of a service. Its values reach the driver, and its end cuts
// calls off.
func (c *Calls) Life() context.Context { return c.life }

// Name returns the name of the other side.
func (c *Calls) Name() string { return c.options.Name }

// Timeout returns how long each call may take.
func (c *Calls) Timeout() time.Duration { return c.options.Timeout }

// Do makes a call. If the driver, or a method of its error, panics or calls runtime.Goexit, that is
// a failure. If the end of ctx cuts a call off, its error is not recorded, because it says nothing
// about the other side.
//
// If f does not return when its time is over (see Options.Behind), or soon after ctx has ended, it
// is left behind, and no other call of its kind is made until it returns. Like a call whose reply
// is lost, it may still have an effect, and its answer is dropped. So f must use nothing that the
// caller changes later.
func Do[T any](ctx context.Context, c *Calls, op string, f func(context.Context) (T, error)) (T, error) {
	return DoFor(ctx, c, op, 0, f)
}

// DoFor is like Do, for one of several parts of the caller that make such calls: a call that one of
// them has left behind holds up no other.
func DoFor[T any](
	ctx context.Context, c *Calls, op string, part int, f func(context.Context) (T, error),
) (answer T, err error) {
	if ctx.Err() != nil {
		return answer, context.Cause(ctx)
	}
	var got T // not answer: a call that was left behind must not write to it
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

// checked calls the methods of an error: if one panics, it does so here, where that is recovered,
// and the panic becomes the error.
func checked(err error) error {
	if err != nil {
		_, _, _ = err.Error(), errors.Is(err, errHangs), errors.As(err, new(*guard.PanicError))
	}
	return err
}

// wait calls f, and waits until it returns, or is left behind.
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

// hangs reports whether a call was left behind and has not returned.
func (c *Calls) hangs(l lane) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.behind[l] = slices.DeleteFunc(c.behind[l], hanging.returned)
	return len(c.behind[l]) > 0
}

// anyHangs is like hangs, for all parts of the caller. Called with mu held.
func (c *Calls) anyHangs(op string) bool {
	for l, calls := range c.behind {
		if l.op == op && slices.ContainsFunc(calls, func(h hanging) bool { return !h.returned() }) {
			return true
		}
	}
	return false
}

// record records whether a call succeeded, and reports changes. A call that was not made, because
// another hangs, is a failure of its kind, but does not count for the other side: otherwise three
// of them in a row, between calls that succeed, would each time report that it went down and came
// back.
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

// turn records that calls of one kind begin to fail, or work again. Called with mu held.
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

// broken returns the last errors of the kinds of calls that fail. Called with mu held.
func (c *Calls) broken() error {
	var errs []error
	for _, op := range slices.Sorted(maps.Keys(c.failing)) {
		errs = append(errs, c.failing[op].Err)
	}
	return errors.Join(errs...) // which leaves out nil
}

// Status returns whether the other side is up (false also before the first call), when it last went
// down or came back (zero: it never was down), and the error of the last call.
func (c *Calls) Status() (up bool, changedAt time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.called && !c.breaker.Open(), c.changedAt, c.err
}

// WasCalled reports whether a call has returned.
func (c *Calls) WasCalled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.called
}

// Broken returns the last errors of the kinds of calls that fail, and when the first of them began
// to fail; if none fails, when the last one worked again.
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

// Working returns an error while the other side is down, or if calls of one kind have failed, more
// than once, for longer than three of them may take. Even if other kinds succeed, the work of that
// kind is then stuck, although the other side answers.
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

// Hanging returns an error if a call that was made longer ago has not returned, although its time
// is over: perhaps it never will.
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

// ErrorCounts returns how many calls of each kind have failed.
func (c *Calls) ErrorCounts() map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.errors)
}
