// Package nemesis starts the processes of a torture, draws faults of processes, networks and
// servers from a seed, and performs them. The programs fleet, durable and outbox define what their
// processes do and which promises are checked.
package nemesis
