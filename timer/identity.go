package timer

import "github.com/tickslot/tickslot/schedule"

// scheduleID tells a schedule from others that a timer of the same name had, or has on other hosts.
// It is the same in every process with the same schedule, and goes to the store with every claim: a
// tick that the store knows of says nothing about what another schedule missed. Delay is no part of
// it: they delay ticks, which stay the same.
func scheduleID(s schedule.Schedule) int64 {
	if s == nil {
		return 0
	}
	return int64(hashed("schedule", schedule.Identity(s)))
}
