package timer

import "github.com/tickslot/tickslot/schedule"

// scheduleID identifies a schedule: two schedules that a timer has at different times, or on
// different hosts, have different ids. Every claim sends it to the store, because a tick that was
// claimed under one schedule says nothing about what another one missed. Delay is not part of it:
// it does not change the ticks.
func scheduleID(s schedule.Schedule) int64 {
	if s == nil {
		return 0
	}
	return int64(hashed("schedule", schedule.Identity(s)))
}
