package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/internal/store"
)

// reclaimBound returns the promised bound for a reclaim: TTL + PollInterval with its jitter.
func reclaimBound(c durable.Config) time.Duration {
	poll := c.PollInterval
	if poll == 0 {
		poll = durable.DefaultPollInterval
	}
	lease := c.TTL
	if lease == 0 {
		lease = durable.DefaultTTL
	}
	return lease + time.Duration(float64(poll)*(1+durable.DefaultPollJitter))
}

// If a worker is killed in the middle of a run, nothing is lost: another worker, which does not
// have the handler, reclaims the run within TTL + PollInterval, and a third one runs it.
//
// Fails when a reclaim is limited to the worker's handlers, or waits for longer than a poll
// interval.
func TestRunOfAKilledWorkerIsRunAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		first := f.add(durable.Config{}).handle("report", sleeps(time.Hour), durable.HandlerOptions{}).start()
		id := f.trigger("report", durable.TriggerOptions{})
		pass(15 * time.Second)
		first.kill()
		killedAt := time.Now()
		f.add(durable.Config{}).handle("other", sleeps(0), durable.HandlerOptions{}).start()
		pass(reclaimBound(durable.Config{}))
		run, attempts := f.run(id)
		want := []store.Outcome{store.OutcomeLeaseLost}
		if run.State != store.StateQueued || !slices.Equal(outcomes(attempts), want) {
			t.Errorf("%v after the kill: %+v, %+v", time.Since(killedAt), run, attempts)
		}
		third := f.add(durable.Config{}).handle("report", sleeps(0), durable.HandlerOptions{}).start()
		pass(time.Second)
		run, attempts = f.run(id)
		if run.State != store.StateSucceeded || run.Attempt != 2 || attempts[1].Worker != third.name {
			t.Errorf("%+v, %+v", run, attempts)
		}
		f.end()
	})
}

// A run that kills its worker each time becomes a dead letter after MaxCrashes, no matter how long
// it may be tried. Hooks report that.
//
// Fails when a lost attempt does not count, or MaxCrashes is unlimited by default.
func TestRunThatKillsItsWorkersIsADeadLetter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var ended []durable.RunResult
		f.add(durable.Config{Hooks: durable.Hooks{RunEnded: func(i durable.RunResult) { ended = append(ended, i) }}}).
			handle("other", sleeps(0), durable.HandlerOptions{}).start()
		id := f.trigger("deadly", durable.TriggerOptions{})
		for range 7 {
			h := f.add(durable.Config{})
			h.handle("deadly", func(ctx context.Context, _ *durable.Run) error {
				h.kill()
				<-ctx.Done()
				return nil
			}, durable.HandlerOptions{}).start()
			pass(time.Minute)
		}
		run, attempts := f.run(id)
		if want := slices.Repeat([]store.Outcome{"lease_lost"}, 5); run.State != store.StateDead ||
			!slices.Equal(outcomes(attempts), want) {
			t.Errorf("%+v, %+v", run, attempts)
		}
		f.end()
		if len(ended) != 1 || ended[0].State != durable.StateDead || ended[0].Outcome != durable.OutcomeLeaseLost ||
			ended[0].ID != id || ended[0].Attempt != 5 || ended[0].MaxAttempts != 0 {
			t.Errorf("told: %+v", ended)
		}
	})
}

// A worker that cannot reach the database ends the context of its run before another worker can own
// it. A handler that ignores its context finds Run.Valid false, and its result changes nothing.
//
// Fails when trust in a lease begins with the answer, or when a result does not name its attempt.
func TestRunEndsBeforeAnotherHasIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var endedAt time.Time
		var why error
		var valid bool
		lost := 0
		cut := f.add(durable.Config{Hooks: durable.Hooks{LeaseLost: func(durable.RunInfo) { lost++ }}}).
			handle("report", func(ctx context.Context, run *durable.Run) error {
				<-ctx.Done()
				endedAt, why, valid = time.Now(), context.Cause(ctx), run.Valid()
				time.Sleep(5 * time.Minute)
				return nil
			}, durable.HandlerOptions{}).start()
		id := f.trigger("report", durable.TriggerOptions{})
		pass(time.Minute)
		other := f.add(durable.Config{}).handle("report", sleeps(time.Hour), durable.HandlerOptions{}).start()
		cut.link.set(hang)
		cutAt := time.Now()
		pass(time.Minute)
		run, _ := f.run(id)
		if run.Worker != other.name || !endedAt.Before(run.ClaimedAt) || endedAt.Sub(cutAt) < 18*time.Second {
			t.Errorf("ended after %v, claimed by %s after %v", endedAt.Sub(cutAt), run.Worker, run.ClaimedAt.Sub(cutAt))
		}
		if !errors.Is(why, durable.ErrLeaseLost) || valid {
			t.Errorf("why: %v, valid: %v", why, valid)
		}
		cut.link.set(well)
		pass(10 * time.Minute)
		if run, _ := f.run(id); run.State != store.StateRunning || run.Worker != other.name || run.Attempt != 2 {
			t.Errorf("after the zombie's result: %+v", run)
		}
		if s := cut.Status(); s.Handlers[0].Discarded != 1 || s.Handlers[0].LeasesLost != 1 || s.Places != 0 {
			t.Errorf("%+v", s)
		}
		other.stop()
		f.end()
		if lost != 1 {
			t.Errorf("LeaseLost was called %d times", lost)
		}
	})
}

// The database's clock may show any time, because no deadline is computed from the clocks of hosts.
//
// Fails when a time of day is exchanged with the database.
func TestClocksOfHostsAreAnHourOff(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				f.store.AdvanceClock(ahead)
				h := f.add(durable.Config{}).handle("report", sleeps(2*time.Minute), durable.HandlerOptions{}).start()
				f.add(durable.Config{}).handle("other", sleeps(0), durable.HandlerOptions{}).start()
				id := f.trigger("report", durable.TriggerOptions{RunIn: 10 * time.Second})
				pass(9 * time.Second)
				if f.watch.called(id) != 0 {
					t.Error("the run began too early")
				}
				pass(7 * time.Second)
				if f.watch.called(id) != 1 {
					t.Error("the run did not begin")
				}
				pass(3 * time.Minute)
				if run, attempts := f.run(id); run.State != store.StateSucceeded || len(attempts) != 1 {
					t.Errorf("%+v, %+v", run, attempts)
				}
				if err := h.stop(); err != nil {
					t.Error(err)
				}
				f.end()
			})
		})
	}
}

// A worker whose renewals fail claims nothing, even though claims would succeed. It claims again
// when renewals succeed again.
//
// Fails when a claim does not depend on successful renewals.
func TestWorkerThatCannotRenewClaimsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.add(durable.Config{}).handle("report", sleeps(time.Hour), durable.HandlerOptions{}).start()
		first := f.trigger("report", durable.TriggerOptions{})
		pass(6 * time.Second)
		h.link.set(hang, "renew")
		pass(18 * time.Second)
		second, err := h.Trigger(t.Context(), nil, "report", nil, durable.TriggerOptions{}) // wakes the worker
		if err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if err := h.Checks()["leases-renewed"](); err == nil || !strings.Contains(err.Error(),
			"nothing new is claimed") {
			t.Errorf("the check: %v", err)
		}
		if run, _ := f.run(first); f.watch.called(second) != 0 || time.Until(run.LeaseUntil) > 6*time.Second {
			t.Errorf("the run was claimed %v before the other lease ended", time.Until(run.LeaseUntil))
		}
		h.link.set(well)
		pass(time.Minute)
		if f.watch.called(second) == 0 || h.Checks()["leases-renewed"]() != nil {
			t.Error("the worker does not claim again")
		}
		h.stop()
		f.end()
	})
}

// If the answer to a claim arrives after half of the lease, the worker gives the runs back instead
// of starting them, which uses up no attempt. If the answer is lost, the runs are reclaimed.
//
// Fails when a late answer starts runs.
func TestLateAnswerToAClaimStartsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		c := durable.Config{TTL: 15 * time.Second, CallTimeout: 5 * time.Second}
		h := f.add(c).handle("report", sleeps(0), durable.HandlerOptions{Retry: durable.Retry{MaxAttempts: 1}})
		id := f.trigger("report", durable.TriggerOptions{})
		h.link.on(func(op string) (fault, time.Duration) {
			if op == "claim" && h.link.calls[op] == 1 {
				return stopped, 8 * time.Second
			}
			return well, 0
		})
		h.start()
		pass(7 * time.Second)
		if run, _ := f.run(id); run.State != store.StateRunning {
			t.Fatalf("%+v", run)
		}
		pass(3 * time.Second)
		run, attempts := f.run(id)
		want := []store.Outcome{store.OutcomeInterrupted, store.OutcomeOK}
		if run.State != store.StateSucceeded || !slices.Equal(outcomes(attempts), want) {
			t.Errorf("%+v, %+v", run, attempts)
		}
		f.end()
	})
}

// If a queued run is canceled, it does not begin. If a running run is canceled, it ends within a
// third of the lease.
//
// Fails when a renewal does not notice the cancellation, or the handler's result counts as a
// success.
func TestCancel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var why error
		f.add(durable.Config{}).handle("report", func(ctx context.Context, _ *durable.Run) error {
			<-ctx.Done()
			why = context.Cause(ctx)
			return nil
		}, durable.HandlerOptions{}).start()
		goesOn := f.trigger("report", durable.TriggerOptions{})
		waits := f.trigger("report", durable.TriggerOptions{RunIn: time.Hour})
		pass(10 * time.Second)
		for _, id := range []int64{goesOn, waits} {
			if _, err := f.store.Cancel(t.Context(), id, store.Cause{By: "me", Note: "a test"}); err != nil {
				t.Fatal(err)
			}
		}
		pass(durable.DefaultTTL/3 + time.Second)
		for _, id := range []int64{goesOn, waits} {
			if run, _ := f.run(id); run.State != store.StateCanceled {
				t.Errorf("%+v", run)
			}
		}
		canceled, ok := errors.AsType[*durable.CanceledError](why)
		if !ok || !errors.Is(why, durable.ErrCanceled) || canceled.By != (driver.Cause{By: "me", Note: "a test"}) {
			t.Errorf("why: %v", why)
		}
		pass(2 * time.Hour)
		if f.watch.called(waits) != 0 {
			t.Error("a canceled run has begun")
		}
		f.end()
	})
}

// A canceled run whose worker dies is not executed again. Hooks report its end and its allowed
// number of attempts.
//
// Fails when a reclaim queues the run, or when the lost attempt is shown as the last one allowed.
func TestCanceledRunOfAKilledWorkerEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.add(durable.Config{}).handle("report", sleeps(time.Hour),
			durable.HandlerOptions{Retry: durable.Retry{MaxAttempts: 7}}).start()
		var ended []durable.RunResult
		f.add(durable.Config{Hooks: durable.Hooks{RunEnded: func(i durable.RunResult) { ended = append(ended, i) }}}).
			handle("other", sleeps(0), durable.HandlerOptions{}).start()
		id := f.trigger("report", durable.TriggerOptions{})
		pass(10 * time.Second)
		h.kill()
		if _, err := f.store.Cancel(t.Context(), id, store.Cause{By: "me"}); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if run, _ := f.run(id); run.State != store.StateCanceled {
			t.Errorf("%+v", run)
		}
		f.end()
		if len(ended) != 1 || ended[0].State != durable.StateCanceled || ended[0].Attempt != 1 ||
			ended[0].MaxAttempts != 7 {
			t.Errorf("told: %+v", ended)
		}
	})
}

// Two workers with the same name do no harm, because a run belongs to an attempt.
//
// Fails when the name of the worker decides who owns a run.
func TestTwoWorkersOfOneName(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		for range 2 {
			f.add(durable.Config{Name: "twin", MaxRuns: 3}).
				handle("report", sleeps(45*time.Second), durable.HandlerOptions{MaxConcurrency: 5})
		}
		for i := range 20 {
			f.trigger("report", durable.TriggerOptions{Key: fmt.Sprint("k", i)})
		}
		f.hosts[0].start()
		f.hosts[1].start()
		pass(20 * time.Second)
		f.hosts[0].link.set(hang)
		pass(2 * time.Minute)
		f.hosts[0].link.set(well)
		pass(20 * time.Minute)
		if left := f.runs(store.StateQueued, store.StateRunning, store.StateDead); len(left) > 0 {
			t.Errorf("%+v", left)
		}
		f.end()
	})
}

// A handler that ignores the end of its context keeps its place on the worker but loses its lease.
// Another worker gets the run after MaxRunTime, CancelGrace, a renewal interval and a lease.
//
// Fails when the lease is renewed forever.
func TestHandlerThatIgnoresItsContextLosesItsLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		free := make(chan struct{})
		options := durable.HandlerOptions{MaxRunTime: time.Minute}
		h := f.add(durable.Config{MaxRuns: 1}).handle("report", func(context.Context, *durable.Run) error {
			<-free
			return nil
		}, options).start()
		id := f.trigger("report", durable.TriggerOptions{})
		pass(time.Second)
		f.add(durable.Config{}).handle("report", sleeps(time.Second), options).start()
		pass(time.Minute + durable.CancelGrace + durable.DefaultTTL/3 + reclaimBound(durable.Config{}) +
			time.Second)
		run, attempts := f.run(id)
		want := []store.Outcome{store.OutcomeLeaseLost, store.OutcomeOK}
		if run.State != store.StateSucceeded || !slices.Equal(outcomes(attempts), want) {
			t.Errorf("%+v, %+v", run, attempts)
		}
		if s := h.Status(); s.Places != 1 || s.Running[0].Valid {
			t.Errorf("%+v", s)
		}
		if n := strings.Count(h.log.String(), "ignores the end of its context"); n != 1 {
			t.Errorf("it was logged %d times", n)
		}
		close(free)
		pass(time.Second)
		if s := h.Status(); s.Places != 0 {
			t.Errorf("%+v", s)
		}
		f.end()
	})
}

// A lease is trusted from the time its request was sent, no matter how late the answer arrives,
// because the database may have counted from then on.
//
// Fails when the trust begins with the answer.
func TestTrustCountsFromTheRequest(t *testing.T) {
	for _, op := range []string{"claim", "renew"} {
		t.Run(op, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				var endedAt time.Time
				h := f.add(durable.Config{}).handle("report", func(ctx context.Context, _ *durable.Run) error {
					<-ctx.Done()
					endedAt = time.Now()
					return ctx.Err()
				}, durable.HandlerOptions{})
				id := f.trigger("report", durable.TriggerOptions{})
				answered := false
				h.link.on(func(o string) (fault, time.Duration) {
					switch {
					case answered && o != "finish":
						return hang, 0
					case o == op:
						answered = true
						return answer, 4500 * time.Millisecond
					}
					return well, 0
				})
				h.start()
				pass(25 * time.Second)
				run, _ := f.run(id)
				pass(20 * time.Second)
				if endedAt.IsZero() || !endedAt.Before(run.LeaseUntil) {
					t.Errorf("%s: the context ended at %v, and the lease at %v", op, endedAt, run.LeaseUntil)
				}
				h.link.set(well)
				f.end()
			})
		})
	}
}

// If the database's clock jumps, leases seem to have expired, and other workers get the runs. The
// old owners find out with their next renewal.
//
// Fails when a run continues although it is missing in the answer, or when the answer contains a
// run that the worker no longer owns.
func TestDatabaseClockJumps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var endedAt time.Time
		f.add(durable.Config{PollInterval: 24 * time.Hour}).
			handle("report", func(ctx context.Context, _ *durable.Run) error {
				<-ctx.Done()
				endedAt = time.Now()
				return ctx.Err()
			}, durable.HandlerOptions{}).start()
		id := f.trigger("report", durable.TriggerOptions{})
		if err := f.store.Notify(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		f.store.AdvanceClock(time.Hour)
		jumpedAt := time.Now()
		f.watch.killed(f.hosts[0]) // two owners for a moment cannot be avoided
		second := f.add(durable.Config{}).handle("report", sleeps(time.Minute), durable.HandlerOptions{}).start()
		pass(30 * time.Second)
		if run, _ := f.run(id); run.Worker != second.name {
			t.Errorf("%+v", run)
		}
		if endedAt.IsZero() || endedAt.Sub(jumpedAt) > durable.DefaultTTL/3 {
			t.Errorf("the context has not ended with the next renewal: %v", endedAt)
		}
		pass(time.Minute)
		if run, _ := f.run(id); run.State != store.StateSucceeded || run.Attempt != 2 {
			t.Errorf("%+v", run)
		}
		f.end()
	})
}

// If a worker's machine was asleep for longer than a lease, its runs are lost. They are not valid
// when the machine wakes, and their contexts end within a second.
//
// Fails when the trust is measured by a clock that stops during sleep.
func TestMachineThatWasAsleep(t *testing.T) {
	sleep := durable.FakeSleep(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		var run *durable.Run
		var endedAt time.Time
		f.add(durable.Config{}).handle("report", func(ctx context.Context, r *durable.Run) error {
			run = r
			<-ctx.Done()
			endedAt = time.Now()
			return ctx.Err()
		}, durable.HandlerOptions{}).start()
		f.trigger("report", durable.TriggerOptions{RunIn: time.Second})
		pass(30 * time.Second)
		if !run.Valid() {
			t.Error("the lease is not valid while the machine is awake")
		}
		sleep(40 * time.Second)
		wokeAt := time.Now()
		if run.Valid() {
			t.Error("the lease is valid after the sleep")
		}
		pass(time.Second)
		if endedAt.IsZero() || endedAt.Sub(wokeAt) > time.Second {
			t.Errorf("the context ended at %v, the machine woke at %v", endedAt, wokeAt)
		}
		pass(time.Minute)
		f.end()
	})
}
