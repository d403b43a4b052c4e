package health_test

import (
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/health"
)

type typedNil struct{ text string }

func (e *typedNil) Error() string { return e.text }

// Fails when a check that panics or calls runtime.Goexit ends the probe or counts as a success.
func TestAPanicIsAFailure(t *testing.T) {
	t.Parallel()
	h := health.New(nil, []health.Check{
		{Name: "panics", Func: func() error { panic("oh") }},
		{Name: "panics in Error", Func: func() error { return (*typedNil)(nil) }},
		{Name: "exits", Func: func() error { runtime.Goexit(); return nil }},
		{Name: "panics calmly", Func: health.Debounce(time.Hour, func() error { panic("oh") })},
		{Name: "is well"},
	}...)
	for range 2 {
		expect(t, get(h, "/readyz?verbose"), 200, "degraded", "ok\n[+]live ok\n[+]started ok\n[+]ready ok\n"+
			"[-]panics failed: the check panicked: oh\n"+
			"[-]panics in Error failed: the check panicked: runtime error: invalid memory address or nil pointer "+
			"dereference\n"+
			"[-]exits failed: the check ended its goroutine\n"+
			"[-]panics calmly failed: the check panicked: oh\n[+]is well ok\n")
	}
}

// A check that hangs fails after Timeout and does not delay the other checks. It costs one
// goroutine, however often it is called.
//
// Fails when checks are called one after the other, or when each probe calls the hanging check
// again.
func TestACheckThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var hung atomic.Int32
		gate := make(chan struct{})
		wait := func() error { hung.Add(1); <-gate; return nil }
		h := health.New(nil, health.Check{Name: "a", Func: wait}, health.Check{Name: "b", Func: wait},
			health.Check{Name: "bad", Func: bad})
		for i := range 100 {
			began := time.Now()
			w := get(h, "/readyz?verbose")
			if w.Code != 200 || !strings.Contains(w.Body.String(), "[-]a failed: the check has not answered for ") ||
				!strings.Contains(w.Body.String(), "[-]bad failed: it is bad") {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			want := health.Timeout
			if i > 0 {
				want = 0 // the hanging check has already run for longer than Timeout
			}
			if took := time.Since(began); took != want {
				t.Errorf("probe %d took %v, want %v", i, took, want)
			}
		}
		began := time.Now()
		if get(h, "/livez").Code != 200 || get(h, "/readyz?exclude=a&exclude=b").Code != 200 ||
			get(h, "/readyz/ready").Code != 200 || time.Since(began) != 0 {
			t.Error("other checks were delayed")
		}
		if n := hung.Load(); n != 2 {
			t.Errorf("%d calls hang, want one of each", n)
		}
		close(gate)
		synctest.Wait()
		if w := get(h, "/readyz/a"); w.Code != 200 {
			t.Errorf("when it answers again: %d %s", w.Code, w.Body)
		}
	})
}

// Fails when Debounce changes its result immediately, never changes it, or adds up separate
// periods. Also fails when a panic escapes it.
func TestDebounce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var now error
		f := health.Debounce(10*time.Second, func() error { return now })
		step := func(err, want error) {
			t.Helper()
			now = err
			if got := f(); got != want {
				t.Errorf("at %v: %v, want %v", time.Now().Format("05"), got, want)
			}
			time.Sleep(time.Second)
		}
		first, second := errors.New("first"), errors.New("second")
		step(first, first) // the first result counts immediately
		for range 10 {
			step(nil, first)
		}
		step(nil, nil)
		for range 30 { // the check flaps
			step(second, nil)
			step(nil, nil)
		}
		for range 10 {
			step(first, nil)
		}
		step(second, second)
		step(first, first) // the latest error is returned
		for range 10 {
			step(nil, first)
		}
		step(nil, nil)
		if err := health.Debounce(0, bad)(); err == nil {
			t.Error("without a delay it says nothing")
		}
		jumpy := health.Debounce(10*time.Second, func() error {
			if now != nil {
				panic(now)
			}
			return nil
		})
		for _, now = range []error{nil, first, nil} { // a panic counts as a failure
			if err := jumpy(); err != nil {
				t.Error(err)
			}
		}
		quick := health.Debounce(0, func() error { return now })
		for _, want := range []error{nil, first, nil, nil, second} {
			now = want
			if got := quick(); got != want {
				t.Errorf("without a delay: %v, want %v", got, want)
			}
		}
	})
}
