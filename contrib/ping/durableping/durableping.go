// Package durableping makes package ping tell a monitor when durable runs start, succeed, or fail
// permanently.
//
//	pings, err := ping.New(map[string]string{"report": "https://hc-ping.com/…"}, ping.Options{})
//	hooks := durableping.Hooks(pings, durable.Hooks{})
//	worker, err := durable.NewWorker(store, durable.Config{Hooks: hooks})
//
// The map's keys are the names of handlers. Each attempt sends a start. A success is sent once it
// is stored in the database, and a failure once the run is a dead letter. An attempt that will be
// retried sends nothing at its end, and the same holds for a canceled run. This package promises no
// more than package ping. If a worker dies before it has sent a success, the success is never sent.
package durableping

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/tickslot/tickslot/contrib/ping"
	"github.com/tickslot/tickslot/durable"
)

// Hooks returns hooks that ping and then call the hooks in own, which may be the zero value.
func Hooks(p *ping.Pinger, own durable.Hooks) durable.Hooks {
	started, ended := own.RunStarted, own.RunEnded
	own.RunStarted = func(i durable.RunInfo) {
		p.Start(i.Handler, idOf(i))
		if started != nil {
			started(i)
		}
	}
	own.RunEnded = func(r durable.RunResult) {
		switch r.State {
		case durable.StateSucceeded:
			p.Success(r.Handler, idOf(r.RunInfo))
		case durable.StateDead:
			p.Fail(r.Handler, idOf(r.RunInfo), cmp.Or(r.Err, errors.New(string(r.Outcome))))
		}
		if ended != nil {
			ended(r)
		}
	}
	return own
}

func idOf(i durable.RunInfo) string {
	return fmt.Sprintf("%d\x00%d\x00%s\x00%d", i.ID, i.Attempt, i.Worker, i.StartedAt.UnixNano())
}
