// Package cluster is a registry of the processes of a fleet and of what they hold: hosts, leases,
// leaders, events, and the last runs of timers. Ask any process of a fleet "which of my N nodes is
// the outbox running on right now?", and each gives the same answer.
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
// [Registry.Run] writes a heartbeat every third of Config.TTL, and in the same call everything new
// since the last one: leases that were recorded, events, and runs that have ended. If the process's
// timers with their limits, or the state of a [Runner], have changed, it includes them. New leases
// and events are written sooner, within about a second. While nothing is new, a process makes one
// call per heartbeat interval: now and then it reads the registry, or deletes old rows, instead of
// writing a heartbeat.
//
// A process without a heartbeat for one TTL is suspect, for two it is gone; one that stops cleanly
// is gone immediately. Rows of hosts and leases are kept for the longer of 60 s and three TTLs. All
// this is measured by the clock of the store, so clocks of hosts may differ.
//
// # Where leases come from
//
// If a store of locks can list its leases ([driver.Enumerator]: redislock, sqllock, memlock), each
// Snapshot asks it for them. Leases of any other store (native locks, Redlock, a Redis Cluster
// without a hash tag, your own) are recorded by their holders: [Registry.Decorate] wraps the store
// and records what it grants, extends and releases, or [Registry.Record] is called by hand. Losers
// of a race leave no row. A lease stays visible for a while after its release, so that one which is
// held for a moment at a time is seen, too.
//
// Decorate also records events: that leases were lost, revoked by an operator, or found expired,
// and that leases with a kind were acquired and released. It does not record the last two for kinds
// that come and go all the time: timers (their runs are their history), limits, hosts, probes and
// triggers.
//
// # Environments
//
// If Config.Environment is set, a process that is started on the store of another environment takes
// nothing: its schedulers, workers, relays and electors, if they were given to [Registry.Add]
// before their Run, return an error that says how to repair it. Every host sees the process in the
// state [HostRefused], even after it has stopped. Loops of your own ask with [Registry.Admit].
//
// A store belongs to the environment of the live hosts on it. If there is no live host, no process
// is refused. A process without an environment is not refused, and causes no refusal.
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
// This is a view, and not a lock: it may be a moment old, and a lease of a process that was killed
// is shown as held until it expires. Do not use it to decide about anything that must not happen
// twice; use the [dlock.Fence] for that.
//
// Recorded leases are as accurate as the last write of their holder: they are shown within about a
// second of an acquire, and after kill -9 until they expire. A lease whose holder could not write
// to the registry is not shown.
//
// Without fences (native locks, Redlock) grants are told apart by when they were acquired, by the
// store's clock. If that clock is set back, leases that were granted since then are not shown until
// it has caught up.
//
// Events and runs may be missing if more happen than fit into the queue, or if a process dies
// before it has written them. If most of a fleet of hundreds dies at the same time, the rest may
// take hours to notice, unless a Snapshot is requested.
package cluster
