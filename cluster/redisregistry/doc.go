// Package redisregistry keeps the registry of package cluster on Redis: one server, Redis Sentinel
// or one node of a Redis Cluster.
//
// Each call is one Lua script, which takes its time from the server. All keys have one prefix and
// one hash tag, so on a Cluster they are on one node. Stores with other prefixes may be on other
// nodes. docs/redis.md has the rights that a user needs.
//
// Memory is bounded: events and the runs of each timer are trimmed as they are written, long texts
// are cut, hosts and leases are deleted by cluster.Store's Sweep, and all keys expire when no host
// has written for 40 days.
//
// It does not promise that anything is still there. A server that restarts without persistence, or
// that evicts keys, forgets the registry; hosts and leases come back with their next writes, and
// events and runs are lost. A Read is one moment of the server, but what it says of a host or a
// lease is as old as its last write. No lock depends on any of it.
//
// # Keys
//
// After {shop::slot:registry}, where shop: is the Prefix:
//
//	:hosts, :details           hashes: when each process was last seen and began (µs since 1970), its
//	                           TTL (µs) and what it says of itself; its timers and runners,
//	                           compressed (z and DEFLATE) from 1 kB on
//	:leases, :ends             a hash: acquired, renewed, expires, released, fence, grant, and the
//	                           rest as JSON; a sorted set by which old leases are deleted
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
// If one key of a line is lost, the next write deletes the others of the line. Hosts send :hosts,
// :details, :leases and :ends again with their heartbeats (leases with their next renewal, and all
// of them if :hosts was lost, too). :records, :ranked, :buckets and :gone are counted anew. Without
// :counted a batch that arrives twice just then may be counted twice. Texts of events and errors of
// runs are cut after 2,000 bytes.
//
// # Cost
//
// Each call is one script, during which the server does nothing else. CPU time of redis-server
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
// A missing right and a key with something else in it match dlock.ErrSetup. A replica, a server
// that is out of memory, and one that loads its data are outages. An old master of a Sentinel is
// written to until Sentinel demotes it, ten seconds later or, if it is cut off, when it is back:
// events and runs that were written to it meanwhile are lost.
package redisregistry
