// Package oteldurable traces the runs of package durable with OpenTelemetry. It is beside package
// oteltickslot, in its module, so that those who trace timers do not link the drivers of durable.
//
//	traces := oteldurable.New(oteldurable.Options{})
//	worker := durable.NewWorker(store, durable.Config{
//		Middleware: []durable.Middleware{traces.Middleware},
//	})
//
// There is a span for each attempt, with the name of its handler, from the call of the handler to
// its return. The handler's context has it. It says which run and attempt it was, of which schedule
// and tick, on which worker, who triggered it, and how it ended.
//
// # What is not promised
//
// The span of an attempt begins a trace, unless the context of Worker.Run has a span: a row has no
// place for the trace context of whoever triggered the run, hours ago and elsewhere. The run's ID
// is in the span, and Triggered notes it in the span of the request, so each finds the other. A
// handler that should go on with the trace gets the trace context in its payload.
//
// The outcome is what the handler made of its attempt. Whether that counts, the database decides
// afterwards: a run whose lease was lost may have been carried out elsewhere, too. An attempt whose
// worker was killed has no span.
package oteldurable
