// Package caslock is a dlock store on a server that keeps documents and writes one only if it has
// not changed since it was read: etcd, Azure Table Storage, DynamoDB, NATS and others. It needs no
// scripts and no transactions of the server, and one small [Backend] for each kind of server.
//
//	store := caslock.New(backend) // from an adapter: azurelock, etcdlock
//
// Use Redis or a database (redislock, sqllock) if you have one: they do in one call what takes a
// read and a write here, and bear more holders. Use this if etcd or a cloud's table is what you
// have.
//
// # What is promised
//
// All that [driver.Store] asks for: one holder per slot, ticks that start so many times, fences,
// overrides (pause, limit, trigger), leases that can be listed; and shared limits and rates if the
// backend writes several documents in one step. The suite of package dlocktest shows it.
//
//   - What is known of a name is one document, and each change replaces it if nobody else has. A
//     request that arrives late, after its caller has given up, carries an old version and changes
//     nothing, unless nothing else has happened to the name since.
//   - Leases end by the server's clock, never by that of a host. What a host knows of it has a
//     width, which [Bounds] tell. A lease may last longer by that, and by [Clock.MaxSkew]; it never
//     ends earlier. A delay and a rate may take longer by as much.
//   - One round trip acquires, extends or releases if this host was the last to change the name,
//     and two if it was not. A refusal takes one, and is never answered from memory.
//   - Whoever meets another writer tries again, after a while, until its context ends.
//
// # What is not promised
//
//   - Many holders of one name: each change waits for those of others. Starts of a tick, times a
//     round trip, have to stay well below StoreTimeout: 16 at 5 ms do. More than about 50 slots of
//     one name belong on Redis or in a database. The size of a document bounds the slots, too (some
//     300 bytes each): timer.New refuses more, and an acquire that would exceed it is an error.
//   - One call for many names: a heartbeat writes a document per name, 16 at once.
//   - Anything, if the backend reads what is not the latest: eventually consistent reads, a replica
//     in another region, several regions that accept writes. Then a refusal may be wrong, and where
//     two regions accept the same version there are two holders.
//   - Anything, if versions repeat: a document that is deleted and made anew must get versions that
//     it never had. Adapters see to that.
//   - Anything, if the server loses what it has confirmed, or is restored from a copy: then leases
//     are forgotten while their holders run, and nothing waits for them. Fences still grow, unless
//     a slot is granted again sooner than hosts know the clock: within Clock.MaxSkew.
//   - To forget: the document of a name stays, some hundred bytes, until somebody deletes it. Do
//     that only when no lease of the name can be held, and it was not used for 40 days.
//   - A text (driver.Value) longer than the backend's documents.
package caslock
