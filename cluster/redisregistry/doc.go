// Package redisregistry keeps the registry of package cluster on Redis: one server, Redis Sentinel
// or one node of a Redis Cluster.
//
// Each call is one Lua script, which reads the time from the server. All keys share one prefix and
// one hash tag, so on a Cluster they are on one node. Stores with different prefixes may be on
// different nodes. docs/redis.md lists the permissions that the Redis user needs.
//
// Memory is bounded. Each write trims the events and the runs of each timer, and cuts long texts.
// [Store.Sweep] deletes old hosts and leases. All keys expire when no host has written for 40 days.
//
// The registry is not durable. A server that restarts without persistence, or that evicts keys,
// loses it: hosts and leases return with their next writes, but events and runs are lost. A Read is
// a consistent snapshot of the server, but each host and lease in it is only as recent as its last
// write. No lock depends on the registry.
//
// # Keys
//
// After {shop::slot:registry}, where shop: is the Prefix, the keys end with:
//
//	:hosts, :details           hashes: when each process was last seen and when it started (µs since
//	                           1970), its TTL (µs) and its description; its timers and runners,
//	                           compressed (z and DEFLATE) from 1 kB on
//	:leases, :ends             a hash: acquired, renewed, expires, released, fence, grant, and the
//	                           rest as JSON; a sorted set from which Sweep finds old leases
//	:events, :order            the newest 1,000 events: a hash by ID and a sorted set by time
//	:runs, :ended, :timers     the newest 50 runs of each timer: a hash by ID, and sorted sets by time
//	                           and by timer
//	:records, :ranked          of each timer its last run and success, since when and how often in a
//	                           row it failed, its last 30 outcomes; a sorted set by last run, timers
//	                           that fail above the others
//	:buckets, :gone            of each timer and of all, how many runs ended and failed and how long
//	                           they took, those of a timer by bins of durations: by five minutes for
//	                           a day, by the hour for a month; a sorted set by when a field is
//	                           deleted
//	:counted                   the number of the last batch of each process whose runs were counted
//
// If the server loses one key of a line, the next write deletes the others of that line. Hosts
// write :hosts, :details, :leases and :ends again with their heartbeats. A lease returns with its
// next renewal; if :hosts was lost too, all leases return at once. :records, :ranked, :buckets and
// :gone start from zero. If :counted is lost, a batch that arrives twice at that moment may be
// counted twice. The texts of events and the errors of runs are cut after 2,000 bytes.
//
// # Cost
//
// Each call is one script, and while it runs the server does nothing else. CPU time of redis-server
// 7.0.15 on a busy machine, in ms:
//
//	Write of a heartbeat; with the detail of 1,000 timers (39 kB)        0.06; 0.2
//	Write of 500 leases; of 500 runs; of 500 events                      7; 10; 5
//	Write of the counts of the runs of 500 timers                        41
//	Read of 200 hosts with 1,000 timers each and 500 leases              3.3
//	Read of the same with 10,000 leases                                  19
//	Read of the records of 500 timers, with those 10,000 leases          30
//	Runs of a timer; Buckets of a timer                                  0.2; 0.5
//	Sweep that finds nothing; that deletes 500 events and 500 runs       0.5; 5 to 8
//
// # Errors
//
// Errors for a missing permission or a key of another type match dlock.ErrSetup. A replica, a
// server that is out of memory and a server that is loading its data count as outages. With
// Sentinel, writes reach an old master until Sentinel demotes it: ten seconds later or, if the old
// master is cut off, when it is reachable again. Events and runs written to it in the meantime are
// lost.
package redisregistry
