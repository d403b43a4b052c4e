// Package oteldurable traces the runs of package durable with OpenTelemetry. It is a separate
// package in the module oteltickslot, so that programs that trace only timers do not link durable.
//
//	traces := oteldurable.New(oteldurable.Options{})
//	worker, err := durable.NewWorker(store, durable.Config{
//		Middleware: []durable.Middleware{traces.Middleware},
//	})
//	id, err := store.Trigger(ctx, pgxdurable.Tx(tx), "report", payload,
//		oteldurable.In(ctx, durable.TriggerOptions{}))
//
// Each attempt has a span, named after its handler, from the call of the handler to its return. The
// span is in the handler's context. Its attributes name the run, the attempt, the schedule and
// tick, the worker, who triggered the run, and the outcome. Its parent is the span in the context
// passed to In. The run's row stores that span as the traceparent of W3C Trace Context, so it does
// not matter when and where an attempt is made. The attempts of a tick begin traces, unless the
// context of Worker.Run has a span.
//
// # What is not promised
//
// A trace may last for days if a run is retried for that long. Trace state and baggage are not
// propagated: if a handler needs them, put them into its payload.
//
// The outcome in the span is the handler's. The database decides afterwards whether it counts: a
// run whose lease was lost may also have been carried out elsewhere. An attempt whose worker was
// killed has no span.
package oteldurable
