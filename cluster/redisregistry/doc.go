// Package redisregistry keeps the registry of package cluster on Redis: one server, Redis Sentinel
// or one node of a Redis Cluster.
//
// Each call is one Lua script, which takes its time from the server. All keys have one prefix and
// one hash tag, so on a Cluster they are on one node. Stores with other prefixes may be on other
// nodes. docs/redis.md has the keys, the rights that a user needs, and what a call costs.
//
// Memory is bounded: events and the runs of each timer are trimmed as they are written, long texts
// are cut, hosts and leases are deleted by cluster.Store's Sweep, and all keys expire when no host
// has written for 40 days.
//
// It does not promise that anything is still there. A server that restarts without persistence, or
// that evicts keys, forgets the registry; hosts and leases come back with their next writes, and
// events and runs are lost. A Read is one moment of the server, but what it says of a host or a
// lease is as old as its last write. No lock depends on any of it.
package redisregistry
