// Package nativelock is a dlock store on the locks that a database keeps for a connection: advisory
// locks in Postgres, GET_LOCK in MySQL and MariaDB, application locks in SQL Server.
//
//	lock := nativelock.PostgresAdvisory(db, nativelock.Options{Prefix: "shop:"})
//	defer lock.Close()
//
// It needs no table and writes nothing. It promises less than sqllock, so use that unless you may
// not create a table.
//
// # What is not promised
//
//   - MaxConcurrency can be exceeded. A lock ends when its connection does. A host whose connection
//     breaks, or is ended by an administrator (pg_terminate_backend, KILL), learns of it with its
//     next heartbeat: a third of a TTL later, or a whole TTL if it cannot reach the server either.
//     Until then another host may run in the same slot, and nothing tells the two apart. So it is
//     when the server fails over: its successor knows of no lock.
//   - MaxPerTick is not kept. A request with a tick is refused, with an error that matches
//     dlock.ErrFault. Set MaxPerTick: timer.NoLimit; a short job then runs once per host and tick.
//     A timer without it does not run: each of its ticks is skipped, with that error as the reason.
//   - There are no fences, nobody learns who holds a lock, and hosts that disagree on the number of
//     slots do not notice. Nor does anybody learn that a slot was abandoned, or when a name last
//     succeeded: Grant.PreviousExpired is false, and Info.SinceSuccess 0.
//   - It is no dlock.Controller: nobody can pause a name, set a limit, trigger a run, or revoke a
//     lease.
//   - An attempt may be refused although there was a free slot at every moment, if slots change
//     hands while it looks at one after the other.
//   - It needs a connection of its own to the one server that grants: no pooler that shares
//     connections (PgBouncer with pool_mode=transaction or statement), no replica, no cluster of
//     several primaries. What can be found out about that is, and is refused with the reason: when
//     the connection is made a second one is opened for a moment, which must not get what the first
//     one holds. Every answer tells whether the session still is the same.
//   - SQLServerAppLock is experimental: it has not been run against a server.
//
// # What is kept
//
// One holder per slot while the connections last; a lease that is not extended ends after its TTL,
// because this process unlocks it; what a process holds is free as soon as it dies. How long a host
// keeps its locks that was stopped, or has vanished without closing its connection, is said at
// PostgresAdvisory, MySQLGetLock and SQLServerAppLock. A grant is of use only to the Store that got
// it, not to another process that knows its token.
//
// # Connections
//
// All locks of a process are held on one connection. It is taken out of the *sql.DB at the first
// use, replaced when it breaks, and kept until Close; so the pool has one connection less, and must
// allow for two. Calls wait for each other, and each is one round trip. One that the server does
// not answer goes on after its caller has given up, because to interrupt it would end the
// connection and every lease with it, until the last lease has ended.
//
// A run whose connection breaks is cancelled with dlock.ErrLost at the next heartbeat, whatever the
// timer's OnStoreDown: its lock has certainly ended. Call Close before the *sql.DB is closed.
//
// # Within a transaction
//
// TryXactLock takes an advisory lock of Postgres that ends with a transaction. It has nothing to do
// with a Store.
package nativelock
