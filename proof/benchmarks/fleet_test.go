package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// startLab starts the servers for a run.
func startLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{}
	var err error
	if l.postgres, err = startPostgres(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.postgres.admin.Close(); l.postgres.Close() })
	if l.redis, err = startRedis(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.redis.Close() })
	return l
}

// Each fleet runs jobs that were queued before it started, and later ones not before they are due.
// Its database records them.
//
// Fails when a side loses jobs or their instants, or counts in another database.
func TestFleets(t *testing.T) {
	sqltest.RequirePostgres(t)
	redistest.Require(t)
	l := startLab(t)
	const now, later = 5, 3
	for name, s := range map[string]side{tickslotPostgres: l.onPostgres().fleet, tickslotSQLite: onSQLiteFile().fleet,
		"River": l.river(quick), "asynq": l.tasks(asynq.Config{DelayedTaskCheckInterval: 50 * time.Millisecond})} {
		come, early := newArrival(now+later), make(chan time.Duration, now+later)
		f, err := s(2, 4, func(due time.Time) {
			if d := time.Until(due); d > 0 {
				early <- d
			}
			come.come(due)
		})
		if err != nil {
			t.Fatal(name, err)
		}
		soon := time.Now().Add(500 * time.Millisecond)
		for _, due := range [][]time.Time{atOnceDue(now), {soon, soon}, {soon}} {
			if err := f.queue(due); err != nil {
				t.Error(name, err)
			}
		}
		if err := f.start(); err != nil {
			t.Error(name, err)
		}
		select {
		case <-come.all:
		case <-time.After(longestLate):
			t.Errorf("%s: %d of %d jobs were started", name, come.n.Load(), now+later)
		}
		if len(early) > 0 {
			t.Errorf("%s: %d jobs were early, the first by %v", name, len(early), <-early)
		}
		err = testkit.Poll(longestLate, "the database of "+name, func(context.Context) error {
			done, err := f.done()
			if err == nil && done != now+later {
				err = fmt.Errorf("it has %d of %d jobs", done, now+later)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		if err := f.close(); err != nil {
			t.Error(name, err)
		}
	}
}
