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

// The calls, as metrics name them.
const (
	opWrite     = "write"
	opRead      = "read"
	opSweep     = "sweep"
	opEnumerate = "enumerate" // of the store of locks
)

var ops = []string{opWrite, opRead, opSweep, opEnumerate}

// faults bounds the calls of the registry, and tracks which of them fail. It logs only when the
// first begins to fail, and when all work again.
type faults struct {
	*answers.Calls
	logger *slog.Logger
	lines  notify.Queue // of the log: the Logger may block, or panic
}

func newFaults(o Config) *faults {
	f := &faults{logger: o.Logger}
	f.Calls = answers.New(answers.Options{Timeout: o.StoreTimeout,
		Wrap: func(op string, err error) error { return mask.Error(fmt.Errorf("cluster: %s: %w", op, err)) },
		// If the store of locks is down, the sessions that hold leases there log it. Only the
		// registry can report that its user may not list them (ErrSetup).
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

// call makes one call.
func call[A any](ctx context.Context, f *faults, op string, do func(context.Context) (A, error)) (A, error) {
	return answers.Do(ctx, f.Calls, op, do)
}

// errorOf returns the error of the last call.
func (f *faults) errorOf(op string) error { return f.FailureOf(op).Err }

// log runs no user code, so a mutex may be held.
func (f *faults) log(level slog.Level, line string, args ...any) {
	f.lines.Put("Logger", func() { f.logger.Log(context.Background(), level, line, args...) })
}

func (f *faults) warn(line string, args ...any) { f.log(slog.LevelWarn, line, args...) }
