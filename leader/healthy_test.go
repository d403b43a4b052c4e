package leader_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/leader"
)

// A host whose function always fails is healthy if another host leads most of the time, however
// long it backs off.
//
// Fails when the time for which a host does not ask who leads counts against it.
func TestFailingHostBesideAGoodOneIsHealthy(t *testing.T) {
	for _, every := range []time.Duration{interval, 10 * time.Minute} {
		t.Run(every.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				fails := func(context.Context, *leader.Term) error { return errors.New("no") }
				returns := func(ctx context.Context, _ *leader.Term) error { // so that the bad host leads, too
					select {
					case <-time.After(max(5*leader.MaxBackOff, 3*every)):
					case <-ctx.Done():
					}
					return nil
				}
				hosts := map[string]*host{
					"bad":  f.start(leader.Role{RetryInterval: every, Run: fails}),
					"good": f.start(leader.Role{RetryInterval: every, Run: returns}),
				}
				for range 6 * 60 * 60 {
					time.Sleep(time.Second)
					for name, h := range hosts {
						if err := h.Healthy(); err != nil {
							t.Fatalf("%v: the %s host: %v, %+v", time.Now(), name, err, h.Status())
						}
					}
				}
				if n := hosts["bad"].Status().Terms[leader.OutcomeFailed]; n < 2 {
					t.Errorf("the bad host has led %d times", n)
				}
				f.end()
			})
		})
	}
}

// If a host takes part alone, and its function always fails, it becomes unhealthy and stays so,
// even while it tries once more. It is healthy again when the function has run for a long time.
//
// Fails when each term that fails immediately counts as a leader.
func TestHostThatFailsAloneIsNotHealthy(t *testing.T) {
	for _, every := range []time.Duration{interval, 10 * time.Minute} {
		for _, takes := range []time.Duration{0, 10 * time.Second} {
			t.Run(fmt.Sprint(every, " ", takes), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					f := newFleet(t)
					var well atomic.Bool
					work := func(ctx context.Context, _ *leader.Term) error {
						if well.Load() {
							<-ctx.Done()
							return nil
						}
						time.Sleep(takes)
						return errors.New("no printer")
					}
					h := f.start(leader.Role{RetryInterval: every, Run: work})
					time.Sleep(every + time.Minute/2)
					if err := h.Healthy(); err != nil {
						t.Errorf("after a failure or two: %v", err)
					}
					time.Sleep(2*time.Minute + 10*every)
					for range 60 * 60 {
						time.Sleep(time.Second)
						err := h.Healthy()
						if err == nil || !strings.Contains(err.Error(), "times in a row") {
							t.Fatalf("%v, %+v", err, h.Status())
						}
					}
					well.Store(true)
					time.Sleep(2*max(every, leader.MaxBackOff) + leader.MaxBackOff)
					if err := h.Healthy(); err != nil {
						t.Errorf("the function goes on: %v", err)
					}
					f.end()
				})
			})
		}
	}
}

// A host that asks again after it has backed off gets the usual time for an answer.
//
// Fails when the store's silence counts from the end of the term.
func TestStoreThatIsDownAfterABackOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(leader.Role{RetryInterval: 10 * time.Minute, Run: func(context.Context, *leader.Term) error {
			return errors.New("no")
		}})
		time.Sleep(time.Second)
		h.link.Inject(dlocktest.Error(errDown))
		timeout := 3*h.session.TTL() + 10*time.Minute
		asks := h.Status().RetryAt
		time.Sleep(time.Until(asks) + timeout - time.Second)
		if err := h.Healthy(); err != nil || h.Status().State != leader.StateStoreDown {
			t.Errorf("%v, %+v", err, h.Status())
		}
		time.Sleep(2 * time.Second)
		if err := h.Healthy(); !errors.Is(err, errDown) {
			t.Errorf("%v, %+v", err, h.Status())
		}
		f.end()
	})
}
