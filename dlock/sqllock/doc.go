// Package sqllock is a dlock store on the SQL database that you already have: Postgres, MySQL or
// MariaDB, SQLite, and, experimental, SQL Server.
//
//	lock := sqllock.Postgres(db, sqllock.Options{Prefix: "shop:"}) // or MySQL, SQLite, SQLServer; pgxlock.New for a pgxpool
//	defer lock.Close()
//	if err := lock.Migrate(ctx); err != nil { … }
//
// It keeps the same promises as the store on Redis, and loses nothing but latency: the database's
// clock decides when a lease ends, slot and start of a tick are taken in one atomic step, and
// nothing is refused as full while a slot is free. Unlike a Redis, a database that crashes comes
// back with what it had granted.
//
// # What is not promised
//
//   - A database that fails over to a copy which lacked the last commits (asynchronous replication), or that is restored
//     from a backup, has forgotten leases; slots may then be granted twice, until the old holders' next heartbeat finds
//     them lost, at most a third of the TTL later. Synchronous replication closes that window. So does whoever empties the
//     table, or deletes rows of locks that are held.
//
//   - The server's clock is a wall clock. If it steps forward by more than is left of a lease, the lease ends early for the
//     database while its holder still trusts it.
//
//   - The store grants what the database answers. Reads from a replica would be of the past: connect to the primary. A server that has
//     become read-only is an error of the store, until it is the primary again or the connections lead to the new one.
//
//   - SQLServer is experimental: it has not been run against a server, only its statements are tested as texts.
//
//   - Rows of locks that somebody deleted are found again in a while only where there are many slots: an attempt looks for gaps among 16 of them
//     (SQLite: 64). Until then that slot is not granted.
//
// # The table
//
//	resource_name      | slot | lock_id | fence | acquired_at | expires_at | released_at | host_name | …
//	timer:orders:slot: |   -1 |                                              the latest tick, how often it was started and by whom, how many slots, the last
//	                                                                         success, and overrides: a pause, a limit, a run
//	timer:orders:slot: |    0 | token   | grows | …                          the lock timer:orders:slot:0
//	nightly-report     |    0 |                                              a mutex
//
// Rows are kept when a lock is released. They carry its fence on, and tell who had it last and
// when. A lock is held while expires_at is in the future. Cleanup deletes what has been idle for
// Options.Retention, but not overrides.
//
// Migrate makes the table, and on Postgres and MySQL the routines that do the work in one call.
// Schema returns what it executes, for those who apply their own migrations; Verify then tells at
// start-up whether the schema is right.
//
// Two versions of this package can share a table, as in a rolling update: the names of the routines
// end with their version, and further columns do no harm. A version that keeps its rows in a way
// that older ones would misread says so in the row with slot -1 and an empty name, which every
// acquire reads: the older ones then grant nothing, with an error that matches dlock.ErrSetup and
// says that the host is to be updated. What they hold they may extend and release.
//
// # Privileges
//
// Whoever calls Migrate owns the table. The role that the service runs under needs no more than
//
//	Postgres:  GRANT USAGE ON SCHEMA … TO app; GRANT SELECT, INSERT, UPDATE, DELETE ON distributed_locks TO app;
//	MySQL:     GRANT SELECT, INSERT, UPDATE, DELETE ON db.distributed_locks TO app; GRANT EXECUTE ON PROCEDURE db.distributed_locks_acquire_v1 TO app;
//	           and the same for _extend_v1, _release_v1, _cleanup_v1, _update_v1 and _revoke_v1
//
// DELETE is for Cleanup only. Postgres lets everybody execute a function unless that was revoked.
//
// # Connections and time-outs
//
// Give the store a *sql.DB (or pool) of its own, opened like the application's, with a handful of
// connections: if it shares one, and the application has all its connections in use, heartbeats
// wait for them, and leases are lost. pgxlock opens such a pool by itself.
//
// Every call ends with its context: a dlock.Session sets StoreTimeout (1 s by default). Locks
// inside the database are waited for no longer than nine tenths of that, so that no statement is
// left behind there, and its answer is heard: a row that somebody else keeps locked costs that
// slot, or that lease, and the error says so. It matches dlock.ErrFault.
package sqllock
