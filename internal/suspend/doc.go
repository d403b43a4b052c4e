// Package suspend tells for how long the machine was asleep: Go's monotonic clock stops while a VM
// or a laptop sleeps, and the leases that it holds go on.
package suspend
