// Package redlock is a dlock store on several independent Redis servers: Redlock, on redsync.
//
//	lock := redlock.New([]redis.UniversalClient{a, b, c}, redlock.Options{Prefix: "shop:"})
//	defer lock.Close()
//
// A lease is a key that a majority of the servers holds, so it outlives the loss of any minority of
// them, without replication and failover. There is one mutex of redsync per slot. Use it if you
// must survive the loss of a server that has no replica; for everything else use redislock, which
// promises more and costs less.
//
// With two servers down out of three, or three out of five, every call is an error that is not
// dlock.ErrNotAcquired. For a server that hangs, each step of an acquire waits an eighth of the
// time that the call has; a heartbeat waits a quarter, once.
//
// # What is not promised
//
//   - Redlock is a lock by clocks. A server whose wall clock steps forward by more than is left of
//     a lease ends it early.
//   - There is no quarantine. A server that restarts without its data votes again at once, and with
//     it a majority may grant what is still held. Start such a server only after the longest TTL
//     has passed, or make it fsync always. A heartbeat puts the keys of living leases back, so
//     servers restarted one after the other, a heartbeat apart, end none.
//   - Fences are 0, refusals name no holder and no end (the keys have tokens in them and nothing
//     else), there is no listing, and hosts that declare different numbers of slots are not told of
//     each other. Nobody is told that a slot was abandoned, or when a name last succeeded:
//     Info.SinceSuccess is 0.
//   - A tick is a mutex of its own. It is taken before the slot, and given back if there is none. A
//     crash or a failure in between loses one start of that tick; there is never one too many,
//     unless a majority forgets: ticks are not put back.
//   - The clock of this host, not of a server, says that a tick is too far ahead, or late. Late
//     means more than half an hour ago; of two ticks younger than that, the older may start after
//     the newer. Clocks must agree to 25 minutes. Each start leaves a key for one hour.
//   - No tick was ever missed: the servers keep the ticks that were started, not which was the
//     last. A claim of one as missed is refused (ReasonTickFirst).
//   - Nobody can pause a name, change its limit or revoke a lease: it is no dlock.Controller. A
//     revocation says by its fence which lease it means, and there are none; a limit that was
//     lowered counts what is held in all slots, in one step with the grant, and no step spans two
//     servers.
//   - The slots of a name are several mutexes, not one semaphore. When many hosts ask in the same
//     instant, each may get some votes and nobody a majority; they ask again after a random pause
//     of milliseconds, ten times at most. In a long crush a request may be refused as full while a
//     slot is free; never is one granted too many for it.
//   - While servers are away, a lease that has its majority only with them looks neither taken nor
//     free. That is an error.
//   - It is dear, and outside the budgets of the other stores: an acquire costs each server one
//     MGET, and one or two scripts for each slot that looked free, at most N a round; a heartbeat
//     costs one script per lease and server. It is meant for some hundred leases per process.
package redlock
