package oteldurable_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"log/slog"

	"go.opentelemetry.io/otel/trace"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/oteltickslot/oteldurable"
)

// The handler's context contains the span of the attempt. It belongs to the trace of the request
// that triggered the run, no matter when and on which worker the attempt is made.
func Example() {
	db, err := sql.Open("sqlite", "file::memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection to an in-memory database has its own database
	store := durable.SQLite(db, durable.Options{})
	provider, _ := collector() // in a service: a provider that exports to your collector
	traces := oteldurable.New(oteldurable.Options{TracerProvider: provider})
	worker, err := durable.NewWorker(store, durable.Config{
		Middleware: []durable.Middleware{traces.Middleware},
		Logger:     slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	seen := make(chan trace.TraceID, 1)
	worker.Handle("report", func(ctx context.Context, _ *durable.Run) error {
		seen <- trace.SpanFromContext(ctx).SpanContext().TraceID()
		return nil
	}, durable.HandlerOptions{})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if err := store.Migrate(ctx); err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()

	request, span := provider.Tracer("shop").Start(ctx, "POST /report")
	options := oteldurable.In(request, durable.TriggerOptions{})
	if _, err := worker.Trigger(request, nil, "report", nil, options); err != nil {
		fmt.Println(err)
		return
	}
	span.End()
	fmt.Println("same trace:", <-seen == span.SpanContext().TraceID())
	stop()
	fmt.Println(<-ended)
	// Output:
	// same trace: true
	// <nil>
}
