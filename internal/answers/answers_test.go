package answers_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/internal/answers"
)

// A call fails when it returns an error, panics, or takes longer than Timeout. The third
// consecutive failure takes the other side down, and a success brings it up again.
//
// Fails when a panic is passed on, or when failures of different kinds of calls are counted
// separately.
func TestDownAndUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []string
		c := answers.New(answers.Options{Name: "postgres", Timeout: time.Second,
			Failed: func(op string, _ error, first bool) {
				if first {
					told = append(told, "first "+op)
				} else {
					told = append(told, "again "+op)
				}
			},
			Down: func(error) { told = append(told, "down") },
			Up:   func(downFor time.Duration) { told = append(told, "up after "+downFor.String()) }})
		c.Begin(t.Context())
		oops := errors.New("oops")
		do := func(op string, f func(context.Context) error) error {
			_, err := answers.Do(c.Life(), c, op,
				func(ctx context.Context) (none struct{}, err error) { return none, f(ctx) })
			return err
		}
		fails := func(context.Context) error { return oops }
		panics := func(context.Context) error { panic("oh") }
		hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		if up, _, _ := c.Status(); up || c.WasCalled() {
			t.Error("it is up before the first call")
		}
		if do("a", fails) != oops || do("b", panics) == nil || c.Reachable() != nil {
			t.Error("two failures bring it down, or none is returned")
		}
		if err := do("a", hangs); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(c.Reachable(), err) {
			t.Errorf("%v, %v", err, c.Reachable())
		}
		time.Sleep(time.Minute)
		if err := do("b", func(context.Context) error { return nil }); err != nil || c.Reachable() != nil {
			t.Errorf("%v, %v", err, c.Reachable())
		}
		want := []string{"first a", "first b", "again a", "down", "up after 1m0s"}
		if !slices.Equal(told, want) {
			t.Errorf("%q, want %q", told, want)
		}
		if a, b := c.FailureOf("a"), c.FailureOf("b"); a.Err == nil || b.Err != nil || time.Since(b.Since) != 0 ||
			time.Since(a.Since) != time.Minute+time.Second || c.ErrorCounts()["a"] != 2 {
			t.Errorf("%+v, %+v, %v", a, b, c.ErrorCounts())
		}
	})
}

// Fails when a worker that shuts down reports a failing database.
func TestCallThatIsCutOffIsNotRecorded(t *testing.T) {
	t.Parallel()
	c := answers.New(answers.Options{Timeout: time.Minute,
		Failed: func(op string, err error, _ bool) { t.Error(op, err) }})
	life, end := context.WithCancel(t.Context())
	c.Begin(life)
	_, err := answers.Do(c.Life(), c, "a", func(ctx context.Context) (int, error) {
		end()
		return 0, ctx.Err()
	})
	if err == nil || c.WasCalled() {
		t.Errorf("%v, recorded: %t", err, c.WasCalled())
	}
}

// If a kind of call always fails while others succeed, its error is reported after three times the
// timeout. A single failure is not reported until it happens again.
//
// Fails when a success of another kind hides the failure.
func TestKindOfCallThatAlwaysFailsIsSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := answers.New(answers.Options{Timeout: time.Second, Failed: func(string, error, bool) {}})
		c.Begin(t.Context())
		oops := errors.New("oops")
		do := func(op string, err error) {
			_, _ = answers.Do(c.Life(), c, op, func(context.Context) (none struct{}, _ error) { return none, err })
		}
		do("sweep", oops)
		for i := range 5 {
			if err := c.Working(); (err != nil) != (i > 3) || i > 3 && !errors.Is(err, oops) {
				t.Errorf("after %d s: %v", i, err)
			}
			do("claim", oops)
			do("renew", nil)
			time.Sleep(time.Second)
		}
		err := c.Working()
		if err == nil || c.Reachable() != nil || err.Error() != "the call claim has failed for 5s: oops" {
			t.Errorf("%v; reachable: %v", err, c.Reachable())
		}
		do("claim", nil)
		if err := c.Working(); err != nil {
			t.Error(err)
		}
	})
}

// hostileError panics in one of its methods.
type hostileError struct{ method string }

func (e hostileError) Error() string { return e.method + e.panicsIn("Error") }
func (e hostileError) Is(error) bool { return e.panicsIn("Is") != "" }
func (e hostileError) As(any) bool   { return e.panicsIn("As") != "" }
func (e hostileError) Unwrap() error { e.panicsIn("Unwrap"); return nil }

func (e hostileError) panicsIn(method string) string {
	if e.method == method {
		panic("no " + method)
	}
	return ""
}

// A driver that ends its goroutine, or whose errors panic when they are inspected, counts as
// failing.
//
// Fails when such a call ends the goroutine of its caller, does not return, or returns an error
// whose methods panic.
func TestHostileDrivers(t *testing.T) {
	t.Parallel()
	c := answers.New(answers.Options{Timeout: time.Minute})
	do := func(f func() error) error {
		_, err := answers.Do(t.Context(), c, "a", func(context.Context) (int, error) { return 1, f() })
		return err
	}
	err := do(func() error { runtime.Goexit(); return nil })
	if err == nil || err.Error() != "the store called runtime.Goexit" {
		t.Error(err)
	}
	for _, method := range []string{"Error", "Is", "As", "Unwrap"} {
		err := do(func() error { return fmt.Errorf("%w", hostileError{method}) })
		if method == "Error" { // fmt.Errorf has already called it
			err = do(func() error { return hostileError{method} })
		}
		if err == nil || err.Error() != "the store panicked: no "+method {
			t.Errorf("%s: %v", method, err)
		}
	}
	if n := c.ErrorCounts()["a"]; n != 6 {
		t.Errorf("%d failures", n)
	}
}

// A call that does not return in time is abandoned: its caller continues, and makes no other call
// of its kind until it returns. Other kinds of calls and other parts do not wait for it.
//
// Fails when a caller waits for the abandoned call, when another call of its kind is made, when
// others are delayed, when the late answer reaches the caller, or when the hang is not reported.
func TestCallThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := answers.New(answers.Options{Timeout: time.Second})
		free := make(chan struct{})
		var made atomic.Int32
		hangs := func(context.Context) (int, error) { made.Add(1); <-free; return 7, nil }
		works := func(context.Context) (int, error) { return 1, nil }
		began := time.Now()
		if n, err := answers.DoFor(t.Context(), c, "a", 1, hangs); n != 0 ||
			!errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 2*time.Second {
			t.Errorf("%d, %v after %v", n, err, time.Since(began))
		}
		for range 10 {
			if _, err := answers.DoFor(t.Context(), c, "a", 1, hangs); err == nil || made.Load() != 1 {
				t.Errorf("%v; %d calls", err, made.Load())
			}
			time.Sleep(time.Second)
		}
		if err := c.FailureOf("a").Err; err == nil || c.Working() == nil {
			t.Errorf("%v; %v", err, c.Working())
		}
		for _, other := range []struct {
			op   string
			part int
		}{{"a", 2}, {"b", 1}} {
			if n, err := answers.DoFor(t.Context(), c, other.op, other.part, works); n != 1 || err != nil {
				t.Errorf("%v: %d, %v", other, n, err)
			}
		}
		if err := c.Hanging(11 * time.Second); err == nil || err.Error() != "the call a has not returned for 12s" {
			t.Error(err)
		}
		if err := c.Hanging(13 * time.Second); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		began = time.Now()
		if _, err := answers.Do(ctx, c, "c", hangs); err == nil || time.Since(began) > 2*time.Second ||
			c.FailureOf("c").Err != nil {
			t.Errorf("%v after %v; %v", err, time.Since(began), c.FailureOf("c").Err)
		}
		close(free)
		synctest.Wait()
		if err := c.Hanging(0); err != nil {
			t.Error(err)
		}
		if n, err := answers.DoFor(t.Context(), c, "a", 1, works); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		c = answers.New(answers.Options{Timeout: time.Second, Behind: time.Minute})
		late := func(context.Context) (int, error) { time.Sleep(time.Minute); return 1, nil }
		if n, err := answers.Do(t.Context(), c, "a", late); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// A hanging call counts as one failure of the other side, regardless of how many other calls are
// not made because of it. Three kinds of hanging calls take the other side down.
//
// Fails when the other side goes down or recovers, although it answers every call that is made.
func TestCallsThatAreNotMade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []string
		c := answers.New(answers.Options{Timeout: time.Second,
			Down: func(error) { told = append(told, "down") },
			Up:   func(time.Duration) { told = append(told, "up") }})
		free := make(chan struct{})
		hangs := func(context.Context) (int, error) { <-free; return 1, nil }
		works := func(context.Context) (int, error) { return 1, nil }
		for range 10 {
			for range 5 {
				_, _ = answers.Do(t.Context(), c, "a", hangs)
			}
			_, _ = answers.Do(t.Context(), c, "b", works)
		}
		err := c.Working()
		if len(told) > 0 || c.ErrorCounts()["a"] != 50 || c.FailureOf("a").Times != 50 || err != nil {
			t.Errorf("told %q, %v, %v, %v", told, c.ErrorCounts(), c.FailureOf("a"), err)
		}
		time.Sleep(4 * time.Second)
		if c.Working() == nil {
			t.Error("nobody can see that these calls fail")
		}
		for _, op := range []string{"c", "d", "e"} {
			_, _ = answers.Do(t.Context(), c, op, hangs)
		}
		if up, _, _ := c.Status(); up || !slices.Equal(told, []string{"down"}) {
			t.Errorf("up: %t; told %q", up, told)
		}
		close(free)
		synctest.Wait()
		_, _ = answers.Do(t.Context(), c, "a", works)
		if err := c.Reachable(); err != nil || !slices.Equal(told, []string{"down", "up"}) {
			t.Errorf("%v; told %q", err, told)
		}
	})
}

// A kind of call that hangs for one part of the caller counts as failing, although it works for
// others.
//
// Fails when that is reported repeatedly, or hidden by the calls that work.
func TestHangsForOnePart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		told := 0
		c := answers.New(answers.Options{Timeout: time.Second, Failed: func(_ string, _ error, first bool) {
			if first {
				told++
			}
		}})
		free := make(chan struct{})
		works := func(context.Context) (int, error) { return 1, nil }
		for range 10 {
			_, _ = answers.DoFor(t.Context(), c, "a", 1, func(context.Context) (int, error) { <-free; return 1, nil })
			_, _ = answers.DoFor(t.Context(), c, "a", 2, works)
			time.Sleep(time.Second)
		}
		if told != 1 || c.Working() == nil || c.FailureOf("a").Times != 10 || c.Reachable() != nil {
			t.Errorf("told %d times; %v, %+v", told, c.Working(), c.FailureOf("a"))
		}
		close(free)
		synctest.Wait()
		if _, _ = answers.DoFor(t.Context(), c, "a", 2, works); c.Working() != nil || c.FailureOf("a").Err != nil {
			t.Errorf("it has returned: %v", c.Working())
		}
	})
}

// Callers and health checks see the error that Wrap returns, and failures accepted by Ignored are
// only counted. Turned is called when the first kind of call fails, and when all kinds work again.
//
// Fails when Turned is called for each failure, or when one kind recovers while another still
// fails.
func TestTurned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []string
		oops := errors.New("oops")
		c := answers.New(answers.Options{Timeout: time.Second,
			Wrap:    func(op string, err error) error { return fmt.Errorf("%s: %w", op, err) },
			Ignored: func(op string, _ error) bool { return op == "other" },
			Turned:  func(err error, lasted time.Duration) { told = append(told, fmt.Sprint(err, lasted)) }})
		for _, call := range []struct {
			op  string
			err error
		}{{"a", nil}, {"other", oops}, {"a", oops}, {"b", oops}, {"a", nil}, {"b", nil}, {"a", nil}} {
			_, _ = answers.Do(t.Context(), c, call.op, func(context.Context) (int, error) { return 0, call.err })
			time.Sleep(time.Second)
			at, err := c.Broken()
			if failing := len(told) == 1; (err != nil) != failing || failing && !errors.Is(err, oops) ||
				at.After(time.Now()) {
				t.Errorf("%+v: %v since %v, told %q", call, err, at, told)
			}
		}
		if want := []string{"a: oops 2s", "<nil> 3s"}; !slices.Equal(told, want) {
			t.Errorf("%q, want %q", told, want)
		}
		if n := c.ErrorCounts()["other"]; n != 1 {
			t.Errorf("%d failures were counted", n)
		}
	})
}
