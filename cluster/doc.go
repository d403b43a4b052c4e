// Package cluster is a registry of the processes of a fleet and of what they hold: hosts, leases,
// leaders, events, and the last runs of timers. Ask any process of a fleet "which of my N nodes is
// the outbox running on right now?", and it gives the same answer as every other one.
//
//	registry, err := cluster.New(cluster.Config{Store: store, Locks: locks})
//	...
//	options := dlock.SessionOptions{Holder: registry.Holder()}
//	session, err := dlock.NewSession(registry.Decorate(locks), options)
//	registry.Add(session) // and schedulers, workers, relays, electors, your own loops
//	go registry.Run(ctx)  // writes until ctx ends, which should be last; read its error then
//	...
//	snapshot, err := registry.Snapshot(ctx)
//	for _, lease := range snapshot.HeldLeases(cluster.KindLeader) {
//		fmt.Println(lease.Name, "is led by", lease.Holder, "which is", lease.HostState)
//	}
//
// A store of the registry is in package sqlregistry or redisregistry, and [NewMemoryStore] is one
// for tests. A program without this package sends nothing of it over the wire.
//
// # What a process writes
//
// [Registry.Run] writes a heartbeat every third of Config.TTL, and in the same call all that is
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
// A store of locks that can list its leases ([driver.Enumerator]: redislock, sqllock, memlock) is
// asked for them when a Snapshot is made. Leases of any other store (native locks, Redlock, a Redis
// Cluster without a hash tag, your own) are recorded by whoever holds them: [Registry.Decorate]
// wraps the store and records what it grants, extends and releases, or [Registry.Record] is called
// by hand. Losers of a race leave no row. A lease stays visible for a while after it was released,
// so that one which is held for a moment at a time is seen, too.
//
// Decorate also records events: leases that were lost, revoked by an operator, or found expired;
// and of those that have a kind, that they were acquired and released. It does not record these two
// for kinds that come and go all the time: timers (whose history is that of their runs), limits,
// hosts, probes and triggers.
//
// # Environments
//
// Say Config.Environment, and a process that is started on the store of another environment takes
// nothing: its schedulers, workers, relays and electors, if they were given to [Registry.Add]
// before their Run, return an error that says what to do. Everybody sees the process in the state
// [HostRefused], also after it has stopped. Loops of your own ask with [Registry.Admit].
//
// A store belongs to the environment of the hosts that are alive on it. If none is, no process is
// refused. A process without an environment is not refused either, and no other is because of it.
//
// # What a registry does to locks
//
// Nothing. No call for a lock is added or delayed, and none fails, whether the registry is slow,
// full, missing or down. Records that it cannot write wait and are written later, none of them
// twice: all leases that are held, and up to 10,000 leases that have ended, 1,000 events and 5,000
// runs. Further ones are dropped and counted. The log says once that it fails, and once that it
// works again. Give its Store connections of its own.
//
// # What is not promised
//
// This is a view, and not a lock: what it shows may be a moment old, and a lease of a process that
// was killed is shown as held until it expires. Do not use it to decide about anything that must
// not happen twice; use the [dlock.Fence] for that.
//
// Recorded leases are as accurate as the last write of their holder: they are shown within about a
// second of an acquire, and after kill -9 until they expire. A lease whose holder could not write
// to the registry is not shown.
//
// Without fences (native locks, Redlock) grants are distinguished by when they were acquired, by
// the store's clock. If that clock is set back, leases that were granted since then are not shown
// until it has caught up.
//
// Events and runs may be missing if more happen than fit into the queue, or if a process dies
// before it has written them. If most of a fleet of hundreds dies at once, hours may pass until the
// rest notices, unless somebody asks it for a Snapshot.
package cluster
