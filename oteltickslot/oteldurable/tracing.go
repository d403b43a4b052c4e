package oteldurable

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/internal/mask"
)

// scope names this library in every span.
const scope = "github.com/tickslot/tickslot/oteltickslot/oteldurable"

// The attributes of spans.
const (
	keyHandler  = attribute.Key("tickslot.handler")
	keyRun      = attribute.Key("tickslot.run_id")
	keyAttempt  = attribute.Key("tickslot.attempt")
	keyKey      = attribute.Key("tickslot.key")
	keySchedule = attribute.Key("tickslot.schedule") // missing if the run was triggered
	keyTick     = attribute.Key("tickslot.tick")     // missing if the run was triggered; RFC 3339, in UTC
	keyBy       = attribute.Key("tickslot.triggered_by")
	keyWorker   = attribute.Key("tickslot.worker")
	keyOutcome  = attribute.Key("tickslot.outcome")
)

// Options are the settings of Tracing. The zero value is valid.
type Options struct {
	// TracerProvider creates the spans. Default otel.GetTracerProvider().
	TracerProvider trace.TracerProvider
}

// Tracing creates spans for any number of Workers. Its methods may be called from any goroutine.
type Tracing struct{ tracer trace.Tracer }

// New returns a Tracing.
func New(o Options) *Tracing {
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	return &Tracing{o.TracerProvider.Tracer(scope)}
}

// Middleware creates a span for each attempt and puts it into the handler's context.
func (t *Tracing) Middleware(next durable.Handler) durable.Handler {
	return func(ctx context.Context, run *durable.Run) (err error) {
		spanned, span := t.tracer.Start(parentOf(ctx, run), run.Handler, trace.WithAttributes(attributes(run)...))
		returned := false
		defer func() {
			if returned {
				end(span, outcomeOf(ctx, err), err)
				return
			}
			p := recover()
			if p == nil {
				end(span, durable.OutcomeFailed, errors.New("the handler called runtime.Goexit"))
				return
			}
			end(span, durable.OutcomePanicked, fmt.Errorf("the handler panicked: %v", p))
			panic(p) // the worker handles it
		}()
		err = next(spanned, run)
		returned = true
		return err
	}
}

func attributes(run *durable.Run) []attribute.KeyValue {
	list := []attribute.KeyValue{keyHandler.String(run.Handler), keyRun.Int64(run.ID), keyAttempt.Int(run.Attempt),
		keyKey.String(run.Key), keyWorker.String(run.Worker)}
	if run.Schedule != "" {
		list = append(list, keySchedule.String(run.Schedule), keyTick.String(run.DueAt.UTC().Format(time.RFC3339Nano)))
	}
	if run.TriggeredBy.By != "" {
		list = append(list, keyBy.String(run.TriggeredBy.By))
	}
	return list
}

// outcomeOf returns the outcome of an attempt as the worker will determine it.
func outcomeOf(ctx context.Context, err error) durable.Outcome {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, durable.ErrCanceled):
		return durable.OutcomeCanceled
	case errors.Is(cause, durable.ErrMaxRunTime):
		return durable.OutcomeTimedOut
	case err == nil:
		return durable.OutcomeOK
	case errors.Is(cause, durable.ErrDraining) && !durable.IsPermanent(err):
		return durable.OutcomeInterrupted
	case errors.Is(cause, durable.ErrLeaseLost):
		return durable.OutcomeLeaseLost
	}
	return durable.OutcomeFailed
}

func end(span trace.Span, outcome durable.Outcome, err error) {
	span.SetAttributes(keyOutcome.String(string(outcome)))
	if err != nil {
		span.RecordError(mask.Error(err))
	}
	if outcome != durable.OutcomeOK && outcome != durable.OutcomeInterrupted { // an interrupted run is requeued
		why := string(outcome)
		if err != nil {
			why = mask.Text(err.Error())
		}
		span.SetStatus(codes.Error, why)
	}
	span.End()
}

// In returns options that put the attempts of a run into the trace of ctx. Pass them to Trigger. If
// ctx has no span, the options are unchanged.
func In(ctx context.Context, options durable.TriggerOptions) durable.TriggerOptions {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	if parent := carrier.Get(traceParent); parent != "" {
		options.TraceParent = parent
	}
	return options
}

const traceParent = "traceparent" // the name in W3C Trace Context

// parentOf returns a context with the span that triggered a run, if the run has a trace parent.
func parentOf(ctx context.Context, run *durable.Run) context.Context {
	if run.TraceParent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceParent: run.TraceParent})
}
