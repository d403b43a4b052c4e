// Package simulate runs timers on many hosts for weeks of virtual time: the real schedulers on one
// memory store, inside a testing/synctest bubble. It attacks I1 to I4, I6 and I9. Each host has its
// own network that delays, loses and repeats messages, with faults drawn from a seed. The
// invariants are checked whenever a run starts, ends or loses its lease, whenever the store grants
// a slot or a lease in it ends, and once a minute.
//
// The seed determines the schedule of the faults, but not every detail: tokens and jitter are
// random, and the order of goroutines varies. The package does not simulate clocks that differ, a
// process that is suspended as a whole (only its heartbeats), or a real store.
//
// The package contains only tests. make proof WHAT=simulate runs the long form.
package simulate
