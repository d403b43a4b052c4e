package timer

import (
	"context"
	"errors"
	"fmt"
)

// A Handler does the work of a run. Timer.Run is one.
type Handler func(ctx context.Context) error

// A Middleware wraps the Run of every timer, to do something before, after or around each attempt:
// start a span, add values to the context, measure, turn a panic into an error. It returns a
// Handler that calls next, usually once.
//
//	func logged(next timer.Handler) timer.Handler {
//		return func(ctx context.Context) error {
//			run, _ := timer.RunFromContext(ctx)
//			log.Println(run.Timer(), "begins")
//			defer log.Println(run.Timer(), "ends")
//			return next(ctx)
//		}
//	}
//
// A Middleware is called once for each timer, when the timer is registered or updated, on the
// goroutine of New, Register or Update, or of a Manager's round. One that panics or returns nil
// then is a fault of the registration. The Handler that it returns is part of the run: it runs on
// the run's goroutine for every attempt, holds the slot meanwhile, is bounded by MaxRunTime, and
// its error or panic is the attempt's. It should not return before next has, because the slot is
// released then; and it passes on a context that is derived from its own, because RunFromContext
// needs that.
//
// To observe runs without taking part in them, use Hooks.
type Middleware func(next Handler) Handler

// wrap puts middleware around a handler, the first outermost. It calls user code.
func wrap(run Handler, middleware []Middleware) (Handler, error) {
	for i := len(middleware) - 1; i >= 0; i-- {
		if middleware[i] == nil {
			continue // a fault of Config, which is reported once
		}
		outer, err := wrapOnce(run, middleware[i])
		if err != nil {
			return nil, fmt.Errorf("Config.Middleware[%d]: %w", i, err)
		}
		run = outer
	}
	return run, nil
}

func wrapOnce(run Handler, m Middleware) (outer Handler, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it panicked: %v", p) // fmt survives a value that panics
		}
	}()
	if outer = m(run); outer == nil {
		return nil, errors.New("it returned nil: return a Handler that calls next, or next itself")
	}
	return outer, nil
}
