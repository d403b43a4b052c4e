package timertest

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// One host has misbehaving handlers of every kind, a timer that ticks beside them, and a run that
// holds its slot all the time. The misbehaving ones release their slots like any other, except the
// one that never returns: it keeps its place on the host, and its slot in the store expires.
//
// Fails when call does not recover, when the cleanup is not deferred (a handler that calls Goexit
// keeps its place), when a run is called on the scheduling goroutine, and when the slot of a run
// past its MaxRunTime is renewed.
func handlers(s *suite, t *testing.T) {
	testkit.SkipShort(t)
	f := s.fleet(t)
	forever, open := f.gate()
	every := schedule.Every(s.Period)
	h := f.start(timer.Config{},
		timer.Timer{Name: "panics", Schedule: every, OnStoreDown: timer.StoreDownSkip,
			Run: func(context.Context) error { panic("boom") }},
		timer.Timer{Name: "errs", Schedule: every, OnStoreDown: timer.StoreDownSkip,
			Run: func(context.Context) error { return errors.New("no luck") }},
		timer.Timer{Name: "exits", Schedule: every, OnStoreDown: timer.StoreDownSkip,
			Run: func(context.Context) error { runtime.Goexit(); return nil }},
		timer.Timer{Name: "blocks", Schedule: every, MaxRunTime: 100 * time.Millisecond,
			OnStoreDown: timer.StoreDownSkip,
			Run:         func(context.Context) error { <-forever; return nil }},
		timer.Timer{Name: "good", Schedule: every, OnStoreDown: timer.StoreDownSkip,
			Run: func(context.Context) error { return nil }},
		timer.Timer{Name: "steady", OnStoreDown: timer.StoreDownSkip, Run: hold(forever)})
	f.until("the steady one and the one that blocks run", func() bool {
		if f.watch.now("steady") == nil { // not started yet, or a busy machine renewed its lease too late
			_ = h.Trigger(t.Context(), "steady")
		}
		return f.watch.now("steady") != nil && f.watch.now("blocks") != nil
	})
	steady, at := f.watch.now("steady"), time.Now()
	for _, name := range []string{"panics", "errs", "exits", "good"} {
		f.until(name+" is started again and again", func() bool { return f.watch.runs(name, since(at)) >= 10 })
	}
	f.until("the slot of the one that blocks ends", func() bool {
		running := f.status(h, "blocks").Running
		return len(running) == 1 && running[0].Overdue && !running[0].Valid
	})
	f.take("timer:blocks", 1, 1)
	before := f.watch.runs("good", all)
	f.until("good goes on", func() bool { return f.watch.runs("good", all) >= before+5 })
	if n := f.watch.runs("blocks", all); n != 1 {
		t.Errorf("%d runs of the one that blocks: it must keep its place", n)
	}
	if n := skipped("blocks", timer.ReasonHostFull, h); n == 0 {
		t.Error("no tick of the one that blocks met the local limit")
	}
	if (!steady.Valid() || steady.ctx.Err() != nil) && !f.strained(h, at) {
		t.Errorf("the steady run was disturbed: valid %v, context %v", steady.Valid(), context.Cause(steady.ctx))
	}
	open()
	f.stop()
	for name, outcome := range map[string]timer.Outcome{"panics": timer.OutcomePanicked, "errs": timer.OutcomeFailed,
		"exits": timer.OutcomeFailed, "good": timer.OutcomeOK, "blocks": timer.OutcomeTimedOut} {
		if last := f.status(h, name).Last; last == nil || last.Outcome != outcome && !f.strained(h, at) {
			t.Errorf("%s: %+v, want %s", name, last, outcome)
		}
	}
}
