// Package oteldurable traces the runs of package durable with OpenTelemetry. It is beside package
// oteltickslot, in its module, so that those who trace timers do not link durable.
//
//	traces := oteldurable.New(oteldurable.Options{})
//	worker, err := durable.NewWorker(store, durable.Config{
//		Middleware: []durable.Middleware{traces.Middleware},
//	})
//	id, err := store.Trigger(ctx, pgxdurable.Tx(tx), "report", payload,
//		oteldurable.In(ctx, durable.TriggerOptions{}))
//
// There is a span for each attempt, with the name of its handler, from the call of the handler to
// its return. The handler's context has it. It says which run and attempt it was, of which schedule
// and tick, on which worker, who triggered it, and how it ended. Its parent is the span of the
// context that was passed to In: the row of the run has it, as the text traceparent of W3C Trace
// Context, so it does not matter when and where an attempt is made. The attempts of a tick begin
// traces, unless the context of Worker.Run has a span.
//
// # What is not promised
//
// A trace may go on for days, as long as a run is tried again. Trace state and baggage stay behind:
// what a handler needs of them belongs into its payload.
//
// The outcome is what the handler made of its attempt. Whether that counts, the database decides
// afterwards: a run whose lease was lost may have been carried out elsewhere, too. An attempt whose
// worker was killed has no span.
package oteldurable
