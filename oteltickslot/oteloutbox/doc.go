// Package oteloutbox traces the messages of package outbox with OpenTelemetry. It is a separate
// package in the module oteltickslot, so that programs that trace only timers do not link outbox.
//
//	traces := oteloutbox.New(oteloutbox.Options{})
//	_, err := box.Append(ctx, pgxoutbox.Tx(tx), oteloutbox.In(ctx, message))
//	...
//	relay, err := outbox.NewRelay(box, outbox.RelayConfig{
//		Sinks: map[string]outbox.Sink{"invoice.create": traces.Sink(sink)},
//	})
//
// Each delivery has a span, from the call of the sink to its return. The span is in the sink's
// context and in the headers passed to the sink, so that the receiver's spans are its children. Its
// parent is the span in the context passed to In. The message's headers store that span as
// traceparent and tracestate of W3C Trace Context, so it does not matter when and where the message
// is delivered.
//
// Names and attributes follow OpenTelemetry's conventions for messaging: "send invoice.create", a
// producer span with the topic as messaging.destination.name and the ID as messaging.message.id.
// Further attributes are the key, the attempt, and the sink's outcome.
//
// # What is not promised
//
// A trace may last for days if a message is retried for that long. Baggage is not propagated: if a
// receiver needs it, put it into the payload.
//
// The outcome in the span is the sink's. The database decides afterwards whether it counts, and a
// failed last attempt makes the message dead. A delivery whose relay was killed has no span.
package oteloutbox
