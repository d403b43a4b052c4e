// Package suspend measures how long the machine was suspended. Go's monotonic clock stops while a
// VM or a laptop sleeps, but leases continue to expire.
package suspend
