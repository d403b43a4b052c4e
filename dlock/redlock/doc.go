// Package redlock is a dlock store on several independent Redis servers: Redlock, built on redsync.
//
//	store := redlock.New([]redis.UniversalClient{a, b, c}, redlock.Options{Prefix: "shop:"})
//	defer store.Close()
//
// A lease is a key that a majority of the servers holds, so it survives the loss of any minority of
// them without replication or failover. Each slot is a redsync mutex. Use this package if you must
// survive the loss of a server that has no replica; otherwise use redislock, which promises more
// and costs less.
//
// If two of three, or three of five, servers are down, every call returns an error that is not
// driver.ErrNotAcquired. For a server that hangs, each step of an acquire waits an eighth of the
// call's time; a heartbeat waits a quarter of it, once.
//
// # What is not promised
//
//   - Redlock relies on clocks. If a server's wall clock steps forward by more than the remaining
//     time of a lease, the lease ends early.
//   - There is no quarantine. A server that restarts without its data votes immediately, and a
//     majority that includes it may grant what is still held. Start such a server only after the
//     longest TTL has passed, or set appendfsync always. A heartbeat restores the missing keys of
//     held leases, so restarting the servers one after the other, a heartbeat apart, ends no lease.
//   - Fences are 0. Refusals name no holder and no end, because the keys contain tokens only.
//     Leases cannot be listed, and hosts that declare different numbers of slots do not learn of
//     each other. Grant.PreviousExpired is always false and Info.SuccessAge is 0.
//   - A tick is a mutex of its own, taken before the slot and given back if no slot is free. A
//     crash or a failure in between loses one start of that tick. It never starts too often, unless
//     a majority loses its data: heartbeats do not restore ticks.
//   - This host's clock, not a server's, decides whether a tick is too far ahead or late. A tick is
//     late after half an hour; of two ticks younger than that, the older may start after the newer.
//     The hosts' clocks must agree within 25 minutes. Each start leaves a key for one hour.
//   - Missed ticks are not detected, because the servers keep which ticks were started, not which
//     was the last. A claim of a missed tick is refused (ReasonTickFirst).
//   - It is not a driver.Controller: a name cannot be paused, its limit cannot be changed, and a
//     lease cannot be revoked. A revocation names a lease by its fence, and there are none. A
//     lowered limit would have to count the leases in all slots in one step with the grant, and no
//     step spans two servers.
//   - The slots of a name are several mutexes, not one semaphore. If many hosts ask in the same
//     instant, each may get some votes and none a majority; they retry after a random pause of
//     milliseconds, at most ten times. Under lasting contention a request may be refused as full
//     although a slot is free. The limit is never exceeded because of it.
//   - While servers are down, a lease whose majority needs them looks neither held nor free. That
//     is an error.
//   - It is expensive, and exceeds the budgets of the other stores: an acquire costs each server
//     one MGET, and one or two scripts for each slot that looked free, at most N a round; a
//     heartbeat costs one script per lease and server. It is meant for a few hundred leases per
//     process.
package redlock
