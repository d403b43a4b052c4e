// Package oteldurable traces the runs of package durable with OpenTelemetry. It is a package of its
// own in the module of oteltickslot, so that programs that trace only timers do not link durable.
//
//	traces := oteldurable.New(oteldurable.Options{})
//	worker, err := durable.NewWorker(store, durable.Config{
//		Middleware: []durable.Middleware{traces.Middleware},
//	})
//	id, err := store.Trigger(ctx, pgxdurable.Tx(tx), "report", payload,
//		oteldurable.In(ctx, durable.TriggerOptions{}))
//
// Each attempt has a span, named after its handler, from the call of the handler to its return. The
// span is in the handler's context. It says which run and attempt it was, of which schedule and
// tick, on which worker, who triggered it, and how it ended. Its parent is the span of the context
// that was passed to In. The run's row keeps that as the traceparent of W3C Trace Context, so it
// does not matter when and where an attempt is made. The attempts of a tick begin traces, unless
// the context of Worker.Run has a span.
//
// # What is not promised
//
// A trace may last for days, as long as a run is tried again. Trace state and baggage are not
// passed on: put what a handler needs of them into its payload.
//
// The outcome in the span is the handler's. The database decides afterwards whether it counts: a
// run whose lease was lost may have been carried out elsewhere, too. An attempt whose worker was
// killed has no span.
package oteldurable
