// Package cluster is a registry of who is there and who holds what: hosts, leases, leaders, what
// happened, and the last runs of timers. Ask any process of a fleet "which of my N nodes is the
// outbox running on right now?", and it answers as every other one would.
//
//	registry, err := cluster.New(cluster.Options{Store: store, Locks: locks})
//	...
//	options := dlock.SessionOptions{Holder: registry.Holder()}
//	session, err := dlock.NewSession(registry.Decorate(locks), options)
//	registry.Add(session) // and electors, schedulers, your own loops
//	go registry.Run(ctx)  // writes until ctx ends, which should be last
//	...
//	snapshot, err := registry.Snapshot(ctx)
//	for _, lease := range snapshot.Who(cluster.KindLeader) {
//		fmt.Println(lease.Name, "is led by", lease.Holder, "which is", lease.HostState)
//	}
//
// A store of the registry is in package sqlregistry or redisregistry, and [NewMemoryStore] is one
// for tests. A program without this package sends nothing of it over the wire.
//
// # What a process writes
//
// [Registry.Run] writes a heartbeat every third of Options.TTL, and in the same call all that is
// new since the last one: leases that were recorded, events, and runs that have ended. The
// process's timers with their limits, and the state of each [Runner], are in it when they have
// changed. New leases and events are written sooner, within about a second. While nothing is new, a
// process makes one call per heartbeat interval: now and then it reads the registry, or deletes old
// rows, instead of writing a heartbeat.
//
// A process without a heartbeat for one TTL is suspect, for two it is gone; one that ends in good
// order is gone at once. Rows of hosts and leases are kept for the longer of 60 s and three TTLs.
// All this goes by the clock of the store, so clocks of hosts may differ.
//
// # Where leases come from
//
// A store of locks that can list its leases ([dlock.Enumerator]: redislock, sqllock, memlock) is
// asked for them when a Snapshot is made. Leases of any other store (native locks, Redlock, a Redis
// Cluster without a hash tag, your own) are recorded by whoever holds them: [Registry.Decorate]
// wraps the store and records what it grants, extends and releases, or [Registry.Record] is called
// by hand. Losers of a race leave no row. A lease stays visible for a while after it was released,
// so that one which is held for a moment at a time is seen, too.
//
// Decorate also records events: leases that were lost, forced by an operator, or found expired; and
// of those that have a kind, that they were gained and released. It does not do that for timers, of
// which there are the runs.
//
// # What a registry does to locks
//
// Nothing. No call for a lock is added or delayed, and none fails, whether the registry is slow,
// full, missing or down. What it cannot write waits, bounded, is written later, and nothing is
// written twice; what does not fit is dropped and counted. The log says once that it fails, and
// once that it works again. Give its Store connections of its own.
//
// # What is not promised
//
// This is a view, and not a lock: what it shows may be a moment old, and a lease of a process that
// was killed is shown as held until it expires. Decide nothing by it that must not happen twice;
// use the [dlock.Fence].
//
// Recorded leases are as right as what their holder has written: they are there within about a
// second of an acquire, and after kill -9 until they expire. A lease of a holder that the registry
// could not write for is not shown.
//
// Without fences (native locks, Redlock) grants are distinguished by when they were acquired, by
// the store's clock. If that is set back, what was granted since is not shown until it has caught
// up.
//
// Events and runs may be missing if more happen than fit, or if a process dies with what it has not
// written. If most of a fleet of hundreds dies at once, hours may pass until the rest notices,
// unless somebody asks it for a Snapshot.
package cluster
