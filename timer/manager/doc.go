// Package manager keeps the timers of a timer.Scheduler in sync with a set that changes at run
// time, such as a table with a row per tenant.
package manager
