// Package cluster is a registry of the processes of a fleet and of what they hold: hosts, leases,
// leaders, events, and the last runs of timers. Ask any process of a fleet "which of my N nodes is
// the outbox running on right now?", and each gives the same answer.
//
//	registry, err := cluster.New(cluster.Config{Store: store, Locks: locks})
//	...
//	options := dlock.SessionOptions{Holder: registry.Holder()}
//	session, err := dlock.NewSession(registry.Decorate(locks), options)
//	registry.Add(session) // and schedulers, workers, relays, electors, your own loops
//	go registry.Run(ctx)  // writes until ctx ends; end ctx last, and check the error
//	...
//	snapshot, err := registry.Snapshot(ctx)
//	for _, lease := range snapshot.HeldLeases(cluster.KindLeader) {
//		fmt.Println(lease.Name, "is led by", lease.Holder, "which is", lease.HostState)
//	}
//
// Packages sqlregistry and redisregistry provide stores for the registry, and [NewMemoryStore]
// provides one for tests. A program that does not use this package sends no registry data.
//
// # What a process writes
//
// [Registry.Run] writes a heartbeat every third of Config.TTL. The same call writes everything new
// since the last one: recorded leases, events, and ended runs. It includes the process's timers
// with their limits and the states of its [Runner] values if they have changed. New leases and
// events are written sooner, within about a second. While nothing is new, a process makes one call
// per heartbeat interval. Some of these calls read the registry or delete old rows instead of
// writing a heartbeat.
//
// A process is suspect after one TTL without a heartbeat, and gone after two. A process that stops
// cleanly is gone immediately. Rows of hosts and leases are kept for 60 s or three TTLs, whichever
// is longer. The store's clock measures all these times, so clocks of hosts may differ.
//
// # Where leases come from
//
// If a store of locks can list its leases ([driver.Enumerator]: redislock, sqllock, memlock), each
// Snapshot asks it for them. Leases of any other store (native locks, Redlock, a Redis Cluster
// without a hash tag, your own) are recorded by their holders. [Registry.Decorate] wraps a store
// and records what it grants, extends and releases; alternatively, call [Registry.Record] yourself.
// A failed attempt to acquire leaves no row. A lease stays visible for a while after its release,
// so that leases held only for a moment can be seen too.
//
// Decorate also records events: a lease was lost, revoked by an operator, or found expired, or a
// lease with a kind was acquired or released. It does not record the last two for kinds that are
// acquired very often: timers (their runs are their history), limits, hosts, probes and triggers.
//
// # Environments
//
// If Config.Environment is set, a process that is started on the store of another environment takes
// no work. Its schedulers, workers, relays and electors that were given to [Registry.Add] before
// their Run return an error that describes the repair. Every host sees the process in the state
// [HostRefused], even after it has stopped. Your own loops call [Registry.Admit].
//
// A store belongs to the environment of the live hosts on it. If there is no live host, no process
// is refused. A process without an environment is never refused and causes no refusal.
//
// # How the registry affects locks
//
// It does not. Whether the registry is slow, full, missing or down, it neither adds nor delays
// calls for locks, and causes none to fail. Records that cannot be written yet are queued and
// written once: all held leases, up to 10,000 ended leases, 1,000 events and 5,000 runs. Records
// beyond these limits are dropped and counted. The log reports the first failure and the recovery.
// Give the registry's Store connections of its own.
//
// # What is not promised
//
// The registry is a view, not a lock. It may be slightly out of date, and the lease of a killed
// process is shown as held until it expires. Do not use it to decide about anything that must not
// happen twice; use the [dlock.Fence] for that.
//
// Recorded leases are as accurate as the last write of their holder. They appear within about a
// second of an acquire, and after kill -9 they remain until they expire. A lease whose holder could
// not write to the registry is not shown.
//
// Without fences (native locks, Redlock), grants are ordered by the time they were acquired, by the
// store's clock. If that clock is set back, later grants are not shown until the clock has caught
// up.
//
// Events and runs may be missing if more happen than fit into the queue, or if a process dies
// before it has written them. If most of a fleet of hundreds dies at the same time, the other hosts
// may notice only after hours, unless a Snapshot is requested.
package cluster
