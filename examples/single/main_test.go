package main

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/timer"
)

// For a night in virtual time, each timer does what the comment on it in the program says, and none
// affects another.
//
// Fails when a timer that fails or panics ends, when runs of the slow one overlap, and when the
// nightly one runs at half past two of another zone.
func TestANight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timers, err := timer.New(timer.Config{Logger: slog.New(slog.DiscardHandler)}, crontab()...)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- timers.Run(ctx) }()
		<-timers.Running()
		now := time.Now()
		night := time.Date(now.Year(), now.Month(), now.Day(), 2, 31, 0, 0, time.Local)
		if night.Before(now) {
			night = night.AddDate(0, 0, 1)
		}
		seconds := uint64(night.Sub(now) / time.Second)
		time.Sleep(night.Sub(now) - time.Millisecond)
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}

		for name, want := range map[string]struct {
			ticks, started uint64
			outcome        timer.Outcome
		}{
			"heartbeat": {seconds, seconds, timer.OutcomeOK},
			"nightly":   {1, 1, timer.OutcomeOK},
			"fails":     {seconds / 2, seconds / 2, timer.OutcomeFailed},
			"panics":    {seconds / 3, seconds / 3, timer.OutcomePanicked},
			"slow":      {seconds, seconds / 3, timer.OutcomeOK},
		} {
			got, _ := timers.Status().Timer(name)
			if got.Ticks != want.ticks || got.Started != want.started || got.Last.Outcome != want.outcome ||
				got.Skipped[timer.ReasonHostFull] != want.ticks-want.started {
				t.Errorf("%s: %d ticks, %d started, last %+v, want %+v", name, got.Ticks, got.Started, got.Last, want)
			}
			if tick := got.Last.Tick.Local(); name == "nightly" && tick.Format("15:04") != "02:30" {
				t.Errorf("nightly ran at %v, want half past two here", tick)
			}
		}
	})
}
