// Package manager keeps the timers of a timer.Scheduler in step with a set that changes at run
// time, such as a table with a row for each tenant.
package manager
