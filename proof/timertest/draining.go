package timertest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// The TestMain of the package that runs the suite checks for leaked goroutines.
func draining(s *suite, t *testing.T) {
	t.Run("slots are free at once", func(t *testing.T) {
		t.Parallel()
		slotsAreFree(s, t)
	})
	t.Run("a handler that never returns", func(t *testing.T) {
		t.Parallel()
		testkit.SkipShort(t)
		stuck(s, t)
	})
}

// Some runs end on their own, some must be canceled, and some attempts are in flight. When Run has
// returned, another client gets every slot at its first try.
//
// Fails when finish does not release, and when Run does not wait for the runs.
func slotsAreFree(s *suite, t *testing.T) {
	f := s.fleet(t)
	gate, open := f.gate()
	h := f.start(timer.Config{DrainTimeout: time.Second},
		timer.Timer{Name: "finishes", MaxConcurrency: 3, OnStoreDown: timer.StoreDownSkip,
			Run: func(context.Context) error { <-gate; return nil }},
		timer.Timer{Name: "must be told", OnStoreDown: timer.StoreDownSkip, Run: hold(nil)},
		timer.Timer{Name: "starts", Schedule: schedule.Every(s.Period / 2), MaxConcurrency: 2, MaxPerTick: 2,
			OnStoreDown: timer.StoreDownSkip,
			Run:         job(30*time.Millisecond, 60*time.Millisecond)})
	for range 3 {
		f.trigger(h, "finishes")
	}
	f.trigger(h, "must be told")
	f.until("all run", func() bool {
		return len(f.status(h, "finishes").Running) == 3 && len(f.status(h, "must be told").Running) == 1 &&
			f.watch.runs("starts", all) >= 5
	})
	at := time.Now()
	h.Cancel()
	f.until("draining begins", func() bool { return h.Ready() != nil })
	open()
	receive(t, "Run returns", h.done)
	if h.err != nil {
		t.Errorf("Run returned %v", h.err)
	}
	for _, name := range []string{"finishes", "must be told", "starts"} {
		if f.watch.now(name) != nil {
			t.Errorf("Run has returned and a run of %q goes on", name)
		}
	}
	take := f.takeNow
	if n := h.Link.failed(at); n > 0 {
		t.Logf("%d calls failed on this busy machine: what may still be held is left to expire", n)
		take = f.take
	}
	take("timer:finishes", 3, 3)
	take("timer:must be told", 1, 1)
	take("timer:starts", 2, 2)
	if st := h.Status(); st.Phase != timer.PhaseStopped || slices.ContainsFunc(st.Timers,
		func(t timer.TimerStatus) bool { return len(t.Running) > 0 }) {
		t.Errorf("after Run: %+v", st)
	}
	f.watch.check(t)
}

// Fails when finish releases after Run has given up, and when Run's error names no handler.
func stuck(s *suite, t *testing.T) {
	f := s.fleet(t)
	gate, open := f.gate()
	h := f.start(timer.Config{DrainTimeout: 100 * time.Millisecond},
		timer.Timer{Name: "stuck", OnStoreDown: timer.StoreDownSkip,
			Run: func(context.Context) error { <-gate; return nil }},
		timer.Timer{Name: "fine", Schedule: schedule.Every(s.Period), OnStoreDown: timer.StoreDownSkip,
			Run: job(time.Millisecond, time.Millisecond)})
	f.trigger(h, "stuck")
	f.until("both run", func() bool { return f.watch.now("stuck") != nil && f.watch.runs("fine", all) > 0 })
	began := time.Now()
	h.Cancel()
	receive(t, "Run returns", h.done)
	if took, most := time.Since(began),
		100*time.Millisecond+timer.CancelGrace+3*f.storeTimeout()+f.late(began); took > most {
		t.Errorf("Run returned after %v, want at most %v", took, most)
	}
	if err, ok := errors.AsType[*timer.StuckError](h.err); !ok || !slices.Equal(err.Timers, []string{"stuck"}) {
		t.Errorf("Run returned %v, want a StuckError that names stuck", h.err)
	}
	lease := h.Link.last("timer:stuck", driver.AnySlot)
	open()
	f.until("the handler has returned", func() bool { return f.status(h, "stuck").Last != nil })
	f.take("timer:stuck", 1, 1)
	if took := time.Since(lease.sent); took < s.TTL {
		t.Errorf("its slot was free %v after its last renewal, before the TTL of %v was over", took, s.TTL)
	}
	if h.Link.gaveBack(lease.Token) {
		t.Error("its slot was released though its handler had not returned")
	}
	f.watch.check(t)
}
