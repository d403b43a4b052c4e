// Package caslock is a dlock store on a server that stores documents and replaces one only if it
// has not changed since it was read: etcd, Azure Table Storage, DynamoDB, NATS and others. It needs
// no scripts or interactive transactions on the server, only one small [Backend] for each kind of
// server.
//
//	store := caslock.New(backend) // from an adapter: azurelock, dynamolock, etcdlock
//
// If you have Redis or a database, use redislock or sqllock instead. They do in one call what takes
// a read and a write here, and they support more holders. Use caslock if you only have etcd or a
// cloud provider's table service.
//
// # What is promised
//
// The store keeps all promises of [driver.Store]: one holder per slot, a limited number of starts
// per tick, fences, overrides (pause, limit, trigger) and leases that can be listed. If the backend
// writes several documents in one step, it also supports shared limits and rates. The suite of
// package dlocktest tests these promises.
//
//   - One document holds the state of a name, and a change replaces it only if no other host has
//     changed it. A request that arrives after its caller has given up carries an old version. It
//     takes effect only if the name has not changed since.
//   - Leases end by the server's clock, never by a host's clock. A host knows the server's time
//     only within [Bounds]. A lease may last longer by the width of these bounds, which includes
//     [Clock.MaxSkew], but it never ends early. Delays and rate limits may take longer by the same
//     amount.
//   - An acquire, extend or release takes one round trip if this host was the last to change the
//     name, and two otherwise. A refusal takes one and is never answered from memory.
//   - After a conflict with another host, a call backs off and retries until its context ends.
//
// # What is not promised
//
//   - Performance with many holders of one name. Each change waits for the others. The number of
//     starts of a tick times the round trip must stay well below StoreTimeout, for example 16
//     starts at 5 ms. Put names with more than about 50 slots on Redis or a database. The document
//     size also limits the slots (about 300 bytes each): timer.New rejects more, and an acquire
//     that would exceed the size returns an error.
//   - One call for many names. A heartbeat writes one document per name, 16 in parallel.
//   - Anything if the backend returns stale reads, for example with eventual consistency, from a
//     replica in another region, or with several regions that accept writes. A refusal may then be
//     wrong. If two regions accept the same version, a slot has two holders.
//   - Anything if versions repeat. A document that is deleted and created again must get versions
//     that it never had. Adapters ensure this.
//   - Anything if the server loses confirmed writes or is restored from a copy. Leases are then
//     forgotten while their holders still run, and the store does not wait for these holders.
//     Fences still grow, unless a slot is granted again before the clock has advanced by the width
//     of its [Bounds].
//   - Cleanup. The document of a name, a few hundred bytes, stays until you delete it. Delete it
//     only when no lease of the name can be held and the name has been unused for 40 days.
//   - A text (driver.Value) longer than the backend's documents.
package caslock
