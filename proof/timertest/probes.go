package timertest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tickslot/tickslot/health"
	"github.com/tickslot/tickslot/timer"
)

// A host that holds nothing makes no store calls on its own, so all calls come from probes. While
// the store hangs and a run is in progress, probes answer at once and as before.
//
// Fails when a probe calls the store (to check whether it answers, or to list leases), and when
// Ready fails because the store does.
func probes(s *suite, t *testing.T) {
	f := s.fleet(t)
	gate, open := f.gate()
	h := f.start(timer.Config{},
		timer.Timer{Name: "a", OnStoreDown: timer.StoreDownSkip, Run: func(context.Context) error { return nil }},
		timer.Timer{Name: "holds", OnStoreDown: timer.StoreDownSkip, Run: hold(gate)})
	pages := health.New(h)
	probe := func() (ready, live int) {
		page := func(path string) int {
			w := httptest.NewRecorder()
			pages.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			return w.Code
		}
		h.Status()
		return page("/readyz?verbose"), page("/livez")
	}
	began := time.Now()
	well := func(when string) {
		t.Helper()
		ready, live := probe()
		if ready == http.StatusOK && live == http.StatusOK {
			return
		}
		if stood := s.late.Since(began); stood < time.Second { // otherwise the scheduler was stalled too
			t.Fatalf("%s: ready %d, live %d, and this process stood still for %v", when, ready, live, stood)
		}
		f.until("the scheduler has caught up", func() bool {
			ready, live := probe()
			return ready == http.StatusOK && live == http.StatusOK
		})
	}
	quiet := func(when string) {
		t.Helper()
		// The host makes other calls, so one round without any is enough: a probe with calls makes
		// them in each round.
		var calls int
		for range 20 {
			before, _ := h.Link.counts()
			for range 200 {
				well(when)
			}
			after, _ := h.Link.counts()
			if calls = int(after - before); calls == 0 {
				return
			}
		}
		t.Fatalf("%s: 200 probes made %d calls to the store, and calls in each of 20 rounds", when, calls)
	}
	f.until("the host has started", func() bool { return h.Started() == nil })
	quiet("before the first call of a timer")
	f.trigger(h, "a")
	f.until("the run is over and the store has been looked at", func() bool {
		return h.Link.audited() && f.status(h, "a").Last != nil && len(f.status(h, "a").Running) == 0
	})
	if at := h.began; f.strained(h, at) {
		t.Log("calls failed on this busy machine: what is to be given back makes calls, too")
	} else {
		quiet("after a run")
	}

	f.trigger(h, "holds")
	f.until("it runs", func() bool { return f.watch.now("holds") != nil })
	f.down()
	f.until("a heartbeat has not been answered", func() bool { return !h.Status().Store.Up })
	for range 200 {
		began := time.Now()
		well("while the store hangs")
		if took := time.Since(began); took > f.storeTimeout()/2+s.late.Since(began) {
			t.Errorf("while the store hangs: a probe took %v", took)
		}
	}
	f.up()
	open()
	f.stop()
	if ready, live := probe(); ready != http.StatusServiceUnavailable || live != http.StatusOK {
		t.Errorf("after Run: ready %d, live %d", ready, live)
	}
}
