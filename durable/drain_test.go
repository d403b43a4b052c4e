package durable_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/testkit"
)

// A worker that shuts down waits for its runs, then ends their contexts, and gives back the
// unfinished runs. Another worker continues with them immediately, and no attempt is used up, no
// matter how often that happens.
//
// Fails when a run is not given back, or giving it back costs an attempt.
func TestDrainGivesBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		options := durable.HandlerOptions{Retry: durable.Retry{MaxAttempts: 2}}
		c := durable.Config{DrainTimeout: 10 * time.Second, PreStopDelay: 3 * time.Second}
		causes := make(chan error, 2) // of the long run and of a run that was claimed late
		h := f.add(c).handle("report", func(ctx context.Context, run *durable.Run) error {
			if run.Key == "short" {
				return sleeps(12*time.Second)(ctx, run)
			}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		}, options).start()
		short := f.trigger("report", durable.TriggerOptions{Key: "short"})
		long := f.trigger("report", durable.TriggerOptions{Key: "long"})
		pass(time.Second)
		if h.Ready() != nil {
			t.Error(h.Ready())
		}
		began := time.Now()
		h.cancel()
		pass(time.Second)
		late := f.trigger("report", durable.TriggerOptions{})
		if err := h.Ready(); err == nil || !strings.Contains(err.Error(), "draining") {
			t.Errorf("Ready: %v", err)
		}
		if err := h.stop(); err != nil || time.Since(began) != 13*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if err := <-causes; !errors.Is(err, durable.ErrDraining) {
			t.Errorf("cause: %v", err)
		}
		if run, _ := f.run(short); run.State != store.StateSucceeded {
			t.Errorf("short: %+v", run)
		}
		for _, id := range []int64{long, late} {
			if run, _ := f.run(id); run.State != store.StateQueued || run.RunAt.After(f.store.Now()) {
				t.Errorf("not given back: %+v", run)
			}
		}
		for range 4 {
			next := f.add(c).handle("report", sleeps(time.Hour), options).start()
			pass(time.Second)
			if err := next.stop(); err != nil {
				t.Error(err)
			}
		}
		run, attempts := f.run(long)
		if run.State != store.StateQueued || run.Attempt != 5 || run.MaxAttempts != 7 ||
			len(slices.Compact(outcomes(attempts))) != 1 || attempts[0].Outcome != store.OutcomeInterrupted {
			t.Errorf("%+v, %+v", run, attempts)
		}
		f.end()
	})
}

// If a handler ignores its context at the end, Run names it and leaves its lease to expire, and
// another worker executes the run again.
//
// Fails when Run waits forever, or writes a result for the handler.
func TestStuckHandlerIsNamed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		free := make(chan struct{})
		var log testkit.Log
		h := f.add(durable.Config{DrainTimeout: 10 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))}).
			handle("stuck", func(context.Context, *durable.Run) error { <-free; return nil },
				durable.HandlerOptions{}).start()
		one, two := f.trigger("stuck", durable.TriggerOptions{}), f.trigger("stuck", durable.TriggerOptions{})
		pass(time.Second)
		began := time.Now()
		err := h.stop()
		stuck, ok := errors.AsType[*durable.StuckError](err)
		if !ok || !slices.Equal(stuck.Handlers, []string{"stuck", "stuck"}) ||
			time.Since(began) != 10*time.Second+durable.CancelGrace {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if text := log.String(); !strings.Contains(text, `level=INFO msg="durable: worker stopped"`) ||
			!strings.Contains(text, `still_running="stuck, stuck"`) {
			t.Errorf("the log does not say what was still running:\n%s", text)
		}
		f.watch.killed(h) // the host counts as dead from here on
		close(free)
		f.add(durable.Config{}).handle("stuck", sleeps(0), durable.HandlerOptions{}).start()
		pass(reclaimBound(durable.Config{}) + time.Second)
		for _, id := range []int64{one, two} {
			run, attempts := f.run(id)
			want := []store.Outcome{store.OutcomeLeaseLost, store.OutcomeOK}
			if run.State != store.StateSucceeded || !slices.Equal(outcomes(attempts), want) {
				t.Errorf("%+v, %+v", run, attempts)
			}
		}
		f.end()
	})
}

// A worker gives back the runs of a claim that was in progress when draining began.
//
// Fails when draining cuts the claim off, or starts the claimed runs.
func TestClaimUnderWayIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.add(durable.Config{}).handle("report", sleeps(0), durable.HandlerOptions{})
		id := f.trigger("report", durable.TriggerOptions{MaxAttempts: 1})
		h.link.set(answer, "claim") // a second later
		h.start()
		pass(500 * time.Millisecond)
		if err := h.stop(); err != nil {
			t.Error(err)
		}
		run, attempts := f.run(id)
		if run.State != store.StateQueued || !slices.Equal(outcomes(attempts),
			[]store.Outcome{store.OutcomeInterrupted}) ||
			f.watch.called(id) != 0 {
			t.Errorf("%+v, %+v", run, attempts)
		}
		f.end()
	})
}

// If the database is down when Run ends, Run still returns and says how many results it could not
// write.
//
// Fails when Run waits for the database.
func TestDrainWithoutTheDatabase(t *testing.T) {
	for _, what := range []fault{refused, hang} {
		t.Run(what.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				h := f.add(durable.Config{DrainTimeout: 10 * time.Second}).
					handle("report", sleeps(5*time.Second), durable.HandlerOptions{}).start()
				id := f.trigger("report", durable.TriggerOptions{})
				pass(time.Second)
				h.link.set(what)
				pass(time.Second)
				began := time.Now()
				err := h.stop()
				if err == nil || !strings.Contains(err.Error(), "the result of 1 run could not be written") ||
					time.Since(began) > 16*time.Second {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
				h.link.set(well)
				f.watch.killed(h)
				f.add(durable.Config{}).handle("report", sleeps(0), durable.HandlerOptions{}).start()
				pass(reclaimBound(durable.Config{}) + time.Second)
				if run, _ := f.run(id); run.State != store.StateSucceeded || run.Attempt != 2 {
					t.Errorf("%+v", run)
				}
				f.end()
			})
		})
	}
}

// If the database is not set up correctly, Run ends immediately. If it does not answer, Run keeps
// asking until it does, and can be stopped in the meantime.
//
// Fails when Run waits for a missing table, or an outage ends the program.
func TestStartWithoutTheDatabase(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.add(durable.Config{}).handle("report", sleeps(0), durable.HandlerOptions{})
		h.link.set(unset)
		if err := h.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "nothing was started") {
			t.Errorf("not set up: %v", err)
		}
		for _, what := range []fault{refused, hang} {
			h := f.add(durable.Config{}).handle("report", sleeps(0), durable.HandlerOptions{})
			h.link.set(what)
			if h.Started() == nil {
				t.Error("started before Run")
			}
			h.start()
			pass(time.Minute)
			if h.Started() != nil || h.Ready() != nil || h.Checks()["database-answers"]() == nil {
				t.Errorf("%s: %v, %v, %v", what, h.Started(), h.Ready(), h.Checks()["database-answers"]())
			}
			if what == hang {
				break // stop Run
			}
			h.link.set(well)
			id := f.trigger("report", durable.TriggerOptions{})
			pass(15 * time.Second)
			if run, _ := f.run(id); run.State != store.StateSucceeded || h.Checks()["database-answers"]() != nil {
				t.Errorf("%+v, %v", run, h.Checks()["database-answers"]())
			}
		}
		f.end()
	})
}

// All faults of a registration are returned together, before anything starts.
//
// Fails when one fault hides another.
func TestAllFaultsAtOnce(t *testing.T) {
	nothing := func(context.Context, *durable.Run) error { return nil }
	f := newFleet(t)
	config := durable.Config{TTL: time.Second, CallTimeout: time.Second, PollJitter: 2, MaxRuns: -1,
		MaxActive:  1_000_001,
		Retention:  durable.Retention{Unseen: time.Minute},
		Middleware: []durable.Middleware{nil, func(durable.Handler) durable.Handler { return nil }}}
	_, err := durable.NewWorker(nil, config)
	says := func(wants ...string) {
		t.Helper()
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not contain %q:\n%v", want, err)
			}
		}
	}
	says("there is no store", "three times CallTimeout", "PollJitter: 2", "MaxRuns: -1", "Middleware[0]: it is nil",
		"MaxActive: 1000001", "Retention.Unseen: 1m0s")
	w, err := durable.NewWorker(durable.NewStore(f.store), durable.Config{Middleware: config.Middleware[1:]})
	if err != nil {
		t.Fatal(err)
	}
	w.Handle("", nothing, durable.HandlerOptions{})
	w.Handle("a", nil, durable.HandlerOptions{MaxConcurrency: -1})
	w.Handle("a\x00", nothing, durable.HandlerOptions{MaxRunTime: -5, Retry: durable.Retry{MaxAttempts: -1}})
	w.Handle(strings.Repeat("x", 300), nothing, durable.HandlerOptions{Retry: durable.Retry{FirstWait: time.Hour,
		MaxWait: time.Minute}})
	w.Handle("unlimited", nothing, durable.HandlerOptions{MaxConcurrency: math.MaxInt})
	w.Schedule("s", "unknown", everyMinute, durable.ScheduleOptions{CatchUp: durable.CatchUp{Max: 5}})
	w.Schedule("s", "a", everyMinute, durable.ScheduleOptions{Payload: make([]byte, durable.MaxPayloadLen+1)})
	w.Schedule("t", "a", nil, durable.ScheduleOptions{Priority: 7})
	w.Schedule("u", "a", after, durable.ScheduleOptions{CatchUp: durable.CatchUp{Policy: 9, Max: -1, Window: -7}})
	w.Schedule("v", "a", nexts{"with \x00", everyMinute.Next}, durable.ScheduleOptions{})
	w.Schedule("w", "a", nexts{"with \xff", everyMinute.Next}, durable.ScheduleOptions{})
	err = w.Check()
	says("Config.Middleware[0]: it returned nil", `handler "": name: it is empty`,
		`handler "a": function: it is nil`, `handler "a": MaxConcurrency: -1`, `control character`,
		"MaxRunTime: -5ns", "Retry.MaxAttempts: -1", "is 300 bytes long", "is less than FirstWait",
		`this worker has no handler "unknown"`, "does nothing without CatchUpBackfill", "another schedule of that name",
		"the payload is too long", `schedule "t": Schedule: it is nil`, "Priority: 7", "schedule.After has no ticks",
		`handler "unlimited": MaxConcurrency: 9223372036854775807: use 1 to 10000, or 0 for any`,
		`String "with \x00" is not valid UTF-8, or has a NUL`, `String "with \xff"`)
	if run := w.Run(t.Context()); run == nil || run.Error() != err.Error() {
		t.Errorf("Run: %v", run)
	}
}

// Triggers with faults queue nothing.
//
// Fails when a payload of ten megabytes is sent to the database.
func TestTriggerFaults(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		s := durable.NewStore(f.store)
		for want, options := range map[string]durable.TriggerOptions{
			"RunIn":          {RunIn: -1},
			"RunAt":          {RunIn: 1, RunAt: time.Now()},
			"year":           {RunAt: time.Unix(-1e11, 0)},
			"MaxAttempts":    {MaxAttempts: -1},
			"Key":            {Key: strings.Repeat("x", 201)},
			`"run:7" looks`:  {Key: "run:7"},
			`"tick:7" looks`: {Key: "tick:7"},
			"Priority":       {Priority: 2},
			"TraceParent":    {TraceParent: "\xff"},
		} {
			_, err := s.Trigger(t.Context(), nil, "report", nil, options)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", want, err)
			}
		}
		_, err := s.Trigger(t.Context(), nil, "report", make([]byte, 10<<20), durable.TriggerOptions{})
		if !errors.Is(err, durable.ErrPayloadTooLong) {
			t.Error(err)
		}
		if _, err := s.Trigger(t.Context(), nil, "", nil, durable.TriggerOptions{}); err == nil {
			t.Error("no handler")
		}
		if n := len(f.runs()); n != 0 {
			t.Errorf("%d runs", n)
		}
		for i := range 3 {
			f.trigger("report", durable.TriggerOptions{Key: fmt.Sprint(i), Priority: durable.PriorityLow})
		}
		if n := len(f.runs()); n != 3 {
			t.Errorf("%d runs", n)
		}
	})
}

// A Run that finds faults leaves no metrics registered, so a Worker without the faults can use the
// same Registerer.
//
// Fails when metrics are unregistered only if Run has begun its work.
func TestRunThatFindsFaultsFreesItsRegistry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		registry := prometheus.NewPedanticRegistry()
		faulty := f.add(durable.Config{Registerer: registry})
		if err := faulty.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "there is no handler") {
			t.Errorf("Run: %v", err)
		}
		if err := faulty.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "Run was called before") {
			t.Errorf("Run again: %v", err)
		}
		h := f.add(durable.Config{Registerer: registry}).handle("report", sleeps(0), durable.HandlerOptions{}).start()
		pass(time.Second)
		if err := h.Run(t.Context()); err == nil {
			t.Error("Run of a worker that is running")
		}
		if families, err := registry.Gather(); err != nil || len(families) == 0 {
			t.Errorf("%d families, %v", len(families), err)
		}
		f.end()
	})
}
