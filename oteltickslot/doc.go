// Package oteltickslot traces timers and locks with OpenTelemetry. It is a separate module, so that
// programs without it do not link OpenTelemetry.
//
//	traces := oteltickslot.New(oteltickslot.Options{})
//	timers, err := timer.New(timer.Config{
//		Store:      store,
//		Middleware: []timer.Middleware{traces.Middleware},
//		Hooks:      traces.TimerHooks(timer.Hooks{}), // with your own, if you have any
//	}, list...)
//
// Each run has a span, named after its timer, from its start to its end, including waits between
// attempts. The span is in the handler's context. Its parent is the span in the context passed to
// Scheduler.Trigger. The run of a tick begins a trace, unless the context of Scheduler.Run has a
// span. A failed attempt that is retried and a lost lease are events of the span.
//
// Each call that acquires, renews or releases slots has a span. A call that acquires a slot for a
// Trigger belongs to the Trigger's trace. A call that acquires one for a tick has no parent,
// because the run does not exist yet. A call that renews many leases has no parent either.
// Options.WithoutStoreCalls omits these spans.
//
// # What is not promised
//
// A hook ends the span of a run. If hooks are so slow that events are dropped
// (timer.Status.DroppedEvents), the spans of those runs and calls are not exported. After 10,000
// such runs each attempt has its own span.
package oteltickslot
