package oteltickslot

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/mask"
	"github.com/tickslot/tickslot/timer"
)

// scope names this library in every span.
const scope = "github.com/tickslot/tickslot/oteltickslot"

// maxOpen is the maximum number of runs that may wait for the hook that reports their end.
const maxOpen = 10_000

// The attributes of spans and events.
const (
	keyTimer     = attribute.Key("tickslot.timer")
	keyRun       = attribute.Key("tickslot.run_id")
	keyTick      = attribute.Key("tickslot.tick") // RFC 3339, in UTC; missing if the run was triggered
	keyBy        = attribute.Key("tickslot.triggered_by")
	keySlot      = attribute.Key("tickslot.slot")
	keyFence     = attribute.Key("tickslot.fence")
	keyHolder    = attribute.Key("tickslot.holder")
	keyOutcome   = attribute.Key("tickslot.outcome")
	keyAttempt   = attribute.Key("tickslot.attempt")
	keyDegraded  = attribute.Key("tickslot.degraded") // the run continues, or ended, without the store
	keyRetryIn   = attribute.Key("tickslot.retry_in") // seconds
	keyOperation = attribute.Key("tickslot.operation")
	keyLock      = attribute.Key("tickslot.lock") // the first lock if there are several leases
	keyLeases    = attribute.Key("tickslot.leases")
	keyRefused   = attribute.Key("tickslot.refused") // why the store refused
	keyError     = attribute.Key("error.message")
)

// Options are the settings of Tracing. The zero value is valid.
type Options struct {
	// TracerProvider creates the spans. Default otel.GetTracerProvider().
	TracerProvider trace.TracerProvider
	// WithoutStoreCalls omits the spans of calls to the store. Default false: each call has a span.
	WithoutStoreCalls bool
}

// Tracing creates spans for any number of Schedulers and Sessions. Its methods may be called from
// any goroutine.
type Tracing struct {
	tracer    trace.Tracer
	withCalls bool

	mu   sync.Mutex
	open map[string]trace.Span // by timer and run ID; runs that have not ended
}

// New returns a Tracing.
func New(o Options) *Tracing {
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	return &Tracing{tracer: o.TracerProvider.Tracer(scope), withCalls: !o.WithoutStoreCalls,
		open: make(map[string]trace.Span)}
}

// Middleware puts the span of the run into the handler's context. Use it together with TimerHooks,
// which end the span.
func (t *Tracing) Middleware(next timer.Handler) timer.Handler {
	return func(ctx context.Context) error {
		run, ok := timer.RunFromContext(ctx)
		if !ok {
			return next(ctx)
		}
		span, kept := t.spanOf(ctx, run)
		if !kept {
			defer span.End()
		}
		return next(trace.ContextWithSpan(ctx, span))
	}
}

// spanOf returns the span of a run and starts it at the first attempt. It starts the span without
// holding the mutex, because samplers and processors may block. kept is false if maxOpen runs
// already wait for their end.
func (t *Tracing) spanOf(ctx context.Context, run *timer.Run) (span trace.Span, kept bool) {
	key := keyOf(run.Timer(), run.ID())
	t.mu.Lock()
	span, ok := t.open[key]
	t.mu.Unlock()
	if ok {
		return span, true
	}
	attributes := []attribute.KeyValue{keyTimer.String(run.Timer()), keyRun.String(run.ID()),
		keySlot.Int(run.Slot()), keyFence.Int64(int64(run.Fence())), keyHolder.String(run.Holder().String()),
		keyDegraded.Bool(run.Degraded())}
	if tick := run.Tick(); !tick.IsZero() {
		attributes = append(attributes, keyTick.String(tick.UTC().Format("2006-01-02T15:04:05.999999Z07:00")))
	}
	if by, ok := run.TriggeredBy(); ok && by.By != "" {
		attributes = append(attributes, keyBy.String(by.By))
	}
	_, span = t.tracer.Start(ctx, run.Timer(), trace.WithAttributes(attributes...))
	t.mu.Lock()
	defer t.mu.Unlock()
	// Attempts of a run are sequential, but a test may call a handler twice at the same time.
	if _, taken := t.open[key]; taken || len(t.open) >= maxOpen {
		return span, false
	}
	t.open[key] = span
	return span, true
}

func keyOf(timer, id string) string { return timer + "\x00" + id }

// TimerHooks returns hooks that end the spans of runs, create those of calls to the store, and then
// call the hooks in own, which may be the zero value.
func (t *Tracing) TimerHooks(own timer.Hooks) timer.Hooks {
	own.AttemptFailed = then(t.attemptFailed, own.AttemptFailed)
	own.RunEnded = then(t.runEnded, own.RunEnded)
	own.LeaseLost = then(t.leaseLost, own.LeaseLost)
	if t.withCalls {
		own.StoreCalled = then(t.called, own.StoreCalled)
	}
	return own
}

// LockHooks returns hooks for a Session without timers. They create spans for its calls to the
// store and then call the hooks in own, which may be the zero value.
func (t *Tracing) LockHooks(own dlock.Hooks) dlock.Hooks {
	if t.withCalls {
		own.Called = then(t.called, own.Called)
	}
	return own
}

func then[T any](first, second func(T)) func(T) {
	if second == nil {
		return first
	}
	return func(info T) {
		first(info)
		second(info)
	}
}

func (t *Tracing) of(i timer.RunInfo) trace.Span {
	t.mu.Lock()
	defer t.mu.Unlock()
	if span, ok := t.open[keyOf(i.Timer, i.ID)]; ok {
		return span
	}
	return trace.SpanFromContext(context.Background()) // does nothing
}

func (t *Tracing) attemptFailed(i timer.AttemptInfo) {
	t.of(i.RunInfo).AddEvent("attempt failed", trace.WithTimestamp(i.FailedAt), trace.WithAttributes(
		keyAttempt.Int(i.Attempt), keyRetryIn.Float64(i.RetryIn.Seconds()), keyError.String(text(i.Err))))
}

func (t *Tracing) leaseLost(i timer.LossInfo) {
	t.of(i.RunInfo).AddEvent("lease lost", trace.WithTimestamp(i.LostAt), trace.WithAttributes(keySlot.Int(i.Slot),
		keyFence.Int64(int64(i.Fence)), keyError.String(text(i.Err))))
}

func (t *Tracing) runEnded(i timer.RunResult) {
	span, end := t.of(i.RunInfo), trace.WithTimestamp(i.StartedAt.Add(i.Took))
	t.mu.Lock()
	delete(t.open, keyOf(i.Timer, i.ID))
	t.mu.Unlock()
	span.SetAttributes(keyOutcome.String(string(i.Outcome)), keyAttempt.Int(i.Attempt), keyDegraded.Bool(i.Degraded))
	if i.Err != nil {
		span.RecordError(mask.Error(i.Err), end)
	}
	if i.Outcome != timer.OutcomeOK {
		why := text(i.Err)
		if why == "" {
			why = string(i.Outcome)
		}
		span.SetStatus(codes.Error, why)
	}
	span.End(end)
}

// called creates a span for a call that has ended.
func (t *Tracing) called(c dlock.StoreCall) {
	attributes := []attribute.KeyValue{keyOperation.String(string(c.Op)), keyLock.String(c.Name)}
	if len(c.Grants) > 0 {
		attributes = append(attributes, keyLeases.Int(len(c.Grants)))
	}
	ctx := c.Context
	if ctx == nil {
		ctx = context.Background()
	}
	_, span := t.tracer.Start(ctx, "tickslot "+string(c.Op), trace.WithTimestamp(c.StartedAt),
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes...))
	end := trace.WithTimestamp(c.StartedAt.Add(c.Took))
	if no, ok := errors.AsType[*dlock.NotAcquiredError](c.Err); ok && no != nil {
		span.SetAttributes(keyRefused.String(string(no.Reason)))
	}
	if c.Err != nil && !c.Refused() && !c.Canceled {
		span.RecordError(mask.Error(c.Err), end)
		span.SetStatus(codes.Error, text(c.Err))
	}
	span.End(end)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return mask.Text(err.Error())
}
