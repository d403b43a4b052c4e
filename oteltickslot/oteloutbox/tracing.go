package oteloutbox

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/tickslot/tickslot/internal/mask"
	"github.com/tickslot/tickslot/outbox"
)

// scope names this library in every span.
const scope = "github.com/tickslot/tickslot/oteltickslot/oteloutbox"

// The attributes of spans: those of OpenTelemetry's conventions for messaging, and tickslot's own.
const (
	keySystem      = attribute.Key("messaging.system")
	keyOperation   = attribute.Key("messaging.operation.name")
	keyType        = attribute.Key("messaging.operation.type")
	keyDestination = attribute.Key("messaging.destination.name") // the topic
	keyMessage     = attribute.Key("messaging.message.id")
	keyBodySize    = attribute.Key("messaging.message.body.size")
	keyErrorType   = attribute.Key("error.type") // missing after a success

	keyKey     = attribute.Key("tickslot.key")
	keyAttempt = attribute.Key("tickslot.attempt")
	keyOutcome = attribute.Key("tickslot.outcome")
)

const (
	system = "tickslot_outbox"
	send   = "send"
)

// Values of error.type. OpenTelemetry's conventions require that there be few.
const (
	errorPermanent = "permanent"
	errorTimeout   = "timeout" // the context of the delivery has ended
	errorPanic     = "panic"
	errorOther     = "_OTHER"
)

// Options are the settings of Tracing. The zero value is valid.
type Options struct {
	// TracerProvider creates the spans. Default otel.GetTracerProvider().
	TracerProvider trace.TracerProvider
}

// Tracing creates spans for any number of sinks. Its methods may be called from any goroutine.
type Tracing struct{ tracer trace.Tracer }

// New returns a Tracing.
func New(o Options) *Tracing {
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	return &Tracing{o.TracerProvider.Tracer(scope)}
}

// Sink returns a sink that creates a span for each delivery to next. It returns nil if next is nil.
func (t *Tracing) Sink(next outbox.Sink) outbox.Sink {
	if next == nil {
		return nil // NewRelay rejects a nil sink
	}
	return outbox.SinkFunc(func(ctx context.Context, d outbox.Delivery) (err error) {
		parent := propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier(d.Headers))
		spanned, span := t.tracer.Start(parent, send+" "+d.Topic, trace.WithSpanKind(trace.SpanKindProducer),
			trace.WithAttributes(attributes(d)...))
		d.Message = In(spanned, d.Message)
		returned := false
		defer func() {
			if returned {
				end(span, err, errorType(ctx, err))
				return
			}
			p := recover()
			if p == nil {
				end(span, errors.New("the sink called runtime.Goexit"), errorPanic)
				return
			}
			end(span, fmt.Errorf("the sink panicked: %v", p), errorPanic)
			panic(p) // the relay handles it
		}()
		err = next.Deliver(spanned, d)
		returned = true
		return err
	})
}

func attributes(d outbox.Delivery) []attribute.KeyValue {
	list := []attribute.KeyValue{keySystem.String(system), keyOperation.String(send), keyType.String(send),
		keyDestination.String(d.Topic), keyMessage.String(d.ID.String()), keyBodySize.Int(len(d.Payload)),
		keyAttempt.Int(d.Attempt)}
	if d.Key != "" {
		list = append(list, keyKey.String(d.Key))
	}
	return list
}

func errorType(ctx context.Context, err error) string {
	switch {
	case errors.Is(err, outbox.ErrPermanent):
		return errorPermanent
	case ctx.Err() != nil:
		return errorTimeout
	}
	return errorOther
}

func end(span trace.Span, err error, typ string) {
	outcome := outbox.OutcomeOK
	if err != nil {
		outcome = outbox.OutcomeTransient
		if typ == errorPermanent {
			outcome = outbox.OutcomePermanent
		}
		span.SetAttributes(keyErrorType.String(typ))
		span.RecordError(mask.Error(err))
		span.SetStatus(codes.Error, mask.Text(err.Error()))
	}
	span.SetAttributes(keyOutcome.String(string(outcome)))
	span.End()
}

// In returns a message whose deliveries belong to the trace of ctx. Pass it to Append. Its headers
// are a copy that contains the trace. If ctx has no span, the message is unchanged.
func In(ctx context.Context, m outbox.Message) outbox.Message {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return m
	}
	headers := propagation.MapCarrier{}
	maps.Copy(headers, m.Headers)
	delete(headers, "tracestate") // it may belong to another trace
	propagation.TraceContext{}.Inject(ctx, headers)
	m.Headers = headers
	return m
}
