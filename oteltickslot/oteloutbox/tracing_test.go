package oteloutbox_test

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
	"go.opentelemetry.io/otel/trace"

	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/oteltickslot/oteloutbox"
	"github.com/tickslot/tickslot/outbox"
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

// Each delivery of a message has its own span, a child of the span of the request that appended the
// message. The span describes the delivery and its outcome. It is in the sink's context and in the
// headers for the receiver.
//
// Fails when a retry has no span, when the row does not carry the trace, or when the spans of sink
// and receiver are not its children.
func TestTraceOfAMessage(t *testing.T) {
	t.Parallel()
	provider, spans := collector()
	tracer := provider.Tracer("test")
	db, err := sql.Open("sqlite", "file::memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	box := outbox.SQLite(db, outbox.Options{})
	defer box.Close()
	if err := box.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	request, span := tracer.Start(t.Context(), "POST /orders")
	m := outbox.Message{ID: outbox.NewID("order-42", 7, 0), Topic: "invoice.create", Key: "order-42",
		Payload: []byte("hello"),
		Headers: map[string]string{"tenant": "a", "traceparent": "old", "tracestate": "old=1"}}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := box.Append(t.Context(), outbox.SQLTx(tx), oteloutbox.In(request, m)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	span.End()
	if m.Headers["traceparent"] != "old" {
		t.Error("In has changed the headers of the caller")
	}

	headers := make(chan map[string]string, 2)
	sink := oteloutbox.New(oteloutbox.Options{TracerProvider: provider}).Sink(outbox.SinkFunc(
		func(ctx context.Context, d outbox.Delivery) error {
			_, span := tracer.Start(ctx, "POST /invoices")
			defer span.End()
			headers <- d.Headers
			if d.Attempt == 1 {
				return outbox.RetryAfter(0, errors.New("no printer"))
			}
			return nil
		}))
	relay, err := outbox.NewRelay(box, outbox.RelayConfig{Sinks: map[string]outbox.Sink{"invoice.create": sink},
		Logger: slog.New(slog.DiscardHandler), PollInterval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()
	var got []map[string]string
	for range 2 {
		select {
		case h := <-headers:
			got = append(got, h)
		case <-time.After(time.Minute):
			t.Fatal("the message is not delivered twice")
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}

	all := spans.GetSpans()
	deliveries, calls := named(all, "send invoice.create"), named(all, "POST /invoices")
	if len(deliveries) != 2 || len(calls) != 2 {
		t.Fatalf("%+v", all)
	}
	for i, has := range []map[string]string{
		{"tickslot.attempt": "1", "tickslot.outcome": "transient", "error.type": "_OTHER"},
		{"tickslot.attempt": "2", "tickslot.outcome": "ok"}} {
		d := deliveries[i]
		for key, value := range map[string]string{"messaging.system": "tickslot_outbox",
			"messaging.operation.name": "send", "messaging.operation.type": "send",
			"messaging.destination.name": "invoice.create", "messaging.message.id": m.ID.String(),
			"messaging.message.body.size": "5", "tickslot.key": "order-42"} {
			has[key] = value
		}
		attributes := values(d.Attributes)
		for key, value := range has {
			if attributes[key] != value {
				t.Errorf("delivery %d: %s is %q, want %q", i+1, key, attributes[key], value)
			}
		}
		if len(attributes) != len(has) || d.SpanKind != trace.SpanKindProducer {
			t.Errorf("delivery %d: %v, %v", i+1, d.SpanKind, attributes)
		}
		if failed := d.Status.Code == codes.Error; failed != (i == 0) {
			t.Errorf("delivery %d: %v", i+1, d.Status)
		}
		if p, want := d.Parent, span.SpanContext(); p.SpanID() != want.SpanID() || p.TraceID() != want.TraceID() {
			t.Errorf("delivery %d: its parent is %v, want the request", i+1, p)
		}
		if calls[i].Parent.SpanID() != d.SpanContext.SpanID() {
			t.Errorf("delivery %d: the sink's span is not below it", i+1)
		}
		want := "00-" + d.SpanContext.TraceID().String() + "-" + d.SpanContext.SpanID().String() + "-01"
		if _, old := got[i]["tracestate"]; got[i]["traceparent"] != want || got[i]["tenant"] != "a" || old {
			t.Errorf("delivery %d: the receiver gets %v, want the traceparent %s", i+1, got[i], want)
		}
	}
	if same := oteloutbox.In(t.Context(), m); same.Headers["traceparent"] != "old" {
		t.Errorf("without a span: %+v", same)
	}
}

// The outcome in a span is the relay's classification of the sink's result. A panic reaches the
// relay.
//
// Fails when a span does not end, hides what the sink did, or trusts an invalid header.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	oops := errors.New("oops, password=hunter2")
	for name, c := range map[string]struct {
		ended         bool // whether the context of the delivery has ended
		deliver       func() error
		outcome, kind string
	}{
		"success":   {false, func() error { return nil }, "ok", ""},
		"late":      {true, func() error { return nil }, "ok", ""},
		"failure":   {false, func() error { return oops }, "transient", "_OTHER"},
		"permanent": {true, func() error { return outbox.Permanent(oops) }, "permanent", "permanent"},
		"timeout":   {true, func() error { return oops }, "transient", "timeout"},
		"panic":     {false, func() error { panic("help") }, "transient", "panic"},
		"Goexit":    {false, func() error { runtime.Goexit(); return nil }, "transient", "panic"},
	} {
		provider, spans := collector()
		sink := oteloutbox.New(oteloutbox.Options{TracerProvider: provider}).Sink(outbox.SinkFunc(
			func(context.Context, outbox.Delivery) error { return c.deliver() }))
		ctx, cancel := context.WithCancel(context.Background())
		if c.ended {
			cancel()
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				if p := recover(); (p != nil) != (name == "panic") {
					t.Errorf("%s: the relay sees the panic %v", name, p)
				}
			}()
			_ = sink.Deliver(ctx, outbox.Delivery{Message: outbox.Message{Topic: "t",
				Headers: map[string]string{"traceparent": "nonsense"}}})
		}()
		<-done
		cancel()
		all := spans.GetSpans()
		if len(all) != 1 {
			t.Fatalf("%s: %+v", name, all)
		}
		got := values(all[0].Attributes)
		_, typed := got["error.type"]
		if got["tickslot.outcome"] != c.outcome || got["error.type"] != c.kind || typed != (c.kind != "") ||
			(all[0].Status.Code == codes.Error) != (c.kind != "") || all[0].Parent.IsValid() {
			t.Errorf("%s: %+v", name, all)
		}
		if text := fmt.Sprintf("%+v %+v", all[0].Status, all[0].Events); strings.Contains(text, "hunter2") {
			t.Errorf("%s: a password is in %s", name, text)
		}
	}
	if oteloutbox.New(oteloutbox.Options{}).Sink(nil) != nil {
		t.Error("a sink that is nil is hidden from RelayConfig")
	}
}
