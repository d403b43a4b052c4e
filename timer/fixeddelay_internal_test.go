package timer

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/schedule"
)

// A timer that is removed while Update is about to plan its first tick leaves nothing behind.
//
// Fails when the planner's state is dropped only if it already belongs to the new entry.
func TestFixedDelayRemovedDuringAnUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := Timer{Name: "job", Schedule: schedule.After(time.Hour), Run: func(context.Context) error { return nil }}
		s, err := New(Config{Logger: slog.New(slog.DiscardHandler)}, job)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		synctest.Wait()
		set, _, err := newTimerChange(s).prepare(job, s.planner.now())
		if err != nil {
			t.Fatal(err)
		}
		s.registry.mu.Lock()
		old, interval, err := s.planner.update(set)
		s.registry.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Remove(ctx, "job"); err != nil {
			t.Fatal(err)
		}
		s.planner.proceed(old, set, interval)
		if n := len(s.planner.fixed); n != 0 {
			t.Errorf("the planner still has %d timers", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
