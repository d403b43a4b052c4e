package control_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/timer/control"
)

// The zero Config works. It has no store, so every call returns an error that says so, and none
// panics. With a store, calls are bounded.
//
// Fails when New requires a field.
func TestZeroConfig(t *testing.T) {
	t.Parallel()
	by := driver.Cause{By: "ann"}
	c := control.New(control.Config{})
	for what, err := range map[string]error{
		"Pause":   c.Pause(t.Context(), "a", time.Now().Add(time.Hour), by),
		"Trigger": c.Trigger(t.Context(), "a", control.TriggerOptions{By: by}),
		"Cancel":  c.CancelSlot(t.Context(), "a", 0, by),
	} {
		if err == nil || !strings.Contains(err.Error(), "the store keeps no overrides") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := control.New(control.Config{Store: memlock.New()}).Resume(t.Context(), "a", by); err != nil {
		t.Error(err)
	}
}

// If Local reports that this process runs a timer, Known makes no call to the store. A LocalOnly
// timer gets no trigger, because no host would look for it.
//
// Fails when Local is not called.
func TestLocal(t *testing.T) {
	t.Parallel()
	log := &testkit.Log{}
	by := driver.Cause{By: "ann"}
	c := control.New(control.Config{Store: memlock.New(), Logger: slog.New(slog.NewTextHandler(log, nil)),
		Local: func(timer string) (registered, localOnly bool) { return timer != "elsewhere", timer == "local" }})
	if known, err := c.Known(t.Context(), "mine"); err != nil || !known {
		t.Error(known, err)
	}
	if known, err := c.Known(t.Context(), "elsewhere"); err != nil || known {
		t.Error(known, err)
	}
	err := c.Trigger(t.Context(), "local", control.TriggerOptions{By: by})
	if err == nil || !strings.Contains(err.Error(), "LocalOnly") {
		t.Error(err)
	}
	for _, name := range []string{"mine", "elsewhere"} {
		if err := c.Trigger(t.Context(), name, control.TriggerOptions{By: by}); err != nil {
			t.Error(err)
		}
	}
	if text := log.String(); strings.Contains(text, "mine") || strings.Count(text, "no host has") != 1 {
		t.Error(text)
	}
}
