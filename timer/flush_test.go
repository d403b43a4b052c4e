package timer_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

type slowLines struct {
	slog.Handler
	in *atomic.Int32
}

func (h slowLines) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

func (h slowLines) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "disagree about MaxConcurrency") {
		h.in.Add(1)
		time.Sleep(10 * time.Second)
		h.in.Add(-1)
	}
	return nil
}

// Run does not return while an attempt whose tick has to wait is still logging.
//
// Fails when such a tick frees its place before the lines of its attempt are written.
func TestRunWaitsForAttemptsThatLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := memlock.New()
		var in atomic.Int32
		job := timer.Timer{Name: "a", Schedule: schedule.Every(time.Minute), MaxConcurrency: 1, OnFull: timer.FullWait,
			MaxRunTime: time.Hour, OnStoreDown: timer.StoreDownSkip}
		ctx, cancel := context.WithCancel(t.Context())
		job.Run = func(context.Context) error { <-ctx.Done(); return nil }
		two := job
		two.MaxConcurrency, two.MaxPerHost, two.MaxPerTick = 2, 2, 1
		other, err := timer.New(timer.Config{Store: lock, Logger: slog.New(slog.DiscardHandler)}, two)
		if err != nil {
			t.Fatal(err)
		}
		otherDone := make(chan error, 1)
		go func() { otherDone <- other.Run(ctx) }()
		synctest.Wait()
		for range 2 {
			if _, err := other.Trigger(ctx, "a", timer.TriggerOptions{}); err != nil {
				t.Error(err)
			}
		}
		s, err := timer.New(timer.Config{Store: lock, Logger: slog.New(slowLines{slog.DiscardHandler, &in})}, job)
		if err != nil {
			t.Fatal(err)
		}
		own, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(own) }()
		for range 300 {
			time.Sleep(time.Second)
			if in.Load() > 0 {
				break
			}
		}
		if in.Load() == 0 {
			t.Errorf("no line; %+v", s.Status().Timers[0])
		}
		stop()
		<-done
		if n := in.Load(); n > 0 {
			t.Errorf("Run has returned, and %d of its goroutines are in the logger", n)
		}
		cancel()
		<-otherDone
		time.Sleep(time.Minute)
	})
}
