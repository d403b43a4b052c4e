package durable_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/internal/store"
)

// The result of a run depends on what its handler does.
//
// Fails when an outcome is wrong, an attempt is missing, or a retry comes too soon or too late.
func TestResults(t *testing.T) {
	oops := errors.New("oops")
	for _, c := range []struct {
		what    string
		handle  durable.Handler
		retry   durable.Retry
		state   store.State
		want    []store.Outcome
		says    string
		between [2]time.Duration // bounds of the wait between the attempts; 0 means any
	}{
		{what: "nil", handle: func(context.Context, *durable.Run) error { return nil },
			state: "succeeded", want: []store.Outcome{"ok"}},
		{what: "error", handle: func(context.Context, *durable.Run) error { return oops },
			retry: durable.Retry{MaxAttempts: 3, FirstWait: 10 * time.Second},
			state: "dead", want: []store.Outcome{"error", "error", "error"}, says: "oops",
			between: [2]time.Duration{5 * time.Second, 20 * time.Second}},
		{what: "second time lucky", handle: func(_ context.Context, run *durable.Run) error {
			if run.Attempt == 1 {
				return oops
			}
			return nil
		}, state: "succeeded", want: []store.Outcome{"error", "ok"}},
		{what: "panic", handle: func(context.Context, *durable.Run) error { panic("help") },
			retry: durable.Retry{MaxAttempts: 2}, state: "dead", want: []store.Outcome{"panic", "panic"},
			says: "the handler panicked: help"},
		{what: "nil panic value", handle: func(context.Context, *durable.Run) error { panic(badError{}) },
			retry: durable.Retry{MaxAttempts: 1}, state: "dead", want: []store.Outcome{"panic"}},
		{what: "no panic", handle: func(context.Context, *durable.Run) error { return (*durable.PanicError)(nil) },
			retry: durable.Retry{MaxAttempts: 1}, state: "dead", want: []store.Outcome{"error"}},
		{what: "Goexit", handle: func(context.Context, *durable.Run) error { runtime.Goexit(); return nil },
			retry: durable.Retry{MaxAttempts: 1}, state: "dead", want: []store.Outcome{"error"}, says: "Goexit"},
		{what: "Permanent", handle: func(context.Context, *durable.Run) error {
			return fmt.Errorf("no use: %w", durable.Permanent(oops))
		}, state: "dead", want: []store.Outcome{"error"}, says: "no use: oops"},
		{what: "RetryAfter", handle: func(_ context.Context, run *durable.Run) error {
			if run.Attempt == 1 {
				return durable.RetryAfter(time.Hour, oops)
			}
			return nil
		}, state: "succeeded", want: []store.Outcome{"error", "ok"},
			between: [2]time.Duration{time.Hour, time.Hour + time.Second}},
		{what: "RetryAfter of no error", handle: func(context.Context, *durable.Run) error {
			return durable.RetryAfter(time.Hour, nil)
		}, state: "succeeded", want: []store.Outcome{"ok"}},
		{what: "RetryAfter on the last attempt", handle: func(context.Context, *durable.Run) error {
			return durable.RetryAfter(-1, oops)
		}, retry: durable.Retry{MaxAttempts: 2}, state: "dead", want: []store.Outcome{"error", "error"},
			between: [2]time.Duration{0, time.Second}},
		{what: "MaxRunTime", handle: func(ctx context.Context, _ *durable.Run) error { <-ctx.Done(); return nil },
			retry: durable.Retry{MaxAttempts: 1}, state: "dead", want: []store.Outcome{"timeout"}, says: "MaxRunTime"},
		{what: "an error whose methods panic", handle: func(context.Context, *durable.Run) error { return badError{} },
			retry: durable.Retry{MaxAttempts: 2}, state: "dead", want: []store.Outcome{"error", "error"}},
		{what: "an error that no database takes", handle: func(context.Context, *durable.Run) error {
			return errors.New("a\x00b\xff" + strings.Repeat("ü", 10_000))
		}, retry: durable.Retry{MaxAttempts: 1}, state: "dead", want: []store.Outcome{"error"},
			says: "a\uFFFDb\uFFFDü"},
	} {
		t.Run(c.what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				f.add(durable.Config{PollInterval: time.Hour}).handle("report", c.handle,
					durable.HandlerOptions{MaxRunTime: time.Minute, Retry: c.retry}).start()
				id := f.trigger("report", durable.TriggerOptions{})
				pass(2 * time.Hour)
				run, attempts := f.run(id)
				if run.State != c.state || !slices.Equal(outcomes(attempts), c.want) {
					t.Fatalf("%+v, %+v", run, attempts)
				}
				last := attempts[len(attempts)-1]
				if !strings.Contains(last.Error, c.says) || len(last.Error) > 5000 {
					t.Errorf("it says %.100q", last.Error)
				}
				for i := 1; i < len(attempts) && c.between[1] > 0; i++ {
					pause := attempts[i].StartedAt.Sub(attempts[i-1].FinishedAt)
					if pause < c.between[0] || pause > c.between[1] {
						t.Errorf("attempt %d came %v after the previous one", i+1, pause)
					}
				}
				f.end()
			})
		})
	}
}

type badError struct{}

func (badError) Error() string { panic("no text") }

func (badError) Unwrap() error { panic("nothing inside") }

// The waits between attempts double up to MaxWait, and each is shortened by up to half.
//
// Fails when runs that failed at the same time are retried at the same time.
func TestRetryWaitsGrowAndVary(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		f.add(durable.Config{MaxRuns: 100}).handle("report", func(context.Context, *durable.Run) error {
			return errors.New("no")
		}, durable.HandlerOptions{Retry: durable.Retry{MaxAttempts: 6, FirstWait: time.Minute,
			MaxWait: 5 * time.Minute}}).start()
		var ids []int64
		for range 20 {
			ids = append(ids, f.trigger("report", durable.TriggerOptions{}))
		}
		pass(time.Hour)
		for i, most := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute,
			5 * time.Minute} {
			different := map[time.Duration]bool{}
			for _, id := range ids {
				_, attempts := f.run(id)
				pause := attempts[i+1].StartedAt.Sub(attempts[i].FinishedAt)
				if pause < most/2 || pause > most+time.Second {
					t.Errorf("wait %d: %v", i+1, pause)
				}
				different[pause.Round(time.Millisecond)] = true
			}
			if len(different) < 10 {
				t.Errorf("wait %d: only %d different values", i+1, len(different))
			}
		}
		f.end()
	})
}

// Attempts that do not count (those before a Requeue, and those given back) do not lengthen the
// wait.
//
// Fails when the wait is computed from the number of the attempt.
func TestRetryWaitsBeginAgainAfterARequeue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		add := func() *host {
			return f.add(durable.Config{DrainTimeout: time.Second}).
				handle("report", func(ctx context.Context, _ *durable.Run) error {
					select {
					case <-time.After(time.Minute):
						return errors.New("no")
					case <-ctx.Done():
						return ctx.Err()
					}
				}, durable.HandlerOptions{Retry: durable.Retry{MaxAttempts: 5, FirstWait: 10 * time.Second,
					MaxWait: time.Hour}}).start()
		}
		h := add()
		id := f.trigger("report", durable.TriggerOptions{})
		pass(20 * time.Minute)
		if n, _, err := f.store.Requeue(t.Context(), store.Filter{}, store.Cause{By: "me"}, 10); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		pass(30 * time.Second)
		if err := h.stop(); err != nil { // attempt 6 is given back
			t.Error(err)
		}
		add()
		pass(20 * time.Minute)
		run, attempts := f.run(id)
		if run.State != store.StateDead || len(attempts) != 11 || attempts[5].Outcome != store.OutcomeInterrupted {
			t.Fatalf("%+v, %+v", run, attempts)
		}
		for i, most := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
			pause := attempts[i+7].StartedAt.Sub(attempts[i+6].FinishedAt)
			if pause < most/2 || pause > most+time.Second {
				t.Errorf("wait %d after the Requeue: %v", i+1, pause)
			}
		}
		f.end()
	})
}

// Results that cannot be written are kept and are written when the database is back. The handler is
// not called again, because the lease is still renewed.
//
// Fails when a result is dropped, or a lease whose handler has returned is not renewed.
func TestResultsAreKept(t *testing.T) {
	for _, what := range []fault{refused, lost, hang} {
		t.Run(what.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				ended := 0
				h := f.add(durable.Config{Hooks: durable.Hooks{RunEnded: func(durable.RunResult) { ended++ }}}).
					handle("report", sleeps(time.Second), durable.HandlerOptions{}).start()
				f.add(durable.Config{}).handle("report", sleeps(time.Second), durable.HandlerOptions{})
				h.link.set(what, "finish")
				id := f.trigger("report", durable.TriggerOptions{})
				pass(time.Second)
				f.hosts[1].start()
				pass(10 * time.Minute)
				if run, _ := f.run(id); what != lost && run.State != store.StateRunning {
					t.Errorf("%+v", run)
				}
				h.link.set(well)
				pass(10 * time.Second)
				run, attempts := f.run(id)
				if run.State != store.StateSucceeded || len(attempts) != 1 || f.watch.called(id) != 1 {
					t.Errorf("%+v, %+v", run, attempts)
				}
				if s := h.Status(); s.Places != 0 || s.Handlers[0].Discarded != 0 ||
					s.Handlers[0].Attempts[durable.OutcomeOK] != 1 {
					t.Errorf("%+v", s)
				}
				f.end()
				if ended != 1 {
					t.Errorf("RunEnded was called %d times", ended)
				}
			})
		})
	}
}

// Under load, one call writes many results, and one call claims many runs.
//
// Fails when each result is written by its own call.
func TestManyResultsAreWrittenTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.add(durable.Config{MaxRuns: 100}).handle("report", sleeps(0), durable.HandlerOptions{})
		for range 1000 {
			f.trigger("report", durable.TriggerOptions{})
		}
		h.link.on(func(string) (fault, time.Duration) { return answer, time.Millisecond })
		h.start()
		pass(time.Second)
		if left := f.runs(store.StateQueued, store.StateRunning); len(left) > 0 {
			t.Errorf("%d are left", len(left))
		}
		if claims, writes := h.link.count("claim"), h.link.count("finish"); claims > 40 || writes > 40 {
			t.Errorf("%d claims, %d writes", claims, writes)
		}
		h.link.set(well)
		f.end()
	})
}

// The key of a run is the same for all attempts, and no other run has it.
//
// Fails when the key depends on the attempt, or two ticks have the same key.
func TestKeyIsTheSameForAllAttempts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		keys := map[int64][]string{}
		f.add(durable.Config{MaxRuns: 1}).handle("report", func(_ context.Context, run *durable.Run) error {
			keys[run.ID] = append(keys[run.ID], run.Key)
			return errors.New("no")
		}, durable.HandlerOptions{Retry: durable.Retry{MaxAttempts: 3}}).
			schedule("often", "report", everyMinute, durable.ScheduleOptions{}).start()
		f.trigger("report", durable.TriggerOptions{})
		f.trigger("report", durable.TriggerOptions{})
		mine := f.trigger("report", durable.TriggerOptions{Key: "mine"})
		if again := f.trigger("report", durable.TriggerOptions{Key: "mine"}); again != mine {
			t.Errorf("run %d, then %d", mine, again)
		}
		pass(10 * time.Minute)
		f.end()
		seen := map[string]int64{}
		for id, list := range keys {
			if len(list) < 2 && len(seen) < 5 || len(slices.Compact(list)) != 1 || list[0] == "" {
				t.Errorf("run %d: %q", id, list)
			}
			if other := seen[list[0]]; other != 0 {
				t.Errorf("runs %d and %d: %q", id, other, list[0])
			}
			seen[list[0]] = id
		}
		if len(seen) < 10 || seen["mine"] != mine {
			t.Errorf("%v", seen)
		}
	})
}

// Another session keeps the row of a run locked after the handler of the run has returned. That
// takes up only one place: later results are written, and new runs start. When the row is free, the
// result is written.
//
// Fails when a call that could not write one result is repeated before newer results are written.
func TestLockedRowHoldsUpNoOtherResult(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.add(durable.Config{MaxRuns: 2}).handle("report", sleeps(time.Second), durable.HandlerOptions{}).start()
		first := f.trigger("report", durable.TriggerOptions{})
		h.link.lock(first)
		pass(6 * time.Second)
		for range 20 {
			f.trigger("report", durable.TriggerOptions{})
		}
		if err := f.store.Notify(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(25 * time.Second)
		if ended := f.runs(store.StateSucceeded); len(ended) != 20 {
			t.Errorf("%d of 20 runs have ended", len(ended))
		}
		if s := h.Status(); s.Places != 1 || !s.Database.Up || h.link.count("finish") > 60 {
			t.Errorf("%d finishes, %+v", h.link.count("finish"), s)
		}
		if n := strings.Count(h.log.String(), "another session has locked its row"); n != 1 {
			t.Errorf("it was logged %d times", n)
		}
		h.link.lock()
		pass(5 * time.Second)
		if run, attempts := f.run(first); run.State != store.StateSucceeded || len(attempts) != 1 {
			t.Errorf("%+v, %+v", run, attempts)
		}
		second := f.trigger("report", durable.TriggerOptions{})
		h.link.lock(second)
		pass(7 * time.Second)
		h.replaced = true
		err := h.stop()
		if err == nil || !strings.Contains(err.Error(), "another session has locked their rows") {
			t.Errorf("Run: %v", err)
		}
		f.end()
	})
}

// The database always refuses the result of one run, for example because a database trigger fails.
// The other results are written.
//
// Fails when other results wait for more than a few calls, or when the worker does not write the
// result once the database accepts it.
func TestResultThatTheDatabaseRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.add(durable.Config{MaxRuns: 20}).handle("report", sleeps(time.Second), durable.HandlerOptions{}).start()
		bad := f.trigger("report", durable.TriggerOptions{})
		h.link.refuse(bad)
		for range 60 {
			f.trigger("report", durable.TriggerOptions{})
		}
		if err := f.store.Notify(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(15 * time.Second)
		if ended := f.runs(store.StateSucceeded); len(ended) != 60 {
			t.Errorf("%d of 60 runs have ended", len(ended))
		}
		h.link.refuse()
		pass(5 * time.Second)
		if run, attempts := f.run(bad); run.State != store.StateSucceeded || len(attempts) != 1 {
			t.Errorf("%+v, %+v", run, attempts)
		}
		f.end()
	})
}
