package page_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/timer/control"
)

// Partial locks do not tell the overrides of report while one of their nodes is down, as a Redis
// Cluster does, and none while all are.
type partialLocks struct {
	*countedLocks
	nodesDown atomic.Int32
}

func (l *partialLocks) Inspect(ctx context.Context, names ...string) ([]driver.ControlState, error) {
	down := l.nodesDown.Load()
	if down > 1 {
		return nil, errors.New("all nodes are down")
	}
	states, err := l.countedLocks.Inspect(ctx, names...)
	for i, s := range states {
		if down == 1 && s.Name == "timer:report" {
			states[i] = driver.ControlState{Name: s.Name, Err: errors.New("its node is down")}
		}
	}
	return states, err
}

// A pause that the store does not tell is still shown if this process knows it, and each page that
// shows pauses says that some are not known, and why.
//
// Fails when an answer that is not known counts as "not paused", or when its error is dropped.
func TestPausesThatTheStoreDoesNotTell(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{})
	locks := &partialLocks{countedLocks: f.locks}
	locks.nodesDown.Store(1)
	ann := driver.Cause{By: "ann", Note: "the database is moved"}
	for _, name := range []string{"report", "other"} {
		ctl := control.New(control.Config{Store: f.locks})
		if err := ctl.Pause(t.Context(), name, time.Now().Add(time.Hour), ann); err != nil {
			t.Fatal(err)
		}
	}
	f.host("h", cluster.Heartbeat{}, cluster.HostDetail{Timers: []cluster.TimerDetail{{Name: "other",
		MaxConcurrency: 1}}})
	scheduler := f.startTimers(func(context.Context) error { return nil }) // of report
	testkit.Eventually(t, 30*time.Second, "this process knows the pause", func() bool {
		return scheduler.Status().Timers[0].Paused != nil
	})
	var err error
	if f.page, err = page.New(page.Config{Registry: f.registry, Authorize: page.Loopback, Timers: scheduler,
		Control: control.New(control.Config{Store: locks}),
		Logger:  slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	f.has("timers?state=paused", "other", "report", "1 to 2 of 2", "A store does not answer",
		"the pauses of 1 timer are not known", "its node is down")
	f.has("", "report is paused by ann: the database is moved", `state=paused">2 paused`,
		"A store did not answer: the pauses of 1 timer are not known")
	locks.nodesDown.Store(2)
	f.has("timers?state=paused", "all nodes are down", "1 to 2 of 2")
	f.has("", "A store did not answer: the pauses of timers are not known", `state=paused">2 paused`)
	locks.nodesDown.Store(0)
	testkit.Eventually(t, 5*time.Second, "all is known again", func() bool {
		return !strings.Contains(f.get("timers"), "A store does not answer")
	})
}
