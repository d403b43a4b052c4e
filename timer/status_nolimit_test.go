package timer_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/timer"
)

// Status and the log show NoLimit where there is no limit, and not the internal number for it.
//
// Fails when Status, or the log line of a new timer, shows the internal number.
func TestNoLimitIsShownAsSuch(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	job := timer.Timer{
		Name: "a", MaxConcurrency: timer.NoLimit, MaxPerTick: timer.NoLimit, MaxPerHost: timer.NoLimit,
		MaxRunTime: timer.NoLimit, AlarmAfter: timer.NoLimit, Run: nop,
	}
	s, err := timer.New(timer.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, job)
	if err != nil {
		t.Fatal(err)
	}
	ts, _ := s.Status().Timer("a")
	if ts.MaxConcurrency != timer.NoLimit || ts.MaxPerTick != timer.NoLimit || ts.MaxPerHost != timer.NoLimit ||
		ts.EffectiveLimit != timer.NoLimit {
		t.Errorf("%+v: want NoLimit", ts)
	}
	for _, want := range []string{"max_concurrency=none", "max_per_tick=none", "max_per_host=none",
		"max_run_time=none"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("want %s in %s", want, log.String())
		}
	}
}
