package durable_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/internal/memory"
	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/testkit"
)

// Every change made by a Control can be read back, including who made it and why.
func TestControlShows(t *testing.T) {
	t.Parallel()
	s, _ := onFile(t)
	c := s.Control()
	ctx := t.Context()
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	handlers := func() map[string]durable.HandlerRecord {
		t.Helper()
		list, err := s.Handlers(ctx)
		must("Handlers", err)
		all := map[string]durable.HandlerRecord{}
		for _, h := range list {
			all[h.Name] = h
		}
		return all
	}
	until := time.Now().Add(time.Hour)
	near := func(at time.Time) bool { return at.Sub(until).Abs() < time.Minute }

	must("Pause", c.Pause(ctx, "report", until, ann))
	must("SetMaxConcurrency", c.SetMaxConcurrency(ctx, "report", 3, ann))
	must("SetMaxActive", c.SetMaxActive(ctx, 0, ann))
	h, all := handlers()["report"], handlers()[""]
	if h.Pause == nil || h.Pause.Cause != ann || !near(h.Pause.Until) || h.Override == nil ||
		*h.Override != (durable.LimitRecord{Cause: ann, Limit: 3}) || !h.SeenAt.IsZero() {
		t.Errorf("%+v", h)
	}
	if all.Override == nil || *all.Override != (durable.LimitRecord{Cause: ann}) {
		t.Errorf("%+v", all)
	}
	must("Resume", c.Resume(ctx, "report", ann))
	must("ResetMaxConcurrency", c.ResetMaxConcurrency(ctx, "report", ann))
	must("ResetMaxActive", c.ResetMaxActive(ctx, ann))
	for name, h := range handlers() {
		if h.Pause != nil || h.Override != nil {
			t.Errorf("%q: %+v", name, h)
		}
	}

	must("PauseSchedule", c.PauseSchedule(ctx, "daily", until, ann))
	list, err := s.Schedules(ctx)
	if err != nil || len(list) != 1 || list[0].Pause == nil || list[0].Pause.Cause != ann ||
		!near(list[0].Pause.Until) {
		t.Errorf("%+v, %v", list, err)
	}
	must("ResumeSchedule", c.ResumeSchedule(ctx, "daily", ann))
	if list, err := s.Schedules(ctx); err != nil || len(list) != 1 || list[0].Pause != nil {
		t.Errorf("%+v, %v", list, err)
	}
	for _, want := range []bool{true, false} {
		if ok, err := c.Forget(ctx, "daily", ann); ok != want || err != nil {
			t.Errorf("Forget: %t, %v", ok, err)
		}
	}

	id, err := c.Trigger(ctx, "report", []byte("p"), durable.TriggerOptions{By: ann, Key: "k"})
	must("Trigger", err)
	was, err := c.Cancel(ctx, id, ann)
	run, readErr := s.Run(ctx, id)
	if was != durable.StateQueued || err != nil || readErr != nil || run.State != durable.StateCanceled ||
		run.CanceledBy != ann || run.TriggeredBy != ann || run.Key != "k" || run.FinishedAt.IsZero() {
		t.Errorf("%s, %v: %+v, %v", was, err, run, readErr)
	}
	if was, err := c.Cancel(ctx, id, ann); was != durable.StateCanceled || err != nil {
		t.Errorf("again: %s, %v", was, err)
	}
	for _, step := range []struct {
		which durable.RunFilter
		want  int
	}{
		{durable.RunFilter{}, 0}, // canceled runs are not requeued by default
		{durable.RunFilter{IDs: []int64{id}, States: []durable.State{durable.StateCanceled}}, 1},
	} {
		if n, err := c.Requeue(ctx, step.which, ann); n != step.want || err != nil {
			t.Errorf("Requeue %+v: %d, %v", step.which, n, err)
		}
	}
	if _, err := c.Cancel(ctx, 1<<40, ann); !errors.Is(err, durable.ErrNoRun) {
		t.Errorf("Cancel of a missing run: %v", err)
	}
	if _, err := s.Run(ctx, 1<<40); !errors.Is(err, durable.ErrNoRun) || !named(err) {
		t.Errorf("no run: %v", err)
	}
}

// Fails when Requeue leaves out the runs that do not fit into one batch, or requeues a run twice
// that has failed again in between.
func TestRequeueInBatches(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		const runs = 2500
		for range runs {
			f.trigger("report", durable.TriggerOptions{})
		}
		for _, r := range f.runs() {
			if _, err := f.store.Cancel(t.Context(), r.ID, store.Cause{By: "Ann"}); err != nil {
				t.Fatal(err)
			}
		}
		c := durable.NewStore(cancels{f.store}).Control()
		for _, want := range []int{runs, runs} {
			n, err := c.Requeue(t.Context(), durable.RunFilter{States: []durable.State{durable.StateCanceled}},
				driver.Cause{By: "Ann"})
			if n != want || err != nil {
				t.Errorf("%d, %v, want %d", n, err, want)
			}
		}
		f.end()
	})
}

// cancels is a store that cancels every run again as soon as it is requeued.
type cancels struct{ *memory.Store }

func (c cancels) Requeue(ctx context.Context, which store.Filter, by store.Cause, limit int) (int, int64, error) {
	n, beforeID, err := c.Store.Requeue(ctx, which, by, limit)
	queued, _ := c.Runs(ctx, store.Filter{States: []store.State{store.StateQueued}}, limit)
	for _, r := range queued {
		_, _ = c.Cancel(ctx, r.ID, by)
	}
	return n, beforeID, err
}

// A Control refuses changes with invalid values, and changes whose origin is missing.
func TestControlRefusesBadInput(t *testing.T) {
	t.Parallel()
	s, _ := onFile(t)
	c := s.Control()
	soon := time.Now().Add(time.Hour)
	type call = func(context.Context, string, driver.Cause) error
	for name, call := range map[string]call{
		"Pause": func(ctx context.Context, name string, by driver.Cause) error {
			return c.Pause(ctx, name, soon, by)
		},
		"Resume": c.Resume,
		"SetMaxConcurrency": func(ctx context.Context, name string, by driver.Cause) error {
			return c.SetMaxConcurrency(ctx, name, 1, by)
		},
		"ResetMaxConcurrency": c.ResetMaxConcurrency,
		"PauseSchedule": func(ctx context.Context, name string, by driver.Cause) error {
			return c.PauseSchedule(ctx, name, soon, by)
		},
		"ResumeSchedule": c.ResumeSchedule,
		"Forget": func(ctx context.Context, name string, by driver.Cause) error {
			_, err := c.Forget(ctx, name, by)
			return err
		},
		"Trigger": func(ctx context.Context, name string, by driver.Cause) error {
			_, err := c.Trigger(ctx, name, nil, durable.TriggerOptions{By: by})
			return err
		},
	} {
		for want, err := range map[string]error{
			"empty":     call(t.Context(), "", ann),
			"201 bytes": call(t.Context(), strings.Repeat("a", 201), ann),
			"UTF-8":     call(t.Context(), "\xff", ann),
			"control":   call(t.Context(), "a\x00", ann),
			"empty By":  call(t.Context(), "report", driver.Cause{}),
			"257 bytes": call(t.Context(), "report", driver.Cause{By: "Ann", Note: strings.Repeat("a", 257)}),
		} {
			if err == nil || !strings.Contains(err.Error(), want) || !named(err) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
	ctx := t.Context()
	_, noBy := c.Cancel(ctx, 1, driver.Cause{})
	_, noBy2 := c.Requeue(ctx, durable.RunFilter{}, driver.Cause{})
	_, state := c.Requeue(ctx, durable.RunFilter{States: []durable.State{durable.StateRunning}}, ann)
	_, noState := s.Runs(ctx, durable.RunFilter{States: []durable.State{"Dead"}}, 1)
	_, page := s.Runs(ctx, durable.RunFilter{BeforeID: -1}, 1)
	_, limit := s.Runs(ctx, durable.RunFilter{}, 0)
	_, noIDs := c.Requeue(ctx, durable.RunFilter{IDs: []int64{}}, ann) // an empty list does not select all runs
	_, noStates := s.Runs(ctx, durable.RunFilter{States: []durable.State{}}, 1)
	for i, step := range []struct {
		err  error
		want string
	}{
		{c.Pause(ctx, "report", time.Now(), ann), "choose a later time"},
		{c.Pause(ctx, "report", time.Now().AddDate(11, 0, 0), ann), "ten years"},
		{c.PauseSchedule(ctx, "daily", time.Time{}, ann), "choose a later time"},
		{c.SetMaxConcurrency(ctx, "report", -1, ann), "0 to 10000"},
		{c.SetMaxConcurrency(ctx, "report", 10_001, ann), "0 to 10000"},
		{c.SetMaxActive(ctx, -1, ann), "0 to 1000000"},
		{c.SetMaxActive(ctx, 1, driver.Cause{}), "empty By"}, {c.ResetMaxActive(ctx, driver.Cause{}), "empty By"},
		{noBy, "empty By"}, {noBy2, "empty By"}, {state, "cannot be queued again"},
		{noState, "is not a state"}, {page, "negative"}, {limit, "1 to 10000"},
		{noIDs, "IDs is empty"}, {noStates, "States is empty"},
	} {
		if step.err == nil || !strings.Contains(step.err.Error(), step.want) || !named(step.err) {
			t.Errorf("%d: %v, want %q", i, step.err, step.want)
		}
	}
	handlers, err := s.Handlers(ctx)
	schedules, err2 := s.Schedules(ctx)
	if len(handlers)+len(schedules)+len(allRuns(t, s)) != 0 || err != nil || err2 != nil {
		t.Errorf("%+v, %+v, %v, %v", handlers, schedules, err, err2)
	}
}

// Runs returns the runs that the filter selects, page by page.
func TestRunsArePaged(t *testing.T) {
	t.Parallel()
	s, _ := onFile(t)
	ctx := t.Context()
	var want, got []int64
	for i := range 5 {
		id, err := s.Trigger(ctx, nil, fmt.Sprint("handler-", i%2), nil, durable.TriggerOptions{RunIn: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		want = append([]int64{id}, want...)
	}
	for before := int64(0); ; {
		page, err := s.Runs(ctx, durable.RunFilter{BeforeID: before, EnqueuedBefore: time.Now().Add(time.Hour),
			States: []durable.State{durable.StateQueued, durable.StateRunning}}, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, run := range page {
			got, before = append(got, run.ID), run.ID
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if runs, err := s.Runs(ctx, durable.RunFilter{Handler: "handler-1"}, 9); len(runs) != 2 || err != nil {
		t.Errorf("%+v, %v", runs, err)
	}
	if runs, err := s.Runs(ctx, durable.RunFilter{Schedule: "daily"}, 9); len(runs) != 0 || err != nil {
		t.Errorf("%+v, %v", runs, err)
	}
}

// A change to a name that no worker has ever had takes effect and is logged as a warning. The test
// is not parallel, because it replaces the default logger.
func TestControlWarnsOfUnknownNames(t *testing.T) {
	s, _ := onFile(t)
	c := s.Control()
	worker, err := durable.NewWorker(s, durable.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	worker.Handle("report", func(context.Context, *durable.Run) error { return nil }, durable.HandlerOptions{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	testkit.Eventually(t, testkit.Patience, "the worker has registered", func(ctx context.Context) error {
		list, err := s.Handlers(ctx)
		if err == nil && len(list) == 0 {
			err = errors.New("no handler")
		}
		return err
	})
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}

	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	for name, want := range map[string]bool{"report": false, "reprot": true} {
		log.Reset()
		if err := c.SetMaxConcurrency(t.Context(), name, 1, ann); err != nil {
			t.Fatal(err)
		}
		if warned := strings.Contains(log.String(), "check its spelling"); warned != want {
			t.Errorf("%s: %q", name, log.String())
		}
	}
}
