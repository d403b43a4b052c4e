// Package cluster is a registry of who is there and who holds what: hosts, leases, leaders, what
// happened, and the last runs of timers.
package cluster
