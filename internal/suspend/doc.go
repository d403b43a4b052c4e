// Package suspend measures how long the machine was asleep: Go's monotonic clock stops while a VM
// or a laptop sleeps, but its leases keep running out.
package suspend
