package oteltickslot_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/oteltickslot"
	"github.com/tickslot/tickslot/timer"
)

// collector returns a provider that exports to memory.
func collector() (*sdk.TracerProvider, *tracetest.InMemoryExporter) {
	spans := tracetest.NewInMemoryExporter()
	return sdk.NewTracerProvider(sdk.WithSyncer(spans)), spans
}

func named(spans tracetest.SpanStubs, name string) (found []tracetest.SpanStub) {
	for _, s := range spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// ofLock returns the spans of calls for the given lock, without those for other locks, such as the
// host's own.
func ofLock(spans []tracetest.SpanStub, name string) (found []tracetest.SpanStub) {
	for _, s := range spans {
		if values(s.Attributes)["tickslot.lock"] == name {
			found = append(found, s)
		}
	}
	return found
}

// values returns the attributes as texts, by key.
func values(list []attribute.KeyValue) map[string]string {
	all := map[string]string{}
	for _, kv := range list {
		all[string(kv.Key)] = kv.Value.String()
	}
	return all
}

// run runs timers until stop is called.
func run(t *testing.T, config timer.Config, list ...timer.Timer) (s *timer.Scheduler, stop func()) {
	t.Helper()
	config.Logger = slog.New(slog.DiscardHandler)
	s, err := timer.New(config, list...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-s.Running()
	return s, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A triggered run with a retry is one span from its start to its end, a child of the request's
// span. It describes the run and has an event for the failed attempt. The handler's spans are its
// children. The call that acquired its slot is another child of the request's span.
//
// Fails when each attempt has a span, when the handler's context has another span, or when the span
// ends with the first attempt.
func TestTraceOfARunWithARetry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		provider, spans := collector()
		traces := oteltickslot.New(oteltickslot.Options{TracerProvider: provider})
		tracer := provider.Tracer("test")
		ended := 0
		s, stop := run(t, timer.Config{Store: memlock.New(), Middleware: []timer.Middleware{traces.Middleware},
			Hooks: traces.TimerHooks(timer.Hooks{RunEnded: func(timer.RunResult) { ended++ }})},
			timer.Timer{Name: "report", Retry: timer.Retry{MaxAttempts: 2, FirstWait: 10 * time.Second,
				MaxWait: 10 * time.Second}, Run: func(ctx context.Context) error {
				_, span := tracer.Start(ctx, "query")
				defer span.End()
				time.Sleep(time.Second)
				if r, _ := timer.RunFromContext(ctx); r.Attempt() == 1 {
					return errors.New("no printer, password=hunter2")
				}
				return nil
			}})
		ctx, request := tracer.Start(t.Context(), "GET /report")
		began := time.Now()
		triggered, err := s.Trigger(ctx, "report", timer.TriggerOptions{By: driver.Cause{By: "ann"}})
		if err != nil {
			t.Fatal(err)
		}
		request.End()
		if _, err := triggered.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		stop()
		all := spans.GetSpans()
		runs := named(all, "report")
		if len(runs) != 1 || ended != 1 {
			t.Fatalf("%d spans of one run, %d told", len(runs), ended)
		}
		r, parent := runs[0], request.SpanContext()
		if r.Parent.SpanID() != parent.SpanID() || r.SpanContext.TraceID() != parent.TraceID() {
			t.Errorf("its parent is %v, want the request", r.Parent)
		}
		if !r.StartTime.Equal(began) || r.EndTime.Sub(r.StartTime) != took || r.Status.Code != codes.Unset {
			t.Errorf("from %v for %v, want %v for %v; %v", r.StartTime, r.EndTime.Sub(r.StartTime), began, took,
				r.Status)
		}
		got := values(r.Attributes)
		for key, want := range map[string]string{"tickslot.timer": "report", "tickslot.slot": "0",
			"tickslot.outcome": "ok", "tickslot.attempt": "2", "tickslot.triggered_by": "ann",
			"tickslot.run_id": triggered.ID(), "tickslot.degraded": "false",
			"tickslot.holder": s.Status().Holder.String()} {
			if got[key] != want {
				t.Errorf("%s is %q, want %q", key, got[key], want)
			}
		}
		if _, there := got["tickslot.tick"]; there || got["tickslot.fence"] == "0" {
			t.Errorf("%v", got)
		}
		if len(r.Events) != 1 || r.Events[0].Name != "attempt failed" ||
			values(r.Events[0].Attributes)["error.message"] != "no printer, password=***" {
			t.Errorf("events %+v", r.Events)
		}
		for _, q := range named(all, "query") {
			if q.Parent.SpanID() != r.SpanContext.SpanID() {
				t.Errorf("the handler's span is below %v", q.Parent)
			}
		}
		acquire := ofLock(named(all, "tickslot acquire"), "timer:report")
		if len(acquire) != 1 || acquire[0].Parent.SpanID() != parent.SpanID() ||
			acquire[0].SpanKind != trace.SpanKindClient {
			t.Errorf("%+v", acquire)
		}
		if n := len(ofLock(named(all, "tickslot release"), "timer:report")); n != 1 {
			t.Errorf("%d releases", n)
		}
	})
}

// The run of a tick begins a trace, and its span contains the tick. The span of a run that fails or
// loses its slot says so. A refusal is not an error, but a failure of the store is.
//
// Fails when an outcome is missing, or when a refusal sets the status.
func TestTraceOfWhatGoesWrong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		provider, spans := collector()
		traces := oteltickslot.New(oteltickslot.Options{TracerProvider: provider})
		store := memlock.New()
		link := dlocktest.NewFaulty(store)
		config := timer.Config{Store: link, Middleware: []timer.Middleware{traces.Middleware},
			Hooks: traces.TimerHooks(timer.Hooks{})}
		tick := time.Now().Add(time.Minute)
		s, stop := run(t, config,
			timer.Timer{Name: "panics", Schedule: at{tick}, Run: func(context.Context) error { panic("oh") }},
			timer.Timer{Name: "loses", OnStoreDown: timer.StoreDownSkip,
				Run: func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }})
		time.Sleep(2 * time.Minute)
		session, err := dlock.NewSession(store, dlock.SessionOptions{Hooks: traces.LockHooks(dlock.Hooks{})})
		if err != nil {
			t.Fatal(err)
		}
		trigger := func() (*timer.Handle, error) {
			return s.Trigger(t.Context(), "loses", timer.TriggerOptions{})
		}
		lease, err := session.Semaphore("timer:loses", 1).TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := trigger(); !errors.Is(err, timer.ErrRefused) {
			t.Error(err)
		}
		if err := errors.Join(lease.Release(t.Context()), session.Close(t.Context())); err != nil {
			t.Error(err)
		}
		if _, err := trigger(); err != nil {
			t.Error(err)
		}
		link.Inject(dlocktest.Error(errors.New("connection refused")))
		time.Sleep(time.Minute)
		link.Heal()
		time.Sleep(time.Minute)
		stop()
		all := spans.GetSpans()
		panicked, lost := named(all, "panics"), named(all, "loses")
		if len(panicked) != 1 || len(lost) != 1 {
			t.Fatalf("%d and %d runs", len(panicked), len(lost))
		}
		p := panicked[0]
		if p.Parent.IsValid() || p.Status.Code != codes.Error ||
			values(p.Attributes)["tickslot.tick"] != tick.UTC().Format(time.RFC3339) ||
			values(p.Attributes)["tickslot.outcome"] != "panic" || len(p.Events) != 1 {
			t.Errorf("%+v", p)
		}
		l := lost[0]
		if l.Status.Code != codes.Error || values(l.Attributes)["tickslot.outcome"] != "lease_lost" ||
			len(l.Events) != 2 || l.Events[0].Name != "lease lost" {
			t.Errorf("%+v", l)
		}
		refused, failed := 0, 0
		for _, a := range append(named(all, "tickslot acquire"), named(all, "tickslot extend")...) {
			switch {
			case values(a.Attributes)["tickslot.refused"] != "":
				refused++
				if a.Status.Code != codes.Unset {
					t.Errorf("a refusal: %+v", a.Status)
				}
			case a.Status.Code == codes.Error:
				failed++
			}
		}
		if refused != 1 || failed == 0 {
			t.Errorf("%d refusals, %d failures", refused, failed)
		}
	})
}

type at struct{ tick time.Time }

func (a at) Next(after time.Time) time.Time {
	if after.Before(a.tick) {
		return a.tick
	}
	return time.Time{}
}

// Hooks that hang delay no run. Once too many runs wait for the hook that reports their end, each
// attempt has its own span.
//
// Fails when the number of open spans is not bounded.
func TestTracesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		provider, spans := collector()
		traces := oteltickslot.New(oteltickslot.Options{TracerProvider: provider, WithoutStoreCalls: true})
		handler := traces.Middleware(func(ctx context.Context) error { return nil })
		for i := range 10_100 {
			ctx := timer.ContextWithRun(t.Context(), timer.RunSpec{Timer: fmt.Sprint(i)})
			if err := handler(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(spans.GetSpans()); n != 100 {
			t.Errorf("%d spans have ended, want the 100 beyond 10,000", n)
		}
		if err := handler(t.Context()); err != nil { // no run in the context
			t.Error(err)
		}
		if hooks := traces.LockHooks(dlock.Hooks{}); hooks.Called != nil {
			t.Error("calls to the store have spans")
		}
	})
}
