// Package nativelock is a dlock store on the locks that a database keeps for a connection: advisory
// locks in Postgres, GET_LOCK in MySQL and MariaDB, application locks in SQL Server.
//
//	store := nativelock.PostgresAdvisory(db, nativelock.Options{Prefix: "shop:"})
//	defer store.Close()
//
// It needs no table and writes nothing, but it promises less than sqllock. Use sqllock unless you
// may not create a table.
//
// # What is not promised
//
//   - MaxConcurrency can be exceeded. A lock ends with its connection. If the connection breaks or
//     an administrator ends it (pg_terminate_backend, KILL), the host learns of this at its next
//     heartbeat. That is a third of a TTL later, or a whole TTL if it cannot reach the server.
//     Until then, another host may run in the same slot, and nothing tells the two apart. The same
//     happens at a failover, because the new primary has none of the locks.
//   - MaxPerTick is not supported. A request with a tick is refused with an error that matches
//     driver.ErrFault. A timer must therefore set MaxPerTick: timer.NoLimit. Otherwise it never
//     runs, and each tick is skipped with this error as the reason. With NoLimit, a short job runs
//     once per host and tick.
//   - There are no fences, refusals do not name the holder, and hosts are not told when they
//     declare different numbers of slots. Grant.PreviousExpired is always false, and
//     Info.SuccessAge is always 0.
//   - The store is not a driver.Controller: names cannot be paused, limited or triggered, and
//     leases cannot be revoked.
//   - If slots change hands while an acquire tries them one after the other, it may be refused
//     although a slot was free at every moment.
//   - The store needs a connection to the one server that grants. It does not work with a pooler
//     that shares connections (PgBouncer with pool_mode=transaction or statement), a replica, or a
//     cluster with several primaries. It detects most of these and refuses them with the reason.
//     For this, it briefly opens a second connection when it connects, and that connection must not
//     get the locks of the first. Every answer also says which session gave it.
//   - SQLServerAppLock is experimental: it has not been run against a server.
//
// # What is promised
//
// Each slot has one holder while the connections last. A lease that is not extended ends after its
// TTL, because this process unlocks it. The locks of a process that dies are free immediately. If a
// host is stopped, or vanishes without closing its connection, it keeps its locks for the time that
// PostgresAdvisory, MySQLGetLock and SQLServerAppLock document. A grant is valid only for the Store
// that returned it: another process cannot use its token.
//
// # Connections
//
// One connection holds all locks of a process. The store takes it out of the *sql.DB at the first
// use, replaces it when it breaks, and keeps it until Close. So the pool has one connection less,
// and it must allow at least two. The store makes one call after the other, one round trip each. If
// a call's context ends, the call returns, but its statement may run until the last lease has
// ended. Interrupting it would end the connection and with it every lease.
//
// If the connection breaks, its locks end. The next heartbeat cancels the runs with
// dlock.ErrLost, whatever the timer's OnStoreDown. Call Close before you close the *sql.DB.
//
// # Within a transaction
//
// TryXactLock takes an advisory lock of Postgres that ends with a transaction. It is independent of
// the stores.
package nativelock
