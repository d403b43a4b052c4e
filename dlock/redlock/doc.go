// Package redlock is a dlock store on several independent Redis servers: Redlock, built on redsync.
//
//	store := redlock.New([]redis.UniversalClient{a, b, c}, redlock.Options{Prefix: "shop:"})
//	defer store.Close()
//
// A lease is a key on a majority of the servers. So it survives the loss of any minority of them,
// without replication or failover. Each slot is a redsync mutex. Use this package if you must
// survive the loss of a server that has no replica. Otherwise use redislock, which promises more
// and costs less.
//
// If two of three or three of five servers are down, every call returns an error that does not
// match driver.ErrNotAcquired. For a server that hangs, each step of an acquire waits an eighth of
// the call's time, and a heartbeat waits a quarter of it, once.
//
// # What is not promised
//
//   - Redlock relies on clocks. If a server's wall clock steps forward by more than the remaining
//     time of a lease, the lease ends early.
//   - There is no quarantine. A server that restarts without its data votes immediately, and a
//     majority that includes it may grant a slot that is still held. Start such a server only after
//     the longest TTL has passed, or set appendfsync always. A heartbeat restores the missing keys
//     of held leases. So a rolling restart ends no lease if a heartbeat comes between any two
//     servers.
//   - Fences are 0. Refusals name no holder and no end, because the keys contain only tokens.
//     Leases cannot be listed, and hosts are not told when they declare different numbers of slots.
//     Grant.PreviousExpired is always false and Info.SuccessAge is 0.
//   - A tick is a separate mutex. It is taken before the slot and given back if no slot is free. A
//     crash or failure in between loses one start of that tick. A tick never starts too often,
//     unless a majority loses its data: heartbeats do not restore ticks.
//   - This host's clock, not a server's, decides whether a tick is too far ahead or late. A tick is
//     late after half an hour. Of two ticks younger than that, the older one may start after the
//     newer one. The hosts' clocks must agree within 25 minutes. Each start leaves a key for one
//     hour.
//   - Missed ticks are not detected, because the servers keep which ticks were started, not which
//     was the last. A claim of a missed tick is refused (ReasonTickFirst).
//   - The store is not a driver.Controller: names cannot be paused, limits cannot be changed, and
//     leases cannot be revoked. A revocation needs a fence. A lowered limit would have to be
//     checked against the leases in all slots in the same step as the grant, but no step spans two
//     servers.
//   - The slots of a name are several mutexes, not one semaphore. If many hosts ask at the same
//     instant, each may get some votes and none a majority. They retry up to ten times, after
//     random pauses of milliseconds. Under lasting contention, a request may be refused as full
//     although a slot is free. The limit is never exceeded because of this.
//   - While servers are down, a lease whose majority needs them looks neither held nor free. A call
//     then returns an error.
//   - It is expensive and exceeds the budgets of the other stores. An acquire costs each server one
//     MGET, and in each round one or two scripts for each slot that looked free, at most N. A
//     heartbeat costs one script per lease and server. The store suits a few hundred leases per
//     process.
package redlock
