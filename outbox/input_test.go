package outbox_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/outbox"
)

// The errors of a broken sink.
type (
	panicsInError struct{}
	panicsInIs    struct{}
)

func (*panicsInError) Error() string { panic("no text") }
func (panicsInIs) Error() string     { return "odd" }
func (panicsInIs) Is(error) bool     { panic("no answer") }

// Every error of a sink becomes one of the outcomes, and the next message is delivered.
//
// Fails when an odd error counts as a success, stops the relay, or postpones a message for years.
func TestSinksThatAnswerNonsense(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		const transient, permanent = outbox.OutcomeTransient, outbox.OutcomePermanent
		var none *panicsInError
		odd := map[string]struct {
			answer func() error
			want   outbox.Outcome
			within time.Duration // latest time of the next attempt
		}{
			"no text":           {func() error { return errors.New("") }, transient, time.Second},
			"nil of a type":     {func() error { return none }, transient, time.Second},
			"no wait":           {func() error { return (*outbox.RetryAfterError)(nil) }, transient, time.Second},
			"no panic":          {func() error { return (*outbox.PanicError)(nil) }, transient, time.Second},
			"panics in Error":   {func() error { return &panicsInError{} }, transient, time.Second},
			"panics in Is":      {func() error { return panicsInIs{} }, transient, time.Second},
			"panics with nil":   {func() error { panic(nil) }, transient, time.Second},
			"panics with error": {func() error { panic(errReceiver) }, transient, time.Second},
			"Goexit":            {func() error { runtime.Goexit(); return nil }, transient, time.Second},
			"no UTF-8":          {func() error { return errors.New("\xff\x00'\"") }, transient, time.Second},
			"1 MB": {func() error { return errors.New(strings.Repeat("x", 1<<20)) },
				transient, time.Second},
			"canceled":        {func() error { return context.Canceled }, transient, time.Second},
			"deadline":        {func() error { return context.DeadlineExceeded }, transient, time.Second},
			"permanent, bare": {func() error { return outbox.ErrPermanent }, permanent, 0},
			"permanent, and wait": {func() error {
				return errors.Join(outbox.RetryAfter(time.Hour, errReceiver), outbox.Permanent(errReceiver))
			}, permanent, 0},
			"wait, negative": {func() error { return outbox.RetryAfter(-time.Hour, errReceiver) }, transient, 0},
			"wait, for ever": {func() error {
				return outbox.RetryAfter(math.MaxInt64, errReceiver)
			}, transient, 24 * time.Hour},
			"handmade, negative": {func() error { return &outbox.RetryAfterError{Wait: -1 << 60} }, transient, 0},
			"handmade, for ever": {func() error {
				return &outbox.RetryAfterError{Wait: math.MaxInt64, Err: errReceiver}
			}, transient, 24 * time.Hour},
		}
		first, next := map[string]outbox.ID{}, map[string]outbox.ID{}
		for name := range odd {
			first[name] = f.append(name, 1)[0]
			next[name] = f.append(name, 1)[0]
		}
		f.relay(outbox.RelayConfig{DefaultSink: outbox.SinkFunc(func(ctx context.Context, d outbox.Delivery) error {
			if d.ID == first[d.Key] && d.Attempt == 1 {
				return odd[d.Key].answer()
			}
			return f.Deliver(ctx, d)
		})})
		time.Sleep(25 * time.Hour)
		f.inOrder(t)
		for name, c := range odd {
			m, tried, err := f.box.Message(t.Context(), first[name])
			if err != nil || len(tried) == 0 || tried[0].Outcome != c.want {
				t.Errorf("%s: %+v, %v, want %s", name, tried, err, c.want)
				continue
			}
			if c.want == transient && (len(tried) != 2 || m.State != outbox.StateDispatched ||
				tried[1].FinishedAt.Sub(tried[0].FinishedAt) > c.within+100*time.Millisecond) {
				t.Errorf("%s: %s, attempts %+v, want the second within %v", name, m.State, tried, c.within)
			}
			if len(tried[0].Error) > 10_000 || strings.Contains(tried[0].Error, "\x00") {
				t.Errorf("%s: the error has %d bytes, or contains NUL", name, len(tried[0].Error))
			}
			if m, _, err := f.box.Message(t.Context(), next[name]); err != nil || m.State != outbox.StateDispatched {
				t.Errorf("%s: the next message is %s, %v", name, m.State, err)
			}
		}
	})
}
