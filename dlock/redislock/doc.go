// Package redislock is a dlock store on Redis 6.2 or newer, or Valkey: a single server, Sentinel or Cluster.
//
//	lock := redislock.New(rdb, redislock.Options{Prefix: "shop:"})
//	defer lock.Close()
//
// Every operation is one script and one round trip, whatever the number of slots. The server's clock
// decides when a lease ends. Acquires and releases that a process makes at the same time share round trips, except on a Cluster: up to four
// are under way at once, and calls beyond that wait until one is back and then go together.
//
// # Keys
//
//	shop:timer:orders:slot:0       the lease: {"token":…,"fence":…,"since":…,"host":…,"pid":…,"id":…}, with its time to live
//	shop:timer:orders:slot:index   which slot ends when, so that a free one is found without asking for each
//	shop:timer:orders:slot:tokens  which attempt holds which slot, so that a repeated attempt finds its grant
//	shop:timer:orders:slot:state   the last fence, tick and success, who claimed that tick, which server run granted them, and what people
//	                               see dlock.Controller
//	shop::slot:server              of all names together: which run of the server this is, and when it began at the latest
//
// The key of a lease decides. The index, the tokens and the state go with a name that is not used for an hour (or a quarter of it less; four times
// QuarantineTTL if that is longer), and of a name with ticks after 40 days; if they are lost sooner, the next acquire rebuilds them from the leases.
// The state stays once it was updated. On Redis Cluster the part before :slot: is in braces, {shop:timer:orders}:slot:0, so that the keys of
// one name live on one node.
//
// # A server that lost its data
//
// A Redis that restarts without its data would grant at once what others still hold. So the acquire script
// compares the server's master_replid, which changes with each start and each promotion, with the one it noted; after a restart, and after
// a failover, nothing is granted for QuarantineTTL (Reason Quarantine), which is when the last old lease must
// have ended. Leases that survived go on. A server that tells that it never was a replica is not waited for once it has been up for that long.
//
// On a Cluster no key can be reached from every name, so each name is waited for by itself when it is next used, also when its keys were moved
// to another node, or when the replid changes because the node's first replica came, or the last has been gone for an hour (repl-backlog-ttl). A name that its node does not know
// is refused there only while the node has been up for less than QuarantineTTL.
//
// # Connections
//
// go-redis with its default settings blocks for 5 to 10 seconds on a frozen server and ignores a cancelled
// context, and a pool that the application has drained delays heartbeats until leases are lost. So New
// opens a small pool of its own with the address, Dialer, TLS and credentials of the client that you pass in.
// Hooks of your client are not taken over. Options.SharedPool opts out. go-redis prints a line to standard error for every
// connection that it cannot make; redis.SetLogger quiets it, for the whole process.
//
// # Sentinel
//
//	lock := redislock.NewFailover(&redis.FailoverOptions{MasterName: "mymaster", SentinelAddrs: sentinels}, redislock.Options{Prefix: "shop:"})
//
// A client of redis.NewFailoverClient is refused: go-redis does not tell its settings, believes the first sentinel that answers, and closes
// only its own connections when the master changes. Use NewFailover on all hosts or on none: a host without it does not know the
// epoch of the sentinels, so each kind takes the other's master for another one, and both keep waiting. NewFailover asks all sentinels, and calls the master that a majority of them named within the last second.
//
// # What is not promised
//
//   - FLUSHALL, DEL of the state key, or an eviction policy that takes our keys while the server runs cannot be
//     noticed; leases may then be granted twice until the old holders' next heartbeat finds them lost, at most a
//     third of the TTL later. Use maxmemory-policy noeviction.
//   - Redis replicates asynchronously. After a failover the quarantine protects the leases that the old master
//     granted. On a Cluster it does not if the very first grant of a name is among the writes that were lost: then the new master does not know
//     that there is anything to wait for. Without NewFailover, a master that is still alive after a failover (it was cut off, or stood still for a while)
//     goes on granting to hosts that reach it; then
//     each side keeps its own limit. min-replicas-to-write 1 with min-replicas-max-lag 1 narrows that window to two or three seconds and
//     the trust window.
//   - Without the index, a limit that was lowered does not count the leases in the slots above it, until they end.
//   - An update that a failover loses is not made any more: Controller.Inspect tells what stands. Hosts whose version of this package knows no overrides do not
//     obey them.
//   - Another server that is put in the place of this one, and is no replica of it, has to be started then. If it has been up for longer than
//     QuarantineTTL, stop the hosts for a TTL before they are led to it. The same goes for a repl-backlog-ttl that is shorter than QuarantineTTL
//     (its default is an hour).
//   - Options.Embedded and Options.NoQuarantine turn the quarantine off.
//   - The server's clock is a wall clock. If it steps forward by more than is left of a lease, the lease ends
//     early for the server while its holder still trusts it.
//
// Package redlock is another store with other promises: Redlock over independent servers.
package redislock
