package timertest

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/timer"
)

// One error contains the faults of the settings, of the store and of every timer, without a store
// call. (Package timer tests that each fault of a timer is found.)
//
// Fails when New returns at the first fault, when it does not use the store's Checker or its
// longest TTL, and when it calls the store.
func registration(s *suite, t *testing.T) {
	nop := func(context.Context) error { return nil }
	var wants []string
	var l *link
	if s.Misconfigured != nil {
		store, says := s.Misconfigured(t)
		l, wants = newLink(store), says
	} else {
		l, wants = newLink(faulty{s.New(t).Open(t)}), []string{"faulty: found by the checker"}
	}
	ttl := min(l.MaxTTL(), driver.MaxTTL) + time.Second
	if l.MaxTTL() < driver.MaxTTL {
		wants = append(wants, "this store takes at most")
	} else {
		wants = append(wants, "must be at most "+driver.MaxTTL.String())
	}
	made, err := timer.New(
		timer.Config{Store: l, TTL: ttl, StoreTimeout: ttl, DrainTimeout: -1, Logger: slog.New(slog.DiscardHandler)},
		timer.Timer{Name: "no-run"},
		timer.Timer{Name: "negative", MaxConcurrency: -2, MaxRunTime: -2, Run: nop},
		timer.Timer{Name: "twice", Run: nop}, timer.Timer{Name: "twice", Run: nop},
	)
	if err == nil || made != nil {
		t.Fatalf("New returned %v, %v", made, err)
	}
	for _, want := range append(wants,
		"DrainTimeout: -1ns is negative", "StoreTimeout",
		`timer "no-run": Run: it is nil`,
		`timer "negative": MaxConcurrency: -2 is negative`, `timer "negative": MaxRunTime: -2ns is negative`,
		`timer "twice": Name: two timers have it`,
	) {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing: %s", want)
		}
	}
	if calls, _ := l.counts(); calls > 0 {
		t.Errorf("New called the store %d times", calls)
	}
	if t.Failed() {
		t.Logf("all of it:\n%v", err)
	}

	// Either all timers are registered or none, and the store accepts the names of valid ones.
	f := s.fleet(t)
	h := f.start(timer.Config{}, timer.Timer{Name: "a", OnStoreDown: timer.StoreDownSkip, Run: nop})
	here := func() *host { return h }
	late := timer.Timer{Name: `late {"'; %s` + "\\\U0001f570*", OnStoreDown: timer.StoreDownSkip, Run: nop}
	if err := h.Register(f.watch.before(here, late), timer.Timer{Name: "bad"}); err == nil {
		t.Error("a timer without a handler was registered")
	}
	if n := len(h.Status().Timers); n != 1 {
		t.Errorf("%d timers, want the one that there was", n)
	}
	if err := h.Register(f.watch.before(here, late)); err != nil {
		t.Error(err)
	}
	f.trigger(h, late.Name)
	f.until("it runs", func() bool { return f.watch.runs(late.Name, all) == 1 })
	f.stop()
}

// A faulty store reports faults in its settings.
type faulty struct{ dlock.DistributedLock }

func (faulty) Check() error { return errors.New("faulty: found by the checker") }
