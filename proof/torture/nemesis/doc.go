// Package nemesis starts the processes of a torture, draws faults in processes, networks and
// servers from a seed, and carries them out. The programs fleet, durable and outbox decide what
// their processes do, and which promises are checked.
package nemesis
