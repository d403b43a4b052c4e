package manager_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/timertest"
	"github.com/tickslot/tickslot/timer"
)

// A fleet is one host in virtual time.
type fleet struct {
	timertest.Fleet[*memlock.Store]
	t *testing.T
}

type host = timertest.Host[*memlock.Store]

func newFleet(t *testing.T) *fleet {
	const patience = time.Hour // in virtual time
	return &fleet{timertest.NewFleet[*memlock.Store](t, patience), t}
}

func (f *fleet) start(config timer.Config, timers ...timer.Timer) *host {
	f.t.Helper()
	h := f.NewHost(memlock.New(), config, timers...)
	f.Run(f.t.Context(), h)
	synctest.Wait() // wait until the host runs
	return h
}

// ran counts runs by the name passed to handler.
type ran struct {
	mu sync.Mutex
	n  map[string]int
}

// handler returns a handler that takes d, or less if its context ends.
func (r *ran) handler(of string, d time.Duration) timer.Handler {
	return func(ctx context.Context) error {
		r.mu.Lock()
		if r.n == nil {
			r.n = map[string]int{}
		}
		r.n[of]++
		r.mu.Unlock()
		return takes(d)(ctx)
	}
}

func (r *ran) of(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n[what]
}

// takes returns a handler that takes d, or less if its context ends. It sets no timer if d is 0.
// The race detector of Go 1.26 sometimes crashes if a timer of virtual time is due when it is set
// (go.dev/issue/78156).
func takes(d time.Duration) timer.Handler {
	return func(ctx context.Context) error {
		if d <= 0 {
			return context.Cause(ctx)
		}
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func nop(context.Context) error { return nil }

// bubble runs a test in virtual time. The test fails if a goroutine is left at its end.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// logTo returns a logger for a Manager.
func logTo(log *testkit.Log) *slog.Logger { return slog.New(slog.NewTextHandler(log, nil)) }

// quiet discards what a Manager logs.
var quiet = slog.New(slog.DiscardHandler)

type scheduleFunc func(time.Time) time.Time

func (f scheduleFunc) Next(t time.Time) time.Time { return f(t) }

func timersOf(h *host) (names []string) {
	for _, st := range h.Status().Timers {
		if !st.Removed {
			names = append(names, st.Name)
		}
	}
	return names
}
