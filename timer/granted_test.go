package timer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A store answers after 200 ms, one of two hosts is constantly restarted gracefully, and each of
// 4,000 ticks runs. If the store grants a tick after the host began to drain, the host still runs
// it, because no other host can claim it.
//
// Fails when acquirer.decide gives up a claimed tick because the host drains.
func TestGracefulRestartsLoseNoTick(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const timers, seconds = 20, 200
		f := newFleet(t)
		list := make([]timer.Timer, timers)
		for i := range list {
			list[i] = timer.Timer{Name: fmt.Sprint("t", i), Schedule: schedule.Every(time.Second).Offset(0),
				OnStoreDown: timer.StoreDownSkip, Run: f.handler(0)}
		}
		start := func() *host {
			h := f.start(timer.Config{}, list...)
			h.Link.Inject(dlocktest.Slow(200*time.Millisecond), dlocktest.OpAcquire)
			return h
		}
		start()
		from, drained := time.Now().Truncate(time.Second).Add(time.Second), 0
		to := from.Add(seconds * time.Second)
		for pause := 1100 * time.Millisecond; time.Now().Before(to); pause += 37 * time.Millisecond {
			h := start()
			time.Sleep(pause % (1400 * time.Millisecond))
			h.Stopped(t)
			_, skipped := h.Accounted(t)
			drained += int(skipped[timer.ReasonDraining])
		}
		time.Sleep(time.Second)
		lost := 0
		for i := range timers {
			for tick := from; tick.Before(to); tick = tick.Add(time.Second) {
				if f.watch.startsOf(list[i].Name, tick.UTC()) == 0 {
					lost++
				}
			}
		}
		if lost > 0 {
			t.Errorf("%d of %d ticks did not run, %d were given up by hosts that ended", lost, timers*seconds, drained)
		}
		f.Stop()
	})
}

// A run that starts while its host drains is treated like a run that was in progress when the drain
// began: it has DrainTimeout, and then its context ends. After DrainTimeout no run starts, because
// its context would already have ended.
//
// Fails when acquirer.decide gives up a claimed tick because the host drains, or when the call to
// the store outlives DrainTimeout.
func TestRunThatStartsWhileDraining(t *testing.T) {
	for _, c := range []struct {
		drain time.Duration
		runs  int
	}{{10 * time.Second, 1}, {100 * time.Millisecond, 0}} {
		t.Run(c.drain.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				var mu sync.Mutex
				var causes []error
				h := f.start(timer.Config{DrainTimeout: c.drain}, timer.Timer{Name: "a",
					Schedule: once(time.Now().Add(time.Second)),
					Run: func(ctx context.Context) error {
						before := context.Cause(ctx)
						<-ctx.Done()
						mu.Lock()
						defer mu.Unlock()
						causes = append(causes, before, context.Cause(ctx))
						return nil
					}})
				h.Link.Inject(dlocktest.Slow(500*time.Millisecond), dlocktest.OpAcquire)
				time.Sleep(1100 * time.Millisecond)
				if took := h.Stopped(t); took < min(c.drain, 400*time.Millisecond) || took > c.drain+2*time.Second {
					t.Errorf("Run returned after %v", took)
				}
				if len(causes) != 2*c.runs || c.runs == 1 && (causes[0] != nil || causes[1] != timer.ErrDraining) {
					t.Errorf("contexts of the runs: %v", causes)
				}
				if started, skipped := h.Accounted(t); started != uint64(c.runs) || len(skipped) != 1-c.runs {
					t.Errorf("%d started, skipped %v", started, skipped)
				}
			})
		})
	}
}
