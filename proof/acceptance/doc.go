// Package acceptance asks the fleet what operators ask: which of my hosts does this run on right
// now? Three processes share a store and a registry, Redis, Postgres or a SQLite file, and answer
// by HTTP, while one of them is killed, stops, or loses its network, or the store is silent. It
// attacks I16, and what the documents say of rights.
//
// All of it is in the tests. They are of real time, with leases of two seconds.
package acceptance
