package durable

import (
	"context"
	"log/slog"
	"time"

	"github.com/tickslot/tickslot/internal/answers"
)

// Names of the calls in metrics and log lines.
const (
	opVerify      = "verify"
	opRegister    = "register"
	opDue         = "due"
	opMaterialize = "materialize"
	opClaim       = "claim"
	opRenew       = "renew"
	opFinish      = "finish"
	opReclaim     = "reclaim"
	opSweep       = "sweep"
	opStats       = "stats"
	opNotify      = "notify"
	opRead        = "read"
)

// A database bounds the time of calls to the store and records whether they succeed.
type database struct{ *answers.Calls }

// newDatabase returns a database that waits up to TTL for a late answer. As long as their leases
// last, the runs in a late answer to a claim can be given back, which uses up no attempt.
func newDatabase(name string, c Config, v *events) *database {
	return &database{answers.New(answers.Options{Name: name, Timeout: c.CallTimeout,
		Behind: max(c.TTL, stallAfter(c)),
		Failed: func(op string, err error, first bool) {
			level := slog.LevelDebug
			if first { // the first failure announces the outage
				level = slog.LevelWarn
			}
			v.Log(level, "durable: a call to the database failed", "call", op, "err", err)
		},
		Down: func(err error) {
			v.Log(slog.LevelError, "durable: the database does not answer: runs continue while their leases last, "+
				"and no new run starts", "err", err)
			tell(v, "DatabaseDown", v.hooks.DatabaseDown, DatabaseInfo{Database: name, Err: err})
		},
		Up: func(downFor time.Duration) {
			v.Log(slog.LevelInfo, "durable: the database answers again", "down_for", downFor)
			tell(v, "DatabaseUp", v.hooks.DatabaseUp, DatabaseInfo{Database: name, DownFor: downFor})
		},
	})}
}

// call makes a call to the store.
func call[T any](d *database, op string, f func(context.Context) (T, error)) (T, error) {
	return answers.Do(d.Life(), d.Calls, op, f)
}
