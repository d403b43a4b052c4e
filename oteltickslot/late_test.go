package oteltickslot_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/oteltickslot"
	"github.com/tickslot/tickslot/timer"
)

// Late hooks do not change a span: its events have the times at which they happened.
//
// Fails when an event has the time at which its hook was called.
func TestLateHooksChangeNoSpan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		provider, spans := collector()
		traces := oteltickslot.New(oteltickslot.Options{TracerProvider: provider})
		link := dlocktest.NewFaulty(memlock.New())
		slow := timer.Hooks{RunStarted: func(timer.RunInfo) { time.Sleep(4 * time.Minute) }}
		s, stop := run(t, timer.Config{Store: link, Middleware: []timer.Middleware{traces.Middleware},
			Hooks: traces.TimerHooks(slow)},
			timer.Timer{Name: "retries", Retry: timer.Retry{MaxAttempts: 2, FirstWait: time.Second,
				MaxWait: time.Second, If: func(error) bool { time.Sleep(time.Second); return true }},
				Run: func(context.Context) error { time.Sleep(time.Second / 4); return errors.New("no") }},
			timer.Timer{Name: "loses", OnStoreDown: timer.StoreDownSkip,
				Run: func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }})
		began := time.Now()
		for _, name := range []string{"retries", "loses"} {
			if _, err := s.Trigger(t.Context(), name, timer.TriggerOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		link.Inject(dlocktest.Error(errors.New("connection refused")))
		time.Sleep(time.Minute)
		link.Heal()
		time.Sleep(20 * time.Minute)
		stop()
		all := spans.GetSpans()
		failed := 0
		for _, span := range all {
			inSpan(t, span)
			if span.Status.Code == codes.Error {
				failed++
			}
		}
		retries, loses := named(all, "retries"), named(all, "loses")
		if failed < 3 || len(retries) != 1 || len(loses) != 1 || len(loses[0].Events) != 2 {
			t.Fatalf("%d spans of failures, %+v, %+v", failed, retries, loses)
		}
		if e := retries[0].Events; len(e) != 2 || e[0].Time.Sub(began) != time.Second/4 {
			t.Errorf("%+v, want the first 250 ms after %v", e, began)
		}
		if lost, ended := loses[0].Events[0].Time, loses[0].EndTime; !lost.Equal(ended) {
			t.Errorf("lost at %v, but the run has ended because of that at %v", lost, ended)
		}
	})
}

func inSpan(t *testing.T, span tracetest.SpanStub) {
	t.Helper()
	for _, e := range span.Events {
		if e.Time.Before(span.StartTime) || e.Time.After(span.EndTime) {
			t.Errorf("%s, from %v to %v: %q is at %v", span.Name, span.StartTime, span.EndTime, e.Name, e.Time)
		}
	}
}

// A sampler that blocks delays the run it was called for, and no other run or hook.
//
// Fails when a span is started while a mutex is held.
func TestSamplerThatBlocksHoldsUpOneRun(t *testing.T) {
	t.Parallel()
	sampler := blocks{name: "blocked", reached: make(chan struct{}), release: make(chan struct{})}
	spans := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans), sdk.WithSampler(sampler))
	traces := oteltickslot.New(oteltickslot.Options{TracerProvider: provider})
	handler := traces.Middleware(func(context.Context) error { return nil })
	call := func(name string) (ended chan error) {
		ended = make(chan error, 1)
		ctx := timer.ContextWithRun(t.Context(), timer.RunSpec{Timer: name})
		go func() { ended <- handler(ctx) }()
		return ended
	}
	blocked := call("blocked")
	<-sampler.reached
	told := make(chan error, 1)
	go func() {
		traces.TimerHooks(timer.Hooks{}).RunEnded(timer.RunResult{RunInfo: timer.RunInfo{Timer: "else"}})
		told <- nil
	}()
	for what, ended := range map[string]chan error{"run": call("other"), "hook": told} {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("another %s is held up", what)
		}
	}
	close(sampler.release)
	if err := <-blocked; err != nil {
		t.Error(err)
	}
}

// blocks is a sampler that blocks when it is called for a span named name.
type blocks struct {
	name             string
	reached, release chan struct{}
}

func (b blocks) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	if p.Name == b.name {
		close(b.reached)
		<-b.release
	}
	return sdk.AlwaysSample().ShouldSample(p)
}

func (blocks) Description() string { return "blocks" }
