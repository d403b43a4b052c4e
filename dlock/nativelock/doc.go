// Package nativelock is a dlock store on locks that a database keeps for a connection: advisory
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
//   - MaxConcurrency can be exceeded. A lock ends with its connection. A host whose connection
//     breaks, or is ended by an administrator (pg_terminate_backend, KILL), learns of it at its
//     next heartbeat: a third of a TTL later, or a whole TTL if it cannot reach the server. Until
//     then another host may run in the same slot, and nothing tells the two apart. The same happens
//     at a failover: the new primary has none of the locks.
//   - MaxPerTick is not supported. A request with a tick is refused with an error that matches
//     driver.ErrFault. So a timer that does not set MaxPerTick: timer.NoLimit never runs: each tick
//     is skipped, with that error as the reason. With NoLimit a short job runs once per host and
//     tick.
//   - There are no fences, refusals do not name the holder, and hosts that declare different
//     numbers of slots do not notice. Grant.PreviousExpired is always false, Info.SuccessAge
//     always 0.
//   - It is not a driver.Controller: names cannot be paused, limited or triggered, leases not
//     revoked.
//   - An acquire may be refused although a slot was free at every moment, if slots change hands
//     while it tries one after the other.
//   - It needs a connection to the one server that grants: no pooler that shares connections
//     (PgBouncer with pool_mode=transaction or statement), no replica, no cluster of several
//     primaries. The store detects most of these and refuses them with the reason: when it connects
//     it opens a second connection for a moment, which must not get what the first one holds, and
//     every answer says which session gave it.
//   - SQLServerAppLock is experimental: it has not been run against a server.
//
// # What is promised
//
// One holder per slot while the connections last. A lease that is not extended ends after its TTL,
// because this process unlocks it. The locks of a process that dies are free immediately.
// PostgresAdvisory, MySQLGetLock and SQLServerAppLock document how long a host keeps its locks that
// was stopped, or that vanished without closing its connection. A grant is valid only for the Store
// that returned it: another process cannot use its token.
//
// # Connections
//
// All locks of a process are held on one connection. The store takes it out of the *sql.DB at the
// first use, replaces it when it breaks, and keeps it until Close. So the pool has one connection
// less, and must allow at least two. Calls are made one after the other, one round trip each. A
// call whose context ends returns, but its statement may run until the last lease has ended,
// because interrupting it would end the connection and with it every lease.
//
// If its connection breaks, a run is cancelled with dlock.ErrLost at the next heartbeat, under
// either policy of the timer's OnStoreDown: its lock has ended. Call Close before you close the
// *sql.DB.
//
// # Within a transaction
//
// TryXactLock takes an advisory lock of Postgres that ends with a transaction. It is independent of
// the stores.
package nativelock
