// Package guard calls code of users, such as handlers, hooks, stores and schedules, and methods of
// its errors. Both may panic. Such code may also end its goroutine with runtime.Goexit: a caller
// that must survive that calls it on a goroutine of its own, and starts with the error of Goexit in
// case the code does not return.
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
		return "no panic" // code of users may return a nil one
	case p.code == "":
		return fmt.Sprintf("panic: %v", p.Value)
	}
	return fmt.Sprintf("the %s panicked: %v", p.code, p.Value) // fmt survives a value that panics
}

// Call calls f, and returns its panic as a *PanicError. code names the code, such as "handler".
func Call(code string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack(), code: code}
		}
	}()
	return f()
}

// Panicked returns err if it is a *PanicError itself; nil if it is not, or is a nil one, which code
// of users may return.
func Panicked(err error) *PanicError {
	p, _ := err.(*PanicError)
	return p
}

// Go calls f on a goroutine of its own, and sends its error, even if f panics or ends its
// goroutine.
func Go(code string, f func() error) <-chan error {
	ended := make(chan error, 1)
	go func() {
		err := Goexit(code) // unless f returns
		defer func() { ended <- err }()
		err = Call(code, f)
	}()
	return ended
}

// Goexit returns the error of code that has ended its goroutine.
func Goexit(code string) error { return fmt.Errorf("the %s called runtime.Goexit", code) }

// Is is like errors.Is, but an error whose methods panic matches nothing.
func Is(err, target error) (yes bool) {
	defer func() {
		if recover() != nil {
			yes = false
		}
	}()
	return errors.Is(err, target)
}

// As is like errors.AsType, but finds nothing in an error whose methods panic.
func As[E error](err error) (found E, ok bool) {
	defer func() {
		if recover() != nil {
			var none E
			found, ok = none, false
		}
	}()
	return errors.AsType[E](err)
}

// Text returns the text of an error for rows: without secrets, storable in every database, and cut
// to that many bytes. It is "" for nil.
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

// Storable returns text in a form that every database can store: UTF-8, without NUL. It is for text
// that people read.
func Storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// Wrap puts middleware around a handler, the first outermost, and skips nil. If a middleware
// panics, or returns nil, the error names it as Config.Middleware[i].
func Wrap[H any, M ~func(H) H](handler H, middleware []M) (H, error) {
	for i := len(middleware) - 1; i >= 0; i-- {
		if middleware[i] == nil {
			continue // a fault of Config, which is reported once
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
