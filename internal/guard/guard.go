// Package guard calls users' code, such as handlers, hooks, stores and schedules, and methods of
// their errors. Both may panic. Such code may also end its goroutine with runtime.Goexit. A caller
// that must survive that calls the code on a separate goroutine, and uses the error of Goexit if
// the code does not return.
//
// It does not help against code that hangs.
package guard

import (
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"strings"

	"github.com/tickslot/tickslot/internal/mask"
)

// A PanicError is the error of code that panicked.
type PanicError struct {
	Value any    // the value that the code passed to panic
	Stack []byte // of the goroutine that panicked, as debug.Stack returns it

	code string // such as "handler"
}

func (p *PanicError) Error() string {
	switch {
	case p == nil:
		return "no panic" // users' code may return a nil *PanicError
	case p.code == "":
		return fmt.Sprintf("panic: %v", p.Value)
	}
	return fmt.Sprintf("the %s panicked: %v", p.code, p.Value) // fmt recovers if formatting the value panics
}

// Call calls f and returns its panic as a *PanicError. code names the kind of code, such as
// "handler".
func Call(code string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack(), code: code}
		}
	}()
	return f()
}

// Panicked returns err if err itself is a *PanicError, and otherwise nil. The result is also nil
// for a nil *PanicError, which users' code may return.
func Panicked(err error) *PanicError {
	p, _ := err.(*PanicError)
	return p
}

// Go calls f on a new goroutine and sends its error, even if f panics or ends its goroutine.
func Go(code string, f func() error) <-chan error {
	ended := make(chan error, 1)
	go func() {
		err := Goexit(code) // unless f returns
		defer func() { ended <- err }()
		err = Call(code, f)
	}()
	return ended
}

// Goexit returns the error for code that has ended its goroutine.
func Goexit(code string) error { return fmt.Errorf("the %s called runtime.Goexit", code) }

// Is is like errors.Is, except that an error whose methods panic matches nothing.
func Is(err, target error) (yes bool) {
	defer func() {
		if recover() != nil {
			yes = false
		}
	}()
	return errors.Is(err, target)
}

// As is like errors.AsType, except that it finds nothing in an error whose methods panic.
func As[E error](err error) (found E, ok bool) {
	defer func() {
		if recover() != nil {
			var none E
			found, ok = none, false
		}
	}()
	return errors.AsType[E](err)
}

// Text returns the text of an error for storage: without secrets, storable in every database, and
// cut to at most the given number of bytes. It returns "" for nil.
func Text(err error, most int) string {
	if err == nil {
		return ""
	}
	text := ""
	if p := Call("Error method", func() error { text = err.Error(); return nil }); p != nil {
		text = fmt.Sprintf("%T: %v", err, p)
	}
	text = Storable(mask.Text(text))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most-len(dots)], "") + dots
	}
	return text
}

const dots = "…"

// Storable returns text in a form that every database can store: UTF-8 without NUL. Use it only for
// text that people read.
func Storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// Wrap applies middleware to a handler, the first one outermost, and skips nil entries. If a
// middleware panics or returns nil, the error names it as Config.Middleware[i].
func Wrap[H any, M ~func(H) H](handler H, middleware []M) (H, error) {
	for i := len(middleware) - 1; i >= 0; i-- {
		if middleware[i] == nil {
			continue // a fault of Config, which is reported elsewhere
		}
		err := Call("middleware", func() error {
			outer := middleware[i](handler)
			if reflect.ValueOf(outer).IsNil() {
				return errors.New("it returned nil: return a Handler that calls next, or next itself")
			}
			handler = outer
			return nil
		})
		if err != nil {
			return handler, fmt.Errorf("Config.Middleware[%d]: %w", i, err)
		}
	}
	return handler, nil
}
