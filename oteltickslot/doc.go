// Package oteltickslot traces timers and locks with OpenTelemetry. It is a module of its own, so
// that users without it link nothing of it.
//
//	traces := oteltickslot.New(oteltickslot.Options{})
//	timers, err := timer.New(timer.Config{
//		Store:      store,
//		Middleware: []timer.Middleware{traces.Middleware},
//		Hooks:      traces.TimerHooks(timer.Hooks{}), // with your own, if you have any
//	}, list...)
//
// There is a span for each run, with the name of its timer, from its start to its end, waits
// between attempts included. The handler's context has it. Its parent is the span of the context
// that was passed to Scheduler.Trigger; the run of a tick begins a trace, unless the context of
// Scheduler.Run has a span. An attempt that failed and is repeated, and a lease that was lost, are
// events of the span.
//
// There is a span for each call that acquires, renews or releases slots. One that acquires for a
// Trigger belongs to its trace, too; one for a tick comes before there is a run, so it has no
// parent, as the renewals of many leases at once have none. Options.WithoutStoreCalls leaves these
// spans out.
//
// # What is not promised
//
// The end of a run comes from a hook. If hooks are so slow that events are dropped
// (timer.Status.DroppedEvents), the spans of their runs and calls are not exported, and after
// 10,000 such runs each attempt has a span of its own.
package oteltickslot
