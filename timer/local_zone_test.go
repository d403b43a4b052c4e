package timer_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A timer may use the zone of its host if no other host has to agree on its ticks: without a store,
// with LocalOnly, or if each host runs each tick.
//
// Fails when the zone is refused or allowed everywhere, or when blackouts are not checked.
func TestLocalZone(t *testing.T) {
	run := func(context.Context) error { return nil }
	night := schedule.DailyWindow("22:00", "06:00", "Local")
	local := schedule.Daily("02:00", "Local")
	for name, c := range map[string]struct {
		lock   dlock.DistributedLock
		config timer.Config
		timer  timer.Timer
		faults []string
	}{
		"one process": {nil, timer.Config{Blackouts: []schedule.Blackout{night}},
			timer.Timer{Schedule: local, Blackouts: []schedule.Blackout{night}}, nil},
		"a fleet": {memlock.New(), timer.Config{Blackouts: []schedule.Blackout{night}},
			timer.Timer{Schedule: local, Blackouts: []schedule.Blackout{schedule.Weekdays("Local", time.Sunday)}},
			[]string{"Config.Blackouts[0]: daily 22:00", `timer "a": Schedule: daily at 02:00`,
				`timer "a": Blackouts[0]: Sunday in Local`}},
		"LocalOnly": {memlock.New(), timer.Config{},
			timer.Timer{Schedule: local, Blackouts: []schedule.Blackout{night}, LocalOnly: true}, nil},
		"each host each tick": {memlock.New(), timer.Config{},
			timer.Timer{Schedule: local, MaxPerTick: timer.NoLimit, Blackouts: []schedule.Blackout{night}}, nil},
	} {
		c.config.Store, c.timer.Name, c.timer.Run = c.lock, "a", run
		_, err := timer.New(c.config, c.timer)
		if (err != nil) != (c.faults != nil) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, fault := range c.faults {
			if !strings.Contains(err.Error(), fault) {
				t.Errorf("%s: %v; want %q in it", name, err, fault)
			}
		}
		if err != nil && strings.Count(err.Error(), "hosts may differ in their local time") != len(c.faults) {
			t.Errorf("%s: %v; want that hosts may differ %d times", name, err, len(c.faults))
		}
	}
}
