package oteltickslot_test

import (
	"context"
	"fmt"
	"log/slog"

	"go.opentelemetry.io/otel/trace"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/oteltickslot"
	"github.com/tickslot/tickslot/timer"
)

// The handler's context contains the span of the run, which belongs to the trace of the request
// that triggered the run.
func Example() {
	provider, _ := collector() // in a service: a provider that exports to your collector
	traces := oteltickslot.New(oteltickslot.Options{TracerProvider: provider})
	timers, err := timer.New(timer.Config{
		Store:      memlock.New(),
		Middleware: []timer.Middleware{traces.Middleware},
		Hooks:      traces.TimerHooks(timer.Hooks{}),
		Logger:     slog.New(slog.DiscardHandler),
	}, timer.Timer{
		Name: "report",
		Run: func(ctx context.Context) error {
			run, _ := timer.RunFromContext(ctx)
			run.SetResult(trace.SpanFromContext(ctx).SpanContext().TraceID())
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- timers.Run(ctx) }()
	<-timers.Running()

	request, span := provider.Tracer("shop").Start(ctx, "GET /report")
	run, err := timers.Trigger(request, "report", timer.TriggerOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	id, err := run.Wait(ctx)
	fmt.Println("same trace:", id == span.SpanContext().TraceID(), err)
	span.End()
	stop()
	fmt.Println(<-ended)
	// Output:
	// same trace: true <nil>
	// <nil>
}
