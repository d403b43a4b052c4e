package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/answers"
	"github.com/tickslot/tickslot/internal/mask"
	"github.com/tickslot/tickslot/internal/notify"
)

// The names of the calls in metrics.
const (
	opWrite     = "write"
	opRead      = "read"
	opSweep     = "sweep"
	opEnumerate = "enumerate" // to the store of locks
)

var ops = []string{opWrite, opRead, opSweep, opEnumerate}

// faults bounds the calls of the registry and tracks which of them fail. It logs when the first
// call starts to fail and when all calls work again.
type faults struct {
	*answers.Calls
	logger *slog.Logger
	lines  notify.Queue // log lines, queued because the Logger may block or panic
}

func newFaults(o Config) *faults {
	f := &faults{logger: o.Logger}
	f.Calls = answers.New(answers.Options{Timeout: o.StoreTimeout,
		Wrap: func(op string, err error) error { return mask.Error(fmt.Errorf("cluster: %s: %w", op, err)) },
		// If the store of locks is down, the sessions that hold its leases log it. Only the
		// registry can report that its user may not list leases (ErrSetup).
		Ignored: func(op string, err error) bool { return op == opEnumerate && !errors.Is(err, dlock.ErrSetup) },
		Turned: func(err error, lasted time.Duration) {
			if err != nil {
				f.warn("cluster: the registry fails; locks and timers do not depend on it", "err", err)
				return
			}
			f.log(slog.LevelInfo, "cluster: the registry works again", "down_for", lasted.Round(time.Millisecond))
		}})
	return f
}

// call makes one call, bounded and counted by f.
func call[A any](ctx context.Context, f *faults, op string, do func(context.Context) (A, error)) (A, error) {
	return answers.Do(ctx, f.Calls, op, do)
}

// errorOf returns the error of the last call op, or nil if it succeeded.
func (f *faults) errorOf(op string) error { return f.FailureOf(op).Err }

// log may be called with a mutex held, because it runs no user code.
func (f *faults) log(level slog.Level, line string, args ...any) {
	f.lines.Put("Logger", func() { f.logger.Log(context.Background(), level, line, args...) })
}

func (f *faults) warn(line string, args ...any) { f.log(slog.LevelWarn, line, args...) }
