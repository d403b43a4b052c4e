package outbox

import (
	"context"
	"log/slog"
	"time"

	"github.com/tickslot/tickslot/internal/answers"
)

// Names of the calls in metrics and log lines.
const (
	opVerify = "verify"
	opLayout = "layout"
	opDue    = "due"
	opMark   = "mark"
	opBegin  = "begin"
	opSweep  = "sweep"
	opStats  = "stats"
	opLocks  = "locks"
)

// calls makes the calls of a relay to the database.
type calls struct{ *answers.Calls }

func newCalls(name string, c RelayConfig, v *events) *calls {
	return &calls{answers.New(answers.Options{Name: name, Timeout: c.CallTimeout, Behind: stallAfter(c),
		Failed: func(op string, err error, first bool) {
			level := slog.LevelDebug
			if first { // the first failure announces the outage
				level = slog.LevelWarn
			}
			v.Log(level, "outbox: a call to the database failed", "call", op, "err", err)
		},
		Down: func(err error) {
			v.Log(slog.LevelError, "outbox: the database does not answer: nothing is delivered", "err", err)
			tell(v, "DatabaseDown", v.hooks.DatabaseDown, DatabaseInfo{Database: name, Err: err})
		},
		Up: func(downFor time.Duration) {
			v.Log(slog.LevelInfo, "outbox: the database answers again", "down_for", downFor)
			tell(v, "DatabaseUp", v.hooks.DatabaseUp, DatabaseInfo{Database: name, DownFor: downFor})
		},
	})}
}

// call makes a call to the store.
func call[T any](c *calls, op string, f func(context.Context) (T, error)) (T, error) {
	return answers.Do(c.Life(), c.Calls, op, f)
}

// callFor makes a call for a shard. A call that hangs does not delay other shards.
func callFor[T any](
	ctx context.Context, s *shard, op string, f func(context.Context) (T, error),
) (T, error) {
	return answers.DoFor(ctx, s.relay.calls.Calls, op, s.term.Slot(), f)
}
