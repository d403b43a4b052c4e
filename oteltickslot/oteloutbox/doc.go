// Package oteloutbox traces the messages of package outbox with OpenTelemetry. It is a package of
// its own in the module of oteltickslot, so that programs that trace only timers do not link
// outbox.
//
//	traces := oteloutbox.New(oteloutbox.Options{})
//	_, err := box.Append(ctx, pgxoutbox.Tx(tx), oteloutbox.In(ctx, message))
//	...
//	relay, err := outbox.NewRelay(box, outbox.RelayConfig{
//		Sinks: map[string]outbox.Sink{"invoice.create": traces.Sink(sink)},
//	})
//
// Each delivery has a span, from the call of the sink to its return. The span is in the sink's
// context, and in the headers that the sink gets, so that the receiver's spans are below it. Its
// parent is the span of the context that was passed to In. The message's headers keep that as
// traceparent and tracestate of W3C Trace Context, so it does not matter when and where the message
// is delivered. Names and attributes follow OpenTelemetry's conventions for messaging: "send
// invoice.create", a producer's span with the topic as messaging.destination.name and the ID as
// messaging.message.id. The span also says which key and attempt it was, and the sink's outcome.
//
// # What is not promised
//
// A trace may last for days, as long as a message is tried again. Baggage is not passed on: put
// what a receiver needs of it into the payload.
//
// The outcome in the span is the sink's. The database decides afterwards whether it counts; the
// failure of the last attempt makes the message dead. A delivery whose relay was killed has no
// span.
package oteloutbox
