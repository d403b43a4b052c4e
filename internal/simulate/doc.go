// Package simulate lets many hosts run timers for weeks of virtual time: the real schedulers on one memory store, inside a
// testing/synctest bubble, each host behind a network of its own that delays, loses and repeats, with faults drawn from a
// seed. What must always hold is checked whenever a run starts, ends or loses its lease, whenever the store grants a
// slot or a lease in it ends, and once a minute.
//
// The schedule of the faults follows from the seed. What the faults meet does not to the last detail: tokens and jitter are
// random, and goroutines take turns as they like. What it does not simulate: clocks that differ, a process that stands
// still as a whole (its heartbeats can), and a real store.
//
// All of it is in the tests; make simulate runs the long one.
package simulate
