package timer_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/control"
)

// A change to a timer that no host is known to run is made, and logged as a warning, because the
// name may be misspelled. A host is known to run a timer if it has registered the timer, has
// claimed a tick or a trigger, or holds a slot.
//
// Fails when a change to an unknown timer is refused or not logged, when a change to a known timer
// is logged, or when claimed triggers or held slots are ignored.
func TestControlWarnsOfTimersThatNobodyRuns(t *testing.T) {
	const unknown = "has not run yet, or that no host has"
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		log := &testkit.Log{}
		ctl := control.New(control.Config{Store: f.store, Logger: textLogger(log)})
		unlimited := timer.Timer{Name: "unlimited", Schedule: schedule.Every(time.Minute), MaxPerTick: timer.NoLimit,
			MaxConcurrency: timer.NoLimit, Run: f.handler(0)}
		holds := timer.Timer{Name: "holds", MaxConcurrency: 2, Run: f.handler(time.Hour)}
		hostLog := &testkit.Log{}
		h := f.start(timer.Config{Logger: textLogger(hostLog)}, unlimited, holds,
			timer.Timer{Name: "ticks", Schedule: schedule.Every(time.Minute), Run: f.handler(0)},
			timer.Timer{Name: "triggered", Run: f.handler(0)},
			timer.Timer{Name: "new", Run: f.handler(0)})
		if err := h.Trigger(t.Context(), "holds"); err != nil {
			t.Fatal(err)
		}
		if err := h.Control().Trigger(t.Context(), "triggered", control.TriggerOptions{By: ann}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		for name, known := range map[string]bool{"ticks": true, "triggered": true, "holds": true, "new": false,
			"unlimited": false, "ticsk": false} {
			if got, err := ctl.Known(t.Context(), name); err != nil || got != known {
				t.Errorf("%s: known %v, %v; want %v", name, got, err, known)
			}
			if got, err := h.Control().Known(t.Context(), name); err != nil || got != (name != "ticsk") {
				t.Errorf("%s, on the host: known %v, %v", name, got, err)
			}
			for _, c := range []struct {
				what   string
				change func(c *control.Control) error
			}{
				{"pause", func(c *control.Control) error {
					return c.Pause(t.Context(), name, time.Now().Add(time.Hour), ann)
				}},
				{"resume", func(c *control.Control) error { return c.Resume(t.Context(), name, ann) }},
				{"limit", func(c *control.Control) error { return c.SetMaxConcurrency(t.Context(), name, 3, ann) }},
				{"trigger", func(c *control.Control) error { // last, because a host that takes it is then known
					return c.Trigger(t.Context(), name, control.TriggerOptions{By: ann})
				}},
			} {
				what, change := c.what, c.change
				before, beforeHost := log.String(), hostLog.String()
				if err := change(ctl); err != nil {
					t.Errorf("%s of %s: %v", what, name, err)
				}
				warned := strings.Contains(strings.TrimPrefix(log.String(), before), unknown)
				if warned == known {
					t.Errorf("%s of %s: warned %v", what, name, warned)
				}
				if err := change(h.Control()); err != nil {
					t.Errorf("%s of %s on the host: %v", what, name, err)
				}
				warned = strings.Contains(strings.TrimPrefix(hostLog.String(), beforeHost), unknown)
				if warned != (name == "ticsk") {
					t.Errorf("%s of %s on the host: warned %v", what, name, warned)
				}
			}
		}
		if state, err := ctl.Inspect(t.Context(), "ticsk"); err != nil || state.Limit == nil ||
			state.Limit.Slots != 3 {
			t.Errorf("the change of a timer that is deployed later was not made: %+v, %v", state, err)
		}
		time.Sleep(2 * time.Hour)
		f.Stop()
	})
}

// If the store cannot tell whether the timer is known, the change does not fail, and no warning is
// logged.
//
// Fails when the error of Known is returned, or treated as "not known".
func TestControlDoesNotNeedToKnow(t *testing.T) {
	log := &testkit.Log{}
	c := control.New(control.Config{Store: unlisted{}, Logger: textLogger(log)})
	if err := c.Pause(t.Context(), "a", time.Now().Add(time.Hour), ann); err != nil {
		t.Error(err)
	}
	if _, err := c.Known(t.Context(), "a"); err == nil {
		t.Error("it is known although the store cannot be inspected")
	}
	if text := log.String(); text != "" {
		t.Error(text)
	}
}

// unlisted is a store that keeps overrides but does not list leases.
type unlisted struct{ panickingControl }

func (unlisted) Update(context.Context, string, driver.Update) error { return nil }
