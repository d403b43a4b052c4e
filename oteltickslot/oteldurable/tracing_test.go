package oteldurable_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/oteltickslot/oteldurable"
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

// values returns the attributes as texts, by key.
func values(list []attribute.KeyValue) map[string]string {
	all := map[string]string{}
	for _, kv := range list {
		all[string(kv.Key)] = kv.Value.String()
	}
	return all
}

// Each attempt of a run has its own span, a child of the span of the request that triggered the
// run. The span describes the attempt and its outcome, and is in the handler's context.
//
// Fails when a retry has no span, when the row does not carry the trace, or when the handler's
// spans are not children of the attempt's span.
func TestTraceOfARun(t *testing.T) {
	t.Parallel()
	provider, spans := collector()
	tracer := provider.Tracer("test")
	db, err := sql.Open("sqlite", "file::memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	store := durable.SQLite(db, durable.Options{})
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended := make(chan durable.RunResult, 1)
	worker, err := durable.NewWorker(store, durable.Config{Name: "me", Logger: slog.New(slog.DiscardHandler),
		Middleware: []durable.Middleware{oteldurable.New(oteldurable.Options{TracerProvider: provider}).Middleware},
		Hooks:      durable.Hooks{RunEnded: func(i durable.RunResult) { ended <- i }}})
	if err != nil {
		t.Fatal(err)
	}
	worker.Handle("report", func(ctx context.Context, run *durable.Run) error {
		_, span := tracer.Start(ctx, "query")
		defer span.End()
		if run.Attempt == 1 {
			return durable.RetryAfter(0, errors.New("no printer"))
		}
		return nil
	}, durable.HandlerOptions{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()

	request, span := tracer.Start(t.Context(), "POST /report")
	_, err = worker.Trigger(request, nil, "report", nil, oteldurable.In(request, durable.TriggerOptions{Key: "monday",
		By: driver.Cause{By: "ann"}}))
	span.End()
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the run does not end")
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}

	all := spans.GetSpans()
	attempts, queries := named(all, "report"), named(all, "query")
	if len(attempts) != 2 || len(queries) != 2 {
		t.Fatalf("%+v", all)
	}
	for i, has := range []map[string]string{{"tickslot.attempt": "1", "tickslot.outcome": "error"},
		{"tickslot.attempt": "2", "tickslot.outcome": "ok"}} {
		got := values(attempts[i].Attributes)
		has["tickslot.handler"], has["tickslot.run_id"], has["tickslot.key"] = "report", "1", "monday"
		has["tickslot.worker"], has["tickslot.triggered_by"] = "me", "ann"
		for key, value := range has {
			if got[key] != value {
				t.Errorf("attempt %d: %s is %q, want %q", i+1, key, got[key], value)
			}
		}
		if len(got) != len(has) {
			t.Errorf("attempt %d: %v", i+1, got)
		}
		if failed := attempts[i].Status.Code == codes.Error; failed != (i == 0) {
			t.Errorf("attempt %d: %v", i+1, attempts[i].Status)
		}
		p, want := attempts[i].Parent, span.SpanContext()
		if p.SpanID() != want.SpanID() || p.TraceID() != want.TraceID() {
			t.Errorf("attempt %d: its parent is %v, want the request", i+1, p)
		}
		if queries[i].Parent.SpanID() != attempts[i].SpanContext.SpanID() {
			t.Errorf("attempt %d: the handler's span is not below it", i+1)
		}
	}
	if o := oteldurable.In(t.Context(), durable.TriggerOptions{TraceParent: "mine"}); o.TraceParent != "mine" {
		t.Errorf("without a span: %+v", o)
	}
}

// The outcome in a span equals the worker's outcome of the attempt, and a panic reaches the worker.
//
// Fails when a span does not end, hides what the handler did, or shows a password.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	oops := errors.New("oops, password=hunter2")
	due := time.Date(2026, 11, 23, 7, 0, 0, 0, time.UTC)
	for want, attempt := range map[string]struct {
		cause  error // cause with which the context ended
		handle func() error
		status codes.Code
	}{
		"ok":              {nil, func() error { return nil }, codes.Unset},
		"error":           {nil, func() error { return oops }, codes.Error},
		"panic":           {nil, func() error { panic("help") }, codes.Error},
		"canceled":        {&durable.CanceledError{}, func() error { return nil }, codes.Error},
		"timeout":         {durable.ErrMaxRunTime, func() error { return nil }, codes.Error},
		"interrupted":     {durable.ErrDraining, func() error { return oops }, codes.Unset},
		"error, and dead": {durable.ErrDraining, func() error { return durable.Permanent(oops) }, codes.Error},
		"lease_lost":      {durable.ErrLeaseLost, func() error { return oops }, codes.Error},
	} {
		want, _, _ := strings.Cut(want, ",")
		provider, spans := collector()
		handle := oteldurable.New(oteldurable.Options{TracerProvider: provider}).Middleware(
			func(context.Context, *durable.Run) error { return attempt.handle() })
		ctx, cancel := context.WithCancelCause(t.Context())
		if attempt.cause != nil {
			cancel(attempt.cause)
		}
		func() {
			defer func() {
				if p := recover(); (p != nil) != (want == "panic") {
					t.Errorf("%s: the worker sees the panic %v", want, p)
				}
			}()
			_ = handle(ctx, &durable.Run{Handler: "report", Schedule: "daily", DueAt: due, TraceParent: "nonsense"})
		}()
		cancel(nil)
		all := spans.GetSpans()
		if len(all) != 1 {
			t.Fatalf("%s: %+v", want, all)
		}
		got := values(all[0].Attributes)
		if got["tickslot.outcome"] != want || got["tickslot.tick"] != "2026-11-23T07:00:00Z" ||
			all[0].Status.Code != attempt.status {
			t.Errorf("%s: %+v", want, all)
		}
		if text := fmt.Sprintf("%+v %+v", all[0].Status, all[0].Events); strings.Contains(text, "hunter2") {
			t.Errorf("%s: a password is in %s", want, text)
		}
	}
	provider, spans := collector()
	handle := oteldurable.New(oteldurable.Options{TracerProvider: provider}).Middleware(
		func(context.Context, *durable.Run) error { runtime.Goexit(); return nil })
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = handle(context.Background(), &durable.Run{Handler: "report"})
	}()
	<-done
	if all := spans.GetSpans(); len(all) != 1 || values(all[0].Attributes)["tickslot.outcome"] != "error" {
		t.Errorf("Goexit: %+v", all)
	}
}
