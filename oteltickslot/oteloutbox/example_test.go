package oteloutbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"log/slog"

	"go.opentelemetry.io/otel/trace"

	"github.com/tickslot/tickslot/oteltickslot/oteloutbox"
	"github.com/tickslot/tickslot/outbox"
)

// The delivery of a message belongs to the trace of the request that appended it, no matter when
// and on which host it is delivered.
func Example() {
	db, err := sql.Open("sqlite", "file::memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection to an in-memory database has its own database
	box := outbox.SQLite(db, outbox.Options{})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if err := box.Migrate(ctx); err != nil {
		fmt.Println(err)
		return
	}
	provider, _ := collector() // in a service: a provider that exports to your collector
	traces := oteloutbox.New(oteloutbox.Options{TracerProvider: provider})

	request, span := provider.Tracer("shop").Start(ctx, "POST /orders")
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	message := outbox.Message{ID: outbox.NewID("order-42", 1, 0), Topic: "invoice.create", Key: "order-42"}
	if _, err := box.Append(ctx, outbox.SQLTx(tx), oteloutbox.In(request, message)); err != nil {
		fmt.Println(err)
		return
	}
	if err := tx.Commit(); err != nil {
		fmt.Println(err)
		return
	}
	span.End()

	seen := make(chan trace.TraceID, 1)
	sink := outbox.SinkFunc(func(ctx context.Context, _ outbox.Delivery) error {
		seen <- trace.SpanFromContext(ctx).SpanContext().TraceID()
		return nil
	})
	relay, err := outbox.NewRelay(box, outbox.RelayConfig{DefaultSink: traces.Sink(sink),
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	fmt.Println("same trace:", <-seen == span.SpanContext().TraceID())
	stop()
	fmt.Println(<-ended)
	// Output:
	// same trace: true
	// <nil>
}
