// Package oteloutbox traces the messages of package outbox with OpenTelemetry. It is beside package
// oteltickslot, in its module, so that those who trace timers do not link outbox.
//
//	traces := oteloutbox.New(oteloutbox.Options{})
//	_, err := box.Append(ctx, pgxoutbox.Tx(tx), oteloutbox.In(ctx, message))
//	...
//	relay, err := outbox.NewRelay(box, outbox.RelayConfig{
//		Sinks: map[string]outbox.Sink{"invoice.create": traces.Sink(sink)},
//	})
//
// There is a span for each delivery, from the call of the sink to its return. The sink's context
// has it, and the headers that the sink gets, so that the spans of the receiver are below it. Its
// parent is the span of the context that was passed to In: the headers of the message have it, as
// traceparent and tracestate of W3C Trace Context, so it does not matter when and where it is
// delivered. Names and attributes follow OpenTelemetry's conventions for messaging: "send
// invoice.create", a producer's span with the topic as messaging.destination.name and the ID as
// messaging.message.id. It also says which key and attempt it was, and what the sink made of it.
//
// # What is not promised
//
// A trace may go on for days, as long as a message is tried again. Baggage stays behind: what a
// receiver needs of it belongs into the payload.
//
// The outcome is that of the sink. Whether it counts, the database decides afterwards, and after
// the last attempt a failure is what makes the message dead. A delivery whose relay was killed has
// no span.
package oteloutbox
