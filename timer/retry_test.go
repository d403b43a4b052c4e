package timer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/timer"
)

// attempts records when and with what a handler is called. Each call ends as the next entry of
// script says. The last entry is repeated.
type attempts struct {
	mu     sync.Mutex
	script []error
	at     []time.Time
	runs   []attempt
}

type attempt struct {
	run      *timer.Run
	number   int
	slot     int
	fence    dlock.Fence
	degraded bool
}

func (a *attempts) handle(ctx context.Context) error {
	r, _ := timer.RunFromContext(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = append(a.at, time.Now())
	a.runs = append(a.runs, attempt{r, r.Attempt(), r.Slot(), r.Fence(), r.Degraded()})
	return a.script[min(len(a.at), len(a.script))-1]
}

func (a *attempts) calls() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.at)
}

var errFlaky = errors.New("flaky")

// last returns how the latest run of a timer ended. It fails the test if no run has ended.
func last(t *testing.T, h *host, name string) timer.RunResult {
	t.Helper()
	st, _ := h.Status().Timer(name)
	if st.Last == nil {
		t.Fatalf("%s: no run has ended: %+v", name, st)
	}
	return *st.Last
}

func trigger(t *testing.T, h *host, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := h.Trigger(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Wait()
}

// A run that fails is called again MaxAttempts - 1 times, in the same run, tick, slot and fence.
// The waits grow to MaxWait, and each is between half of its nominal length and all of it. The
// attempts are one run and one counted tick, with one log line per retry.
//
// Fails when Attempt starts at 0, when there is one attempt too many or too few, or when a retry is
// not counted. Also fails when waits do not grow (Multiplier 1), grow beyond MaxWait (MaxInterval
// not set, or not reduced by a quarter) or are not random (RandomizationFactor 0).
func TestRetryWaitsGrowAndAreJittered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const timers, most = 30, 6
		reg := newRegistry()
		var log testkit.Log
		f := newFleet(t)
		saw := map[string]*attempts{}
		var list []timer.Timer
		for i := range timers {
			name := fmt.Sprint("t", i)
			saw[name] = &attempts{script: []error{errFlaky}}
			list = append(list, timer.Timer{Name: name, Schedule: once(time.Now().Add(10 * time.Second)),
				Run:   saw[name].handle,
				Retry: timer.Retry{MaxAttempts: most, FirstWait: time.Second, MaxWait: 8 * time.Second}})
		}
		h := f.start(timer.Config{Registerer: reg, Logger: textLogger(&log)}, list...)
		time.Sleep(time.Minute)
		var short, long int
		for name, a := range saw {
			if a.calls() != most {
				t.Fatalf("%s: %d attempts, want %d", name, a.calls(), most)
			}
			for i, whole := range []time.Duration{1, 2, 4, 8, 8} {
				whole *= time.Second
				wait := a.at[i+1].Sub(a.at[i])
				if wait < whole/2 || wait > whole {
					t.Errorf("%s: wait %d was %v, want %v to %v", name, i+1, wait, whole/2, whole)
				}
				if wait < whole*5/8 {
					short++
				} else if wait > whole*7/8 {
					long++
				}
			}
			for i, r := range a.runs {
				if r.number != i+1 || r.run != a.runs[0].run || r.slot != 0 || r.fence == 0 ||
					r.fence != a.runs[0].fence {
					t.Errorf("%s: attempt %d was %+v, the first %+v", name, i+1, r, a.runs[0])
				}
			}
			st, _ := h.Status().Timer(name)
			if st.Ticks != 1 || st.Started != 1 || len(st.Skipped) != 0 {
				t.Errorf("%s: %+v, want one tick that started one run", name, st)
			}
			if res := last(t, h, name); res.Attempt != most || res.Outcome != timer.OutcomeFailed ||
				res.Err != errFlaky || res.Took < a.at[most-1].Sub(a.at[0]) {
				t.Errorf("%s: ended as %+v", name, res)
			}
		}
		if short < 15 || long < 15 { // of 150; a quarter is expected for each
			t.Errorf("%d waits were short and %d long of %d: not spread out", short, long, timers*(most-1))
		}
		got := values(t, reg)
		if n := got["tickslot_retries_total t0"]; n != most-1 {
			t.Errorf("retries_total %v, want %d", n, most-1)
		}
		if n := got["tickslot_runs_total error t0"]; n != 1 {
			t.Errorf("runs_total %v, want 1", n)
		}
		f.Stop()
		if n := strings.Count(log.String(), "will be retried"); n != timers*(most-1) {
			t.Errorf("%d lines report retries, want %d", n, timers*(most-1))
		}
		if n := strings.Count(log.String(), "attempt=6"); n != timers {
			t.Errorf("%d lines report failed runs, want %d", n, timers)
		}
	})
}

// Without Retry a run has one attempt. If a timer may retry, the metric exists before the first
// retry. Otherwise it does not exist.
//
// Fails when the default of MaxAttempts is 2, or when writeTally ignores retries.
func TestNoRetryByDefault(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reg := newRegistry()
		f := newFleet(t)
		a := &attempts{script: []error{errFlaky}}
		h := f.start(timer.Config{Registerer: reg}, timer.Timer{Name: "a", Run: a.handle},
			timer.Timer{Name: "b", Run: a.handle, Retry: timer.Retry{MaxAttempts: 2}})
		trigger(t, h, "a")
		time.Sleep(time.Hour)
		if res := last(t, h, "a"); a.calls() != 1 || res.Attempt != 1 || res.Err != errFlaky {
			t.Errorf("%d calls, %+v", a.calls(), res)
		}
		got := values(t, reg)
		if _, ok := got["tickslot_retries_total a"]; ok {
			t.Error("retries_total is there without Retry")
		}
		if n, ok := got["tickslot_retries_total b"]; !ok || n != 0 {
			t.Errorf("retries_total %v, there: %v", n, ok)
		}
		f.Stop()
	})
}

// A run that succeeds after retries has succeeded, and the other hosts learn of the success.
//
// Fails when the outcome is taken from the first attempt (the loop shadows err), or when the result
// keeps its error.
func TestRetryThenSuccess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reg := newRegistry()
		f := newFleet(t)
		a := &attempts{script: []error{errFlaky, errFlaky, nil}}
		h := f.start(timer.Config{}, timer.Timer{Name: "a", Run: a.handle, Retry: timer.Retry{MaxAttempts: 5}})
		other := f.start(timer.Config{Registerer: reg}, timer.Timer{Name: "a",
			Run: func(context.Context) error { return errFlaky }})
		trigger(t, h, "a")
		time.Sleep(time.Minute)
		if res := last(t, h, "a"); res.Outcome != timer.OutcomeOK || res.Err != nil || res.Attempt != 3 ||
			a.calls() != 3 {
			t.Errorf("%d calls, %+v", a.calls(), res)
		}
		trigger(t, other, "a")
		if at := values(t, reg)["tickslot_last_success_timestamp_seconds a"]; at < float64(a.at[2].Unix()) ||
			at > float64(a.at[2].Unix()+1) {
			t.Errorf("the other host knows of a success at %v, want %d", at, a.at[2].Unix())
		}
		trigger(t, h, "a")
		if n := a.runs[len(a.runs)-1].number; n != 1 {
			t.Errorf("the next run began with attempt %d", n)
		}
		f.Stop()
	})
}

// An error marked with Permanent ends the run, whatever If returns. The result has the original
// error. A mark inside a wrapped error is also found.
//
// Fails when Retry.wants does not look for the mark, looks after calling If, or checks only the
// outermost error, or when the mark remains on the result's error.
func TestPermanent(t *testing.T) {
	if timer.Permanent(nil) != nil {
		t.Error("Permanent(nil) is an error")
	}
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		retry := timer.Retry{MaxAttempts: 3, If: func(error) bool { return true }}
		wrapped := fmt.Errorf("order 7: %w", timer.Permanent(errFlaky))
		for _, c := range []struct {
			name     string
			retry    timer.Retry
			returned error
			result   error
			calls    int
		}{
			{"plain", timer.Retry{MaxAttempts: 3}, timer.Permanent(errFlaky), errFlaky, 1},
			{"asked", retry, timer.Permanent(errFlaky), errFlaky, 1},
			{"wrapped", retry, wrapped, wrapped, 1},
			{"no retry", timer.Retry{}, timer.Permanent(errFlaky), errFlaky, 1},
			{"not permanent", retry, errFlaky, errFlaky, 3},
		} {
			a := &attempts{script: []error{c.returned}}
			h := f.start(timer.Config{}, timer.Timer{Name: c.name, Run: a.handle, Retry: c.retry})
			trigger(t, h, c.name)
			time.Sleep(time.Minute)
			res := last(t, h, c.name)
			if a.calls() != c.calls || res.Attempt != c.calls || res.Outcome != timer.OutcomeFailed ||
				res.Err != c.result || !errors.Is(res.Err, errFlaky) {
				t.Errorf("%s: %d calls, %+v", c.name, a.calls(), res)
			}
		}
		f.Stop()
	})
}

// panickingError is an error whose methods panic.
type panickingError struct{}

func (panickingError) Error() string { return "panicking" }
func (panickingError) Unwrap() error { panic("looked into") }

// If decides which errors are retried. Panics are retried only if If returns true. If this user
// code misbehaves, the run ends with the outcome of its last attempt, and nothing else is affected.
//
// Fails when Retry.wants does not call If, retries a panic by default, or does not recover. Also
// fails when err is reset after the attempt, so that an If that calls runtime.Goexit hides the
// error.
func TestI10RetryIf(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		boom := func(context.Context) error { panic("boom") }
		isPanic := func(err error) bool { _, ok := errors.AsType[*timer.PanicError](err); return ok }
		fails := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
		cases := []struct {
			name    string
			run     func(context.Context) error
			If      func(error) bool
			calls   int
			outcome timer.Outcome
		}{
			{"yes", fails(errFlaky), func(err error) bool { return err == errFlaky }, 3, timer.OutcomeFailed},
			{"no", fails(errFlaky), func(err error) bool { return err != errFlaky }, 1, timer.OutcomeFailed},
			{"panic", boom, nil, 1, timer.OutcomePanicked},
			{"panic, yes", boom, isPanic, 3, timer.OutcomePanicked},
			{"If panics", fails(errFlaky), func(error) bool { panic("no") }, 1, timer.OutcomeFailed},
			{"If exits", fails(errFlaky), func(error) bool { runtime.Goexit(); return true }, 1, timer.OutcomeFailed},
			{"an error that panics", fails(panickingError{}), nil, 1, timer.OutcomeFailed},
		}
		var timers []timer.Timer
		for _, c := range cases {
			for _, local := range []bool{false, true} {
				timers = append(timers, timer.Timer{Name: fmt.Sprintf("%s %v", c.name, local), LocalOnly: local,
					Run:   c.run,
					Retry: timer.Retry{MaxAttempts: 3, If: c.If}})
			}
		}
		var log testkit.Log
		h := f.start(timer.Config{Logger: textLogger(&log)}, timers...)
		for _, tm := range timers {
			trigger(t, h, tm.Name)
		}
		time.Sleep(time.Minute)
		for _, c := range cases {
			for _, local := range []bool{false, true} {
				name := fmt.Sprintf("%s %v", c.name, local)
				res := last(t, h, name)
				if res.Attempt != c.calls || res.Outcome != c.outcome {
					t.Errorf("%s: %+v, want %d attempts and %q", name, res, c.calls, c.outcome)
				}
				if _, isPanic := res.Err.(*timer.PanicError); isPanic != (c.outcome == timer.OutcomePanicked) ||
					!isPanic && res.Err != errFlaky && res.Err != (panickingError{}) {
					t.Errorf("%s: %v", name, res.Err)
				}
				trigger(t, h, name) // its place and its slot are free
			}
		}
		f.Stop()
		if n := strings.Count(log.String(), "no retry"); n != 8 {
			t.Errorf("%d lines report code that panicked, want 8:\n%s", n, log.String())
		}
		if n := strings.Count(log.String(), "will be retried"); n < 8 || strings.Count(log.String(), "stack=") < 8 {
			t.Errorf("%d lines report retries, and not all of those after panics have a stack:\n%s", n, log.String())
		}
	})
}

// A second attempt that exits its goroutine ends the run. The run is cleaned up as if the first
// attempt had exited.
//
// Fails when err is not reset before each attempt, because the result then has the error of the
// first attempt.
func TestI10GoexitInARetry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		calls := 0
		h := f.start(timer.Config{}, timer.Timer{Name: "a", Retry: timer.Retry{MaxAttempts: 3},
			Run: func(context.Context) error {
				if calls++; calls == 2 {
					runtime.Goexit()
				}
				return errFlaky
			}})
		trigger(t, h, "a")
		time.Sleep(time.Minute)
		if res := last(t, h, "a"); calls != 2 || res.Attempt != 2 || res.Outcome != timer.OutcomeFailed ||
			!strings.Contains(res.Err.Error(), "Goexit") {
			t.Errorf("%d calls, %+v", calls, res)
		}
		trigger(t, h, "a")
		f.Stop()
	})
}

// Draining ends a wait immediately, however long it would still take, and the run ends with the
// outcome of its last attempt. Before that, during PreStopDelay, retries continue. An attempt that
// fails while draining is the last.
//
// Fails when Scheduler.drain does not wake waiting runs (Run then returns up to a second later), or
// when mayRetry does not check the phase.
func TestI8DrainEndsAWaitForARetry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		long := timer.Retry{MaxAttempts: 3, FirstWait: 30 * time.Minute}
		waits, quick := &attempts{script: []error{errFlaky}}, &attempts{script: []error{errFlaky}}
		busy := 0
		h := f.start(timer.Config{PreStopDelay: 10 * time.Second},
			timer.Timer{Name: "waits", Retry: long, Run: waits.handle},
			timer.Timer{Name: "quick", Retry: timer.Retry{MaxAttempts: 1000, FirstWait: 2 * time.Second,
				MaxWait: 2 * time.Second}, Run: quick.handle},
			timer.Timer{Name: "busy", Retry: timer.Retry{MaxAttempts: 3}, Run: func(ctx context.Context) error {
				busy++
				_ = sleep(ctx, 12300*time.Millisecond)
				return errFlaky
			}})
		trigger(t, h, "waits", "quick")
		time.Sleep(300 * time.Millisecond)
		trigger(t, h, "busy")
		stopped := time.Now()
		h.Cancel()
		time.Sleep(10*time.Second - time.Millisecond)
		if n := quick.calls(); n < 5 {
			t.Errorf("%d attempts in PreStopDelay", n)
		}
		time.Sleep(2 * time.Millisecond)
		for _, name := range []string{"waits", "quick"} {
			st, _ := h.Status().Timer(name)
			if len(st.Running) != 0 {
				t.Errorf("%s: still waits while draining", name)
			}
		}
		if err := h.Wait(); err != nil {
			t.Error(err)
		}
		if took := time.Since(stopped); took < 12*time.Second || took > 12301*time.Millisecond {
			t.Errorf("Run returned after %v, want as soon as the last handler did", took)
		}
		for name, want := range map[string]int{"waits": 1, "quick": quick.calls(), "busy": 1} {
			if res := last(t, h, name); res.Attempt != want || res.Outcome != timer.OutcomeFailed ||
				res.Err != errFlaky {
				t.Errorf("%s: %+v, want %d attempts, and failed", name, res, want)
			}
			if list, _ := f.store.List(t.Context(), "timer:"+name, 1); len(list) != 0 {
				t.Errorf("%s: slot still held: %+v", name, list)
			}
		}
		if waits.calls() != 1 || busy != 1 {
			t.Errorf("%d and %d calls", waits.calls(), busy)
		}
	})
}

// MaxRunTime applies to all attempts and waits together. It ends an attempt, a wait that would
// exceed it does not begin, and no attempt follows.
//
// Fails when every attempt gets its own MaxRunTime, when runner.again ignores the deadline (the
// slot is then held for nothing), or when mayRetry ignores the context.
func TestRetryKeepsToMaxRunTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		slow := 0
		fails := &attempts{script: []error{errFlaky}}
		began := time.Now()
		h := f.start(timer.Config{},
			timer.Timer{Name: "slow", MaxRunTime: 10 * time.Second, Retry: timer.Retry{MaxAttempts: 9},
				Run: func(ctx context.Context) error {
					slow++
					_ = sleep(ctx, 6*time.Second)
					return errFlaky
				}},
			timer.Timer{Name: "fails", MaxRunTime: 10 * time.Second, Run: fails.handle,
				// The waits are 2 to 4 s, 4 to 8 s, and 8 to 16 s.
				Retry: timer.Retry{MaxAttempts: 9, FirstWait: 4 * time.Second, MaxWait: 40 * time.Second}})
		trigger(t, h, "slow", "fails")
		time.Sleep(20 * time.Second)
		if res := last(t, h, "slow"); slow != 2 || res.Attempt != 2 || res.Outcome != timer.OutcomeTimedOut ||
			res.Took != 10*time.Second {
			t.Errorf("slow: %d calls, %+v", slow, res)
		}
		res := last(t, h, "fails")
		end := fails.at[len(fails.at)-1]
		if res.Outcome != timer.OutcomeFailed || res.Attempt != len(fails.at) || res.Attempt < 2 ||
			res.Took != end.Sub(fails.at[0]) || end.Sub(began) >= 10*time.Second {
			t.Errorf("fails: attempts at %v, %+v; want it to end with the last attempt that MaxRunTime has room for",
				fails.at, res)
		}
		f.Stop()
	})
}
