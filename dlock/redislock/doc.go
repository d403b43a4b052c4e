// Package redislock is a dlock store on Redis 6.2 or newer, or Valkey: a single server, Sentinel or
// Cluster.
//
//	store := redislock.New(rdb, redislock.Options{Prefix: "shop:"})
//	defer store.Close()
//
// Every operation is one script and one round trip, whatever the number of slots. The server's
// clock decides when a lease ends. Except on a Cluster, concurrent acquires and releases of a
// process share round trips. Up to four are in flight at once. Further calls wait for one to return
// and are then sent together.
//
// # Keys
//
//	shop:timer:orders:slot:0       the lease: {"token":…,"fence":…,"acquired_at":…,"host":…,"pid":…,
//	                               "id":…,"ttl":…}, with its time to live
//	shop:timer:orders:slot:index   when each slot ends, to find a free one without asking for each
//	shop:timer:orders:slot:tokens  which attempt holds which slot, for repeated attempts
//	shop:timer:orders:slot:state   the last fence, tick and success, who claimed that tick, which
//	                               server run granted them, and the overrides of driver.Controller
//	shop:timer:orders:slot:released:0
//	                               who released the slot, for a minute; of a mutex :slot:released
//	shop::slot:names, …:used       shared by all names: which are in use, for Enumerate
//	shop::slot:server              shared by all names: which run of the server this is, and the
//	                               latest time at which it can have begun
//
// The lease's own key is authoritative. If the index, the tokens or the state are lost, the next
// acquire rebuilds them from the leases. They expire when a name has been unused for an hour, or up
// to a quarter less, or for four times QuarantineTTL if that is longer. If the name has ticks, they
// expire after 40 days. The state does not expire once Update was called for the name. On Redis
// Cluster, the part before :slot: is in braces, {shop:timer:orders}:slot:0, so that all keys of a
// name are on one node.
//
// A revoked lease has "revoked":{"by":…,"note":…} after its token. In the state, the fields tick,
// success, until (the end of a pause) and at (the time of a trigger) are microseconds since 1970,
// and a limit of -1 means no limit. A limit with a Rate keeps its latest starts in the field starts
// for 40 days, in at most 1,664 bytes.
//
// If a key is lost or deleted by hand:
//
//	a lease       the slot is free; its holder notices with its next heartbeat. Other hosts may look
//	              only at the eight slots that end first, so with more slots it can stay unused until
//	              the lease would have ended
//	the tokens    an attempt whose reply was lost may take a second slot, for one TTL
//	the state     fences still grow; its tick may start again; the overrides are gone
//	names, used   delete both or neither: without used, unused names stay in names
//	the server    a server that was a replica once grants nothing for QuarantineTTL
//
// # Listing all leases
//
// Store.Enumerate finds names through two sets that all names share. The first grant of a name adds
// it to them. Then one grant or heartbeat per quarter of an hour adds it again (a quarter of the
// time for which an unused name is remembered), so most acquires and heartbeats do no extra work.
// If a name was not added for that whole time, it has no lease and is removed. If the sets are
// lost, names in use are added again within a quarter of an hour; until then, their leases are held
// but not listed. A released lease is kept in a separate key for driver.ReleasedFor. After a
// failover, the new master lists only leases whose grants were replicated to it.
//
// For this, an acquire or heartbeat that adds its name sends six more commands (with KeysTagged,
// seven). Other acquires and heartbeats send none. A release sends one SET, and with KeysTagged an
// MGET before it. A name of 22 characters takes 270 bytes, and a release takes 200 bytes for a
// minute. A page of 1,000 timers with one lease each takes the server 5 to 10 ms.
//
// On Redis Cluster (KeysTagged), a script can access only the keys of one hash slot. So a grant
// could add its name only to a set in the same slot, and reading the sets of all 16,384 slots takes
// too many calls. A set per node would be in the wrong place after its slots were moved. Therefore
// Enumerate, like limits that are taken together, needs a Prefix with a hash tag, such as {shop}:
// or shop:{mail}:, which keeps all names and the sets in one hash slot. Without a hash tag,
// Enumerate returns an error that matches errors.ErrUnsupported, List still works, and the store
// keeps no sets or releases. While the slot is being moved to another node, Enumerate fails, names
// may be missing from the sets, and releases may not be kept.
//
// # A server that lost its data
//
// A Redis that restarts without its data would immediately grant slots that are still held.
// Therefore the acquire script compares the server's master_replid, which changes with each start
// and each promotion, with the recorded one. After a restart or failover, nothing is granted for
// QuarantineTTL (driver.ReasonQuarantine), in which the last old lease ends. Leases that survived
// continue. A server that reports that it was never a replica is trusted once it has been up for
// that long.
//
// On a Cluster, no single key can be reached from every name, so each name has its own quarantine
// when it is next used. A quarantine also follows when a name's keys are moved to another node, and
// when the replid changes because the node got its first replica or has had none for an hour
// (repl-backlog-ttl). If a node does not know a name, it refuses the name only while it has been up
// for less than QuarantineTTL.
//
// # Connections
//
// With its default settings, go-redis blocks for 5 to 10 seconds on a frozen server and ignores a
// cancelled context. A pool that the application has exhausted delays heartbeats until leases are
// lost. Therefore New opens a small pool with the address, Dialer, TLS and credentials of the given
// client. It does not copy the client's hooks. Connecting, including TLS, may take 2 s, and a
// connection that was idle for 2 minutes is not used again. Options.SharedPool opts out. go-redis
// prints a line to standard error for every connection that it cannot make, but not for the store's
// own pool: a timer.Scheduler logs an outage once.
//
// # Sentinel
//
//	failover := &redis.FailoverOptions{MasterName: "mymaster", SentinelAddrs: sentinels}
//	store := redislock.NewFailover(failover, redislock.Options{Prefix: "shop:"})
//
// NewFailover asks all sentinels and calls the master that a majority of them named within the last
// second. The store refuses a client from redis.NewFailoverClient: go-redis does not expose its
// settings, trusts the first sentinel that answers, and closes only its own connections when the
// master changes. Use NewFailover on all hosts or on none. Other hosts do not know the sentinels'
// epoch, so each kind sees the other's master as a new one, and both stay in quarantine.
//
// # What is not promised
//
//   - FLUSHALL, DEL of the state key, or an eviction policy that removes our keys while the server
//     runs cannot be detected. Leases may then be granted twice until the old holders' next
//     heartbeat finds them lost, at most a third of the TTL later. Set maxmemory-policy to
//     noeviction.
//   - Redis replicates asynchronously. After a failover, the quarantine protects the leases that
//     the old master granted, with one exception: if a name's very first grant on a Cluster was
//     lost, the new master does not know the name. Without NewFailover, an old master that is still
//     alive after a failover (it was cut off or suspended) keeps granting to the hosts that reach
//     it, so each side keeps its own limit. min-replicas-to-write 1 with min-replicas-max-lag 1
//     reduces this to two or three seconds plus the trust window.
//   - Without the index, a lowered limit does not count the leases in the slots above it until they
//     end.
//   - An update that a failover loses is gone. Controller.Inspect shows the overrides in force.
//     Hosts with a version of this package that does not know overrides ignore them.
//   - A server that replaces this one without having been its replica must be freshly started. If
//     it has been up for longer than QuarantineTTL, stop the hosts for a TTL before you point them
//     to it. The same applies if repl-backlog-ttl is shorter than QuarantineTTL (its default is an
//     hour).
//   - Options.Embedded and Options.NoQuarantine turn the quarantine off.
//   - The server's clock is a wall clock. If it steps forward by more than the remaining time of a
//     lease, the lease ends on the server while its holder still trusts it.
//
// Package redlock is a different store with different promises: Redlock on independent servers.
package redislock
