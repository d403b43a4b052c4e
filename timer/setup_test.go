package timer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

var (
	errNoTable = fmt.Errorf("%w: relation \"locks\" does not exist: call Migrate", dlock.ErrSetup)
	errBadKey  = fmt.Errorf("%w: key holds a list", dlock.ErrFault)
)

// startNow starts a host whose store has the fault from its first call on.
func (f *virtualFleet) startNow(fault dlocktest.Fault, config timer.Config, timers ...timer.Timer) *host {
	f.t.Helper()
	link := dlocktest.NewFaulty(f.store)
	link.Inject(fault)
	h := f.startOn(link, config, timers...)
	h.Link = link
	return h
}

// A store that answers every call with a fault is not an outage. No host runs a tick without the
// store, whatever OnStoreDown says. Each tick is counted, and the probes report the fault.
//
// Fails when recordDown treats a fault as silence, or when the prober does not report the fault
// that it finds itself.
func TestI11FaultIsNoReasonToRunEverywhere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var runs atomic.Int64
		for range 3 {
			f.startNow(dlocktest.Error(errBadKey), timer.Config{}, timer.Timer{Name: "a",
				Schedule: schedule.Every(time.Second),
				Run:      func(context.Context) error { runs.Add(1); return nil }})
		}
		time.Sleep(30 * time.Second)
		if n := runs.Load(); n != 0 {
			t.Errorf("%d runs of 30 ticks while the store reported a fault", n)
		}
		for _, h := range f.Hosts {
			st := h.Status()
			if st.Timers[0].Skipped[timer.ReasonStoreFault] != 30 || st.Timers[0].Fallback ||
				st.Timers[0].StoreFault == "" {
				t.Errorf("%+v", st.Timers[0])
			}
			if h.StoreReachable() == nil || st.Store.Up || !strings.Contains(st.Store.Err, "holds a list") {
				t.Errorf("the store is reported as up: %+v", st.Store)
			}
			h.Accounted(t)
			if x, err := h.Explain(t.Context(), "a", time.Time{}); err != nil || x.Reason != timer.ReasonStoreFault ||
				!strings.Contains(x.Text, "holds a list") {
				t.Errorf("%+v, %v", x, err)
			}
			h.Link.Heal()
		}
		time.Sleep(30 * time.Second)
		for _, h := range f.Hosts {
			if err := h.Degraded(); err != nil {
				t.Errorf("after the fault was fixed: %v", err)
			}
		}
		if n := runs.Load(); n < 25 {
			t.Errorf("%d runs of 30 ticks after the fault was fixed", n)
		}
		f.Stop()
	})
}

// If a store is set up incorrectly from the start, Run fails immediately, before anything has run.
// Its error has the store's advice on how to fix it.
//
// Fails when Run does not wait for the first answer, or when Trigger then reports only that timers
// are not running.
func TestI11RunFailsAtOnceOnAStoreThatIsNotSetUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		link := dlocktest.NewFaulty(f.store)
		link.Inject(dlocktest.Error(errNoTable))
		var runs atomic.Int64
		work := func(context.Context) error { runs.Add(1); return nil }
		s, err := timer.New(timer.Config{Store: link, Logger: slog.New(slog.DiscardHandler)},
			timer.Timer{Name: "a", Schedule: schedule.Every(time.Millisecond), Run: work},
			timer.Timer{Name: "local", Schedule: schedule.Every(time.Millisecond), LocalOnly: true, Run: work})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		err = s.Run(ctx)
		if !errors.Is(err, dlock.ErrSetup) || !strings.Contains(err.Error(), "call Migrate") {
			t.Errorf("Run returned %v", err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("after %v", took)
		}
		if n := runs.Load(); n != 0 {
			t.Errorf("%d runs", n)
		}
		if s.Ready() == nil || s.Started() == nil {
			t.Error("it is ready, or has started")
		}
		for _, name := range []string{"a", "local"} {
			_, err := s.Trigger(t.Context(), name, timer.TriggerOptions{})
			refused, ok := errors.AsType[*timer.RefusedError](err)
			if !ok || refused.Reason != timer.ReasonStoreSetup || !strings.Contains(err.Error(), "call Migrate") {
				t.Errorf("Trigger does not return the fault: %v", err)
			}
		}
	})
}

// The first answer counts, even if it takes more than one call. If it comes after the first ticks,
// it is handled like any later fault, and the host continues.
//
// Fails when awaitFirstAnswer considers only the first call, or waits forever.
func TestI11FirstAnswerDecides(t *testing.T) {
	for silent, fails := range map[time.Duration]bool{2 * time.Second: true, 10 * time.Second: false} {
		t.Run(fmt.Sprint(silent), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				link := dlocktest.NewFaulty(f.store)
				link.Inject(dlocktest.Error(errors.New("connection refused")))
				s, err := timer.New(timer.Config{Store: link, Logger: slog.New(slog.DiscardHandler)},
					timer.Timer{Name: "a", Schedule: schedule.Every(time.Second), Run: f.handler(0)})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- s.Run(ctx) }()
				time.Sleep(silent)
				started := s.Status().Timers[0].Started
				link.Inject(dlocktest.Error(errNoTable))
				time.Sleep(30 * time.Second)
				if st := s.Status().Timers[0]; fails && st.Ticks > 0 || !fails &&
					(started == 0 || st.Started > started+8 || st.Skipped[timer.ReasonStoreSetup] < 20) {
					t.Errorf("%d runs before, %+v", started, st)
				}
				stop()
				if err := <-done; errors.Is(err, dlock.ErrSetup) != fails {
					t.Errorf("Run returned %v", err)
				}
			})
		})
	}
}

// A permission is revoked while timers run, and granted again. In the meantime ticks are skipped,
// also with StoreDownRunLocal, and runs in progress end when their leases can no longer be trusted.
// Status, metrics and checks report the fault within a TTL, and the log has one line. No restart is
// needed.
//
// Fails when recordDown or runner.lost treats the fault as silence, or when the breaker does not
// receive it.
func TestI11RightRevokedLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log testkit.Log
		registry := newRegistry()
		f := newFleet(t)
		var cause error
		h := f.start(timer.Config{Logger: textLogger(&log), Registerer: registry},
			timer.Timer{Name: "a", Schedule: schedule.Every(time.Second), Run: f.handler(0)},
			timer.Timer{Name: "idle", Run: f.handler(0)},
			timer.Timer{Name: "long", Run: func(ctx context.Context) error {
				err := sleep(ctx, 10*time.Minute)
				cause = context.Cause(ctx)
				return err
			}})
		time.Sleep(10 * time.Second)
		if err := h.Trigger(t.Context(), "long"); err != nil {
			t.Fatal(err)
		}
		h.Link.Inject(dlocktest.Error(errNoTable))
		began := h.Status().Timers[0].Started
		time.Sleep(dlock.DefaultTTL)
		synctest.Wait()
		st := h.Status()
		if err := h.StoreReachable(); err == nil || !strings.Contains(err.Error(), "call Migrate") ||
			strings.Contains(err.Error(), "has not answered") {
			t.Errorf("StoreReachable: %v", err)
		}
		if st.Store.Up || !st.Store.BreakerOpen || !st.Store.NotSetUp ||
			!strings.Contains(st.Store.Err, "call Migrate") {
			t.Errorf("%+v", st.Store)
		}
		if err := testutil.GatherAndCompare(registry, strings.NewReader(`
			# HELP tickslot_store_breaker_open 1 while ticks do not call the store because several calls in a row failed.
			# TYPE tickslot_store_breaker_open gauge
			tickslot_store_breaker_open{store="memory"} 1
			# HELP tickslot_store_up 1 if the store answered the last call and is set up right.
			# TYPE tickslot_store_up gauge
			tickslot_store_up{store="memory"} 0
			`), "tickslot_store_breaker_open", "tickslot_store_up"); err != nil {
			t.Error(err)
		}
		if !errors.Is(cause, dlock.ErrLost) {
			t.Errorf("a run continues although the store refused to renew it: %v", cause)
		}
		for _, name := range []string{"a", "idle"} {
			err := h.Trigger(t.Context(), name)
			if refused, ok := errors.AsType[*timer.RefusedError](err); !ok ||
				refused.Reason != timer.ReasonStoreSetup || !errors.Is(err, dlock.ErrSetup) {
				t.Errorf("Trigger returned %v", err)
			}
		}
		time.Sleep(10 * time.Minute)
		st = h.Status()
		if a := st.Timers[0]; a.Started != began || a.Fallback || a.EffectiveLimit != 1 ||
			a.Skipped[timer.ReasonStoreSetup] < 600 {
			t.Errorf("%+v, want %d started", a, began)
		}
		h.Accounted(t)
		h.Link.Heal()
		testkit.Eventually(t, dlock.DefaultTTL, "the store is well again", func() bool {
			return h.Status().Store.Up &&
				h.StoreReachable() == nil
		})
		began = h.Status().Timers[0].Started
		time.Sleep(10 * time.Second)
		if err := h.Degraded(); err != nil || h.Status().Timers[0].Started != began+10 {
			t.Errorf("after the permission was granted again: %v, %+v", err, h.Status().Timers[0])
		}
		f.Stop()
		// The other line reports the lost lease.
		if n := strings.Count(log.String(), "not set up right"); strings.Count(log.String(), "level=WARN") != 2 ||
			n == 0 {
			t.Errorf("logged:\n%s", log.String())
		}
	})
}

// A store that reported an incorrect setup and then stops answering still counts as set up
// incorrectly. Until it grants again, no run starts without it.
//
// Fails when the breaker forgets the store's report at the next timeout.
func TestI11SetUpWronglyAndSilentInTurns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var degraded atomic.Int64
		h := f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.Every(500 * time.Millisecond),
			Run: func(ctx context.Context) error {
				if r, _ := timer.RunFromContext(ctx); r.Degraded() {
					degraded.Add(1)
				}
				return nil
			}})
		time.Sleep(10 * time.Second)
		h.Link.Inject(dlocktest.Error(errNoTable))
		time.Sleep(1500 * time.Millisecond) // it need not be seen three times
		for range 20 {
			h.Link.Inject(dlocktest.Hang)
			time.Sleep(7 * time.Second)
			h.Link.Inject(dlocktest.Error(errNoTable))
			time.Sleep(3 * time.Second)
		}
		if n := degraded.Load(); n != 0 {
			t.Errorf("%d runs without a store that is set up incorrectly", n)
		}
		h.Link.Heal()
		testkit.Eventually(t, dlock.DefaultTTL, "the store is well again", func() bool { return h.Status().Store.Up })
		h.Link.Inject(dlocktest.Hang)
		time.Sleep(10 * time.Second)
		if degraded.Load() == 0 {
			t.Error("no run without a store that is well and then silent")
		}
		h.Accounted(t)
		f.Stop()
	})
}

// The checks report a fault in the key of the hosts' own list. The fault does not prevent any timer
// from running.
//
// Fails when the fault that the prober finds is ignored, or opens the breaker.
func TestFaultAtTheListOfHosts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		bad := &faultyName{DistributedLock: f.store, name: "tickslot:hosts"}
		h := f.startOn(bad, timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.Every(time.Second),
			Run: f.handler(0)})
		time.Sleep(time.Minute)
		st := h.Status()
		if err := h.StoreReachable(); err == nil || !strings.Contains(err.Error(), "tickslot:hosts") || st.Store.Up ||
			st.Store.BreakerOpen {
			t.Errorf("StoreReachable: %v; %+v", err, st.Store)
		}
		if st.Timers[0].Started != 60 {
			t.Errorf("%+v", st.Timers[0])
		}
		f.Stop()
	})
}
