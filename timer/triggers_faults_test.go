package timer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/control"
)

// A valueStore can make writes of values fail. It calls before with the text of each write, and
// after with the answer. The caller gets the error that each returns.
type valueStore struct {
	*memlock.Store
	before func(ctx context.Context, text string) error
	after  func(ctx context.Context, err error) error
	writes atomic.Int64
}

func (s *valueStore) Update(ctx context.Context, name string, update driver.Update) error {
	if update.Value == nil {
		return s.Store.Update(ctx, name, update)
	}
	s.writes.Add(1)
	if s.before != nil {
		if err := s.before(ctx, update.Value.Text); err != nil {
			return err
		}
	}
	err := s.Store.Update(ctx, name, update)
	if s.after != nil {
		return s.after(ctx, err)
	}
	return err
}

// hang returns when ctx ends.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func quietControl(store dlock.DistributedLock) *control.Control {
	ctl := control.New(control.Config{Store: store, Logger: textLogger(&testkit.Log{})})
	return ctl
}

// A Control that gets no answer does not add a trigger twice, because a host may have run it in the
// meantime. It returns nil only if the trigger will run, and an error if that is not known.
//
// Fails when a trigger is pushed again because it is no longer in the queue.
func TestControlTriggerWhoseAnswerIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var ran payloads
		ctl := quietControl(f.store)
		order(t, ctl, "a", "left by a host that died", 0)
		timer.TakeTrigger(t, f.store, "a", dlock.Holder{Host: "web-7", PID: 1, ID: "x"})
		f.start(timer.Config{}, ran.timer("a", 0)) // after the first trigger, it reads with each heartbeat
		time.Sleep(time.Minute)
		var lose atomic.Bool
		lossy := quietControl(&valueStore{Store: f.store, after: func(ctx context.Context, err error) error {
			if lose.Swap(false) {
				ctx, cancel := context.WithTimeout(ctx, dlock.DefaultStoreTimeout)
				defer cancel()
				return hang(ctx)
			}
			return err
		}})
		var accepted, unknown []string
		for i := range 40 {
			payload := fmt.Sprint(i)
			lose.Store(true)
			err := lossy.Trigger(t.Context(), "a", control.TriggerOptions{Payload: []byte(payload), By: ann})
			if err == nil {
				accepted = append(accepted, payload)
			} else if unknown = append(unknown, payload); errors.Is(err, driver.ErrChanged) {
				t.Error(err)
			}
			time.Sleep(time.Duration(i%7+1) * time.Second)
		}
		time.Sleep(time.Minute)
		got := ran.got()
		slices.Sort(got)
		if len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Errorf("a trigger ran twice: %q", got)
		}
		for _, payload := range accepted {
			if !slices.Contains(got, payload) {
				t.Errorf("%s was accepted and did not run", payload)
			}
		}
		if len(accepted) == 0 || len(unknown) == 0 {
			t.Errorf("%d accepted, %d unknown: the test proves nothing", len(accepted), len(unknown))
		}
		f.Stop()
	})
}

// A program that runs no timers makes its only call right after its start, so the call has to
// connect first.
//
// Fails when a standalone Control gives up after the StoreTimeout of a scheduler.
func TestControlWaitsForAConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		store := &valueStore{Store: f.store}
		store.before = func(ctx context.Context, _ string) error {
			select {
			case <-time.After(4 * dlock.DefaultStoreTimeout):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		order(t, quietControl(store), "a", "x", 0)
		f.Stop()
	})
}

// While the store's writes hang, Control.Trigger returns within a few timeouts.
//
// Fails when it retries without end.
func TestControlTriggerEndsWhileWritesHang(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		store := &valueStore{Store: f.store}
		ctl := quietControl(store)
		order(t, ctl, "a", "x", 0)
		store.before = func(ctx context.Context, _ string) error { return hang(ctx) }
		store.writes.Store(0)
		began := time.Now()
		err := ctl.Trigger(t.Context(), "a", control.TriggerOptions{By: ann})
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 15*time.Second {
			t.Errorf("%v after %v and %d writes", err, took, store.writes.Load())
		}
		pending(t, ctl, "a", 1)
	})
}

// A Control's trigger of a timer with a fixed delay does not wait for the delay. It runs within a
// heartbeat, and the delay counts from its end.
//
// Fails when a trigger is delayed like a tick.
func TestControlTriggerDuringAFixedDelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var s spans
		f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.After(2 * time.Hour),
			Run: s.always(time.Minute)})
		time.Sleep(10 * time.Minute)
		order(t, quietControl(f.store), "a", "x", 0)
		time.Sleep(2 * time.Minute)
		if n := len(s.all()); n != 2 {
			t.Fatalf("%d runs, want the first one and the triggered one", n)
		}
		time.Sleep(2*time.Hour - 2*time.Minute)
		if n := len(s.all()); n != 2 {
			t.Errorf("%d runs before the end of the delay after the triggered run", n)
		}
		time.Sleep(5 * time.Minute)
		if n := len(s.all()); n != 3 {
			t.Errorf("%d runs, want one more after the delay", n)
		}
		f.ended()
	})
}

// A host that could not return a trigger to the queue does so as soon as the store allows it, even
// if it no longer has room, or no longer has the timer. Then another host runs the trigger.
//
// Fails when the host keeps the trigger until it expires.
func TestControlTriggerIsGivenBackLater(t *testing.T) {
	for name, remove := range map[string]bool{"it has no room": false, "it has not the timer": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				var ran payloads
				work := ran.timer("a", time.Hour)
				work.MaxConcurrency, work.MaxPerHost = 2, 1
				var cut atomic.Bool
				a := f.startOn(&valueStore{Store: f.store, before: func(_ context.Context, text string) error {
					if cut.Load() && !strings.Contains(text, "taker") {
						return errors.New("connection reset")
					}
					return nil
				}}, timer.Config{}, work)
				ctl := quietControl(f.store)
				var held []*dlock.Lease
				for range 2 {
					lease, err := otherSession(t, f.store).Semaphore("timer:a", 2).TryAcquire(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					held = append(held, lease)
				}
				cut.Store(true)
				order(t, ctl, "a", "x", 0)
				time.Sleep(20 * time.Second)
				if list := pending(t, ctl, "a", 1); list[0].TakenBy == (dlock.Holder{}) {
					t.Fatal("no host has taken it: the test proves nothing")
				}
				for _, lease := range held {
					_ = lease.Release(t.Context())
				}
				want := []string{"x"}
				if remove {
					if err := a.Remove(t.Context(), "a"); err != nil {
						t.Fatal(err)
					}
				} else {
					trigger(t, a, "a")
					want = []string{"", "x"}
				}
				cut.Store(false)
				f.start(timer.Config{}, work)
				time.Sleep(2 * time.Minute)
				ran.are(t, "another host has room", want...)
				f.Stop()
			})
		})
	}
}

// If the store has no queue for a trigger, for example because an older Control made it, the
// trigger costs one read.
//
// Fails when a host reads the queue with each heartbeat for as long as it runs.
func TestTriggerWithoutAQueueCostsOneLook(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var ran payloads
		h := f.start(timer.Config{}, ran.timer("a", 0))
		time.Sleep(time.Minute)
		for _, name := range []string{"timer:a", "tickslot:hosts"} {
			update := driver.Update{}
			if name == "timer:a" {
				update.Trigger = &ann
			}
			if err := f.store.Update(t.Context(), name, update); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		before := h.Link.Calls(dlocktest.OpControl)
		time.Sleep(time.Hour)
		if n := h.Link.Calls(dlocktest.OpControl) - before; n != 0 {
			t.Errorf("%d calls in an hour although nothing is pending", n)
		}
		order(t, h.Control(), "a", "x", 0)
		time.Sleep(time.Minute)
		ran.are(t, "later", "x")
		f.Stop()
	})
}

// The expiry of a trigger is reported, even if the host that removes it gets no answer.
func TestControlTriggerExpiresAndTheAnswerIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var ran payloads
		var lose atomic.Bool
		log := &testkit.Log{}
		h := f.startOn(&valueStore{Store: f.store, after: func(ctx context.Context, err error) error {
			if lose.Swap(false) {
				return hang(ctx)
			}
			return err
		}}, timer.Config{Logger: textLogger(log)}, ran.timer("a", 0))
		ctl := quietControl(f.store)
		if err := ctl.Pause(t.Context(), "a", time.Now().Add(24*time.Hour), ann); err != nil {
			t.Fatal(err)
		}
		order(t, ctl, "a", "1", time.Minute)
		lose.Store(true)
		time.Sleep(2 * time.Minute)
		pending(t, ctl, "a", 0)
		status := must(h.Status().Timer("a"))
		if n := strings.Count(log.String(), "a trigger has expired"); n != 1 || status.ExpiredTriggers != 1 {
			t.Errorf("%d lines, Status counts %d", n, status.ExpiredTriggers)
		}
		f.Stop()
	})
}

// An unreadable store answers no reads of values while it is down.
type unreadable struct {
	valueStore
	down atomic.Bool
}

func (s *unreadable) Value(ctx context.Context, name string) (driver.ValueState, error) {
	if s.down.Load() {
		return driver.ValueState{}, errors.New("connection reset")
	}
	return s.valueStore.Value(ctx, name)
}

// A Control that finds an expired trigger reports it once, even if the write that removes it gets
// no answer and the Control cannot find out whether the write was made. The store may then be down,
// or a host may already have run the new trigger. No other host would find the expired trigger.
//
// Fails when the expired triggers are dropped because of the error.
func TestControlReportsExpiredTriggersAfterAnError(t *testing.T) {
	for name, run := range map[string]bool{"the store is down": false, "its own trigger has run": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				store := &unreadable{valueStore: valueStore{Store: f.store}}
				log := &testkit.Log{}
				ctl := control.New(control.Config{Store: store, Logger: textLogger(log)})
				order(t, ctl, "a", "1", time.Minute)
				time.Sleep(2 * time.Minute)
				lost := errors.New("connection reset")
				store.after = func(_ context.Context, err error) error {
					store.after = nil
					store.down.Store(!run)
					if run && err == nil {
						const queue = "tickslot:trigger:a"
						var v driver.ValueState
						if v, err = f.store.Value(t.Context(), queue); err == nil {
							err = f.store.Update(t.Context(), queue, driver.Update{Value: &driver.Value{
								Text: `{"ran":true}`, Version: v.Version}})
						}
					}
					return errors.Join(err, lost)
				}
				if err := ctl.Trigger(t.Context(), "a", control.TriggerOptions{By: ann}); err == nil {
					t.Error("the answer was not lost: the test proves nothing")
				}
				store.down.Store(false)
				left, err := ctl.Triggers(t.Context(), "a")
				if err != nil || len(left) > 1 || len(left) == 1 && left[0].ExpiresIn == 0 {
					t.Errorf("it was not removed, so the test proves nothing: %+v, %v", left, err)
				}
				if n := strings.Count(log.String(), "a trigger has expired"); n != 1 {
					t.Errorf("%d lines: %s", n, log)
				}
			})
		})
	}
}

// If the first write of a Control fails and the second succeeds, the Control reports each trigger
// that either of them found expired once.
//
// Fails when each attempt reports separately.
func TestControlReportsExpiredTriggersOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &valueStore{Store: memlock.New()}
		log := &testkit.Log{}
		ctl := control.New(control.Config{Store: store, Logger: textLogger(log)})
		order(t, ctl, "a", "1", time.Minute)
		time.Sleep(2 * time.Minute)
		store.before = func(context.Context, string) error {
			store.before = nil
			return errors.New("connection reset")
		}
		order(t, ctl, "a", "2", time.Minute)
		pending(t, ctl, "a", 1)
		if n := strings.Count(log.String(), "a trigger has expired"); n != 1 || store.before != nil {
			t.Errorf("%d lines: %s", n, log)
		}
	})
}

// If the store has no slot for a trigger, or a limit is full, one host of the fleet tries the
// trigger from time to time: after half the time that it has waited, and within a minute. Each host
// counts it as refused once. When a run ends, its host takes the trigger immediately.
//
// Fails when each host takes it and returns it with each heartbeat.
func TestControlTriggerThatWaitsForASlotCostsLittle(t *testing.T) {
	for name, limits := range map[string][]string{"slots": nil, "limit": {"l"}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				store := &valueStore{Store: f.store}
				config := timer.Config{Limits: []timer.Limit{{Name: "l", Size: 1}}, Registerer: newRegistry()}
				var ran payloads
				work := ran.timer("a", time.Hour)
				work.Limits = limits
				if limits != nil {
					work.MaxConcurrency, work.MaxPerHost = 20, 1
				}
				holds := f.startOn(store, config, work)
				trigger(t, holds, "a")
				var waiting []*host
				reg := newRegistry()
				for i := range 8 {
					config.Registerer = nil
					if i == 0 {
						config.Registerer = reg
					}
					waiting = append(waiting, f.startOn(store, config, work))
				}
				time.Sleep(time.Minute)
				order(t, quietControl(f.store), "a", strings.Repeat("x", 1000), 2*time.Hour)
				time.Sleep(5 * time.Minute)
				store.writes.Store(0)
				before := waiting[0].Link.Calls(dlocktest.OpControl)
				time.Sleep(10 * time.Minute)
				if n := store.writes.Load(); n == 0 || n > 22 {
					t.Errorf("%d writes in 10 minutes", n)
				}
				if n := waiting[0].Link.Calls(dlocktest.OpControl) - before; n > 200 {
					t.Errorf("%d calls of a host in 10 minutes", n)
				}
				for result, n := range values(t, reg) {
					if strings.HasPrefix(result, "tickslot_triggers_total refused") && n > 1 {
						t.Errorf("%s: %v", result, n)
					}
				}
				time.Sleep(44*time.Minute + 10*time.Second) // ten seconds after the end of the first run
				ran.are(t, "a slot is free", "", strings.Repeat("x", 1000))
				f.Stop()
			})
		})
	}
}

// If a timer is LocalOnly on a host, the host's Control refuses to trigger it, because no host
// would run it. Scheduler.Trigger does run it.
func TestControlTriggerOfALocalOnlyTimer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{}, timer.Timer{Name: "a", LocalOnly: true, Run: f.handler(0)})
		err := h.Control().Trigger(t.Context(), "a", control.TriggerOptions{By: ann})
		if text := fmt.Sprint(err); !strings.Contains(text, "not triggered") || !strings.Contains(text, "LocalOnly") {
			t.Error(err)
		}
		pending(t, h.Control(), "a", 0)
		trigger(t, h, "a")
		f.Stop()
	})
}
