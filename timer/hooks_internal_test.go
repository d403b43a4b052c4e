package timer

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// The loss of a lease is not reported after the end of its run, although both may be noticed at the
// same moment.
//
// Fails when leaseLost does not check whether the run is over.
func TestNoLossIsReportedAfterTheEnd(t *testing.T) {
	for _, over := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			link, losses := dlocktest.NewFaulty(memlock.New()), 0
			s, err := New(Config{Store: link, Logger: slog.New(slog.DiscardHandler),
				Hooks: Hooks{LeaseLost: func(LossInfo) { losses++ }}}, Timer{Name: "a", Run: nothing})
			if err != nil {
				t.Fatal(err)
			}
			s.start(t.Context())
			lease, err := s.session.Semaphore("timer:a", 1).TryAcquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			set := s.registry.get("a")
			s.registry.enter(set, 1)
			r := s.runner.startRun(tick{s: set}, nil, lease, false)
			set.entry.mu.Lock()
			r.over = over // as when finish ends the run while lost waits for the mutex
			set.entry.mu.Unlock()
			link.Inject(dlocktest.Hang)
			time.Sleep(dlock.DefaultTTL)
			link.Heal()
			s.runner.finish(set, r, OutcomeLeaseLost, nil)
			if hook := s.events.close(); hook != "" || losses == 0 != over {
				t.Errorf("over %v: %d losses, %q is stuck", over, losses, hook)
			}
			if err := s.session.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
