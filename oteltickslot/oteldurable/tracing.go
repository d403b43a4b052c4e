package oteldurable

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/tickslot/tickslot/durable"
)

// scope names this library in every span.
const scope = "github.com/tickslot/tickslot/oteltickslot/oteldurable"

// The attributes of spans and events.
const (
	keyHandler  = attribute.Key("tickslot.handler")
	keyRun      = attribute.Key("tickslot.run_id")
	keyAttempt  = attribute.Key("tickslot.attempt")
	keyKey      = attribute.Key("tickslot.key")
	keySchedule = attribute.Key("tickslot.schedule") // not there if the run was triggered
	keyTick     = attribute.Key("tickslot.tick")     // the same; RFC 3339, in UTC
	keyBy       = attribute.Key("tickslot.triggered_by")
	keyWorker   = attribute.Key("tickslot.worker")
	keyOutcome  = attribute.Key("tickslot.outcome")
)

// Options of Tracing. The zero value is fine.
type Options struct {
	// TracerProvider makes the spans. Default otel.GetTracerProvider().
	TracerProvider trace.TracerProvider
}

// Tracing makes spans for any number of Workers. Its methods may be called from any goroutine.
type Tracing struct{ tracer trace.Tracer }

// New returns a Tracing.
func New(o Options) *Tracing {
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	return &Tracing{o.TracerProvider.Tracer(scope)}
}

// Middleware makes a span of each attempt, which the handler's context has.
func (t *Tracing) Middleware(next durable.Handler) durable.Handler {
	return func(ctx context.Context, run *durable.Run) (err error) {
		spanned, span := t.tracer.Start(ctx, run.Handler, trace.WithAttributes(attributes(run)...))
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
			panic(p) // the worker deals with it
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

// outcomeOf returns how an attempt ended, as the worker will see it.
func outcomeOf(ctx context.Context, err error) durable.Outcome {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, durable.ErrCanceled):
		return durable.OutcomeCanceled
	case errors.Is(cause, durable.ErrMaxRunTime):
		return durable.OutcomeTimedOut
	case err == nil:
		return durable.OutcomeOK
	case errors.Is(cause, durable.ErrDraining):
		return durable.OutcomeInterrupted
	case errors.Is(cause, durable.ErrLeaseLost):
		return durable.OutcomeLost
	}
	return durable.OutcomeFailed
}

func end(span trace.Span, outcome durable.Outcome, err error) {
	span.SetAttributes(keyOutcome.String(string(outcome)))
	if err != nil {
		span.RecordError(err)
	}
	if outcome != durable.OutcomeOK && outcome != durable.OutcomeInterrupted { // it is given back
		why := string(outcome)
		if err != nil {
			why = err.Error()
		}
		span.SetStatus(codes.Error, why)
	}
	span.End()
}

// Triggered notes, in the span of a context, that a run was triggered: its ID is in the spans of
// its attempts. Pass what Store.Trigger has returned; after an error nothing is noted.
func Triggered(ctx context.Context, handler string, id int64, err error) {
	if err == nil {
		trace.SpanFromContext(ctx).AddEvent("run triggered", trace.WithAttributes(keyHandler.String(handler),
			keyRun.Int64(id)))
	}
}
