package guard_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tickslot/tickslot/internal/guard"
)

// hostileError panics in every method.
type hostileError struct{}

func (hostileError) Error() string   { panic("no text") }
func (hostileError) Is(error) bool   { panic("no comparison") }
func (hostileError) As(any) bool     { panic("no conversion") }
func (hostileError) Unwrap() []error { panic("no causes") }

// Code that panics results in an error that names the kind of code, the value, and the place of the
// panic.
//
// Fails when a panic is passed on, or when the stack is that of another function.
func TestCallReturnsPanics(t *testing.T) {
	t.Parallel()
	err := guard.Call("handler", func() error { return thisPanics() })
	p, ok := errors.AsType[*guard.PanicError](err)
	if !ok || p.Value != "out of paper" || err.Error() != "the handler panicked: out of paper" ||
		!strings.Contains(string(p.Stack), "thisPanics") {
		t.Errorf("%v, %s", err, p.Stack)
	}
	want := errors.New("no connection")
	if err := guard.Call("handler", func() error { return want }); err != want {
		t.Errorf("%v instead of the error that was returned", err)
	}
	var none *guard.PanicError
	if guard.Panicked(p) != p || guard.Panicked(errors.Join(p)) != nil || guard.Panicked(none) != nil {
		t.Error("a panic is not told from what users return")
	}
	if text := (&guard.PanicError{Value: hostileError{}}).Error(); !strings.HasPrefix(text, "panic: ") {
		t.Error(text)
	}
}

func thisPanics() error { panic("out of paper") }

// Code on a separate goroutine yields exactly one error, however it ends.
//
// Fails when nothing is sent for code that ends its goroutine.
func TestGoSendsHowItEnded(t *testing.T) {
	t.Parallel()
	want := errors.New("no connection")
	for text, f := range map[string]func() error{
		"no connection":                     func() error { return want },
		"the handler panicked: no paper":    func() error { panic("no paper") },
		"the handler called runtime.Goexit": func() error { runtime.Goexit(); return nil },
	} {
		if err := <-guard.Go("handler", f); err == nil || err.Error() != text {
			t.Errorf("%v, want %s", err, text)
		}
	}
	if err := <-guard.Go("handler", func() error { return nil }); err != nil {
		t.Error(err)
	}
}

// An error whose methods panic matches nothing, and has a text.
//
// Fails when a panic of a user's error is passed on.
func TestErrorsThatPanic(t *testing.T) {
	t.Parallel()
	if guard.Is(hostileError{}, context.Canceled) {
		t.Error("it is context.Canceled")
	}
	if p, ok := guard.As[*guard.PanicError](hostileError{}); ok || p != nil {
		t.Errorf("it is a PanicError: %v", p)
	}
	if text := guard.Text(hostileError{}, 100); text != "guard_test.hostileError: the Error method panicked: no text" {
		t.Errorf("its text is %q", text)
	}
	if !guard.Is(errors.Join(context.Canceled), context.Canceled) || guard.Text(nil, 100) != "" {
		t.Error("what does not panic is not asked")
	}
}

// The text of an error can be stored in any database: without secrets, NUL and invalid characters,
// and within the length limit.
//
// Fails when a text is cut within a character, or before its secrets are masked.
func TestTextOfErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"dial redis://ann:secret@host/0", "dial redis://***@host/0"},
		{"a\x00b\xff", "a\uFFFDb\uFFFD"},
		{strings.Repeat("ä", 50), strings.Repeat("ä", 50)},
		{strings.Repeat("ä", 51), strings.Repeat("ä", 48) + "…"},
		{"x" + strings.Repeat("ä", 50), "x" + strings.Repeat("ä", 48) + "…"},
	} {
		if got := guard.Text(errors.New(c.text), 100); got != c.want || !utf8.ValidString(got) {
			t.Errorf("%.20q... became %.40q... (%d bytes)", c.text, got, len(got))
		}
	}
}

type handler func() string

type middleware func(handler) handler

// Middleware is applied to a handler, the first one outermost. A middleware that panics or returns
// nil causes an error that names it.
//
// Fails when the order is reversed, or when a fault is accepted.
func TestWrap(t *testing.T) {
	t.Parallel()
	named := func(name string) middleware {
		return func(next handler) handler { return func() string { return name + "(" + next() + ")" } }
	}
	work := func() string { return "work" }
	wrapped, err := guard.Wrap(work, []middleware{named("a"), nil, named("b")})
	if err != nil || wrapped() != "a(b(work))" {
		t.Errorf("%v", err)
	}
	for text, bad := range map[string]middleware{
		"Config.Middleware[1]: the middleware panicked: out of paper": func(handler) handler { panic("out of paper") },
		"Config.Middleware[1]: it returned nil":                       func(handler) handler { return nil },
	} {
		_, err := guard.Wrap(work, []middleware{named("a"), bad})
		if err == nil || !strings.HasPrefix(err.Error(), text) {
			t.Errorf("%v, want %s", err, text)
		}
	}
}
