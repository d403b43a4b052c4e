// Package sqllock is a dlock store on the SQL database that you already have: Postgres, MySQL or
// MariaDB, SQLite, and, experimental, SQL Server.
//
//	store := sqllock.Postgres(db, sqllock.Options{Prefix: "shop:"}) // or MySQL, SQLite, SQLServer
//	defer store.Close()
//	if err := store.Migrate(ctx); err != nil { … }
//
// With a pgxpool, use package pgxlock. The store keeps the promises of the store on Redis, but has
// a higher latency. The database's clock decides when a lease ends. One transaction takes a slot
// and a start of a tick, and no request is refused as full while a slot is free. Leases survive a
// crash of the database.
//
// # What is not promised
//
//   - After a failover to a copy without the last commits (asynchronous replication), or after a
//     restore from a backup, leases are missing. A slot may then be granted twice until the old
//     holder's next heartbeat, at most a third of the TTL later. The same happens if the table is
//     emptied or rows of held locks are deleted. With synchronous replication, a failover loses no
//     lease.
//
//   - The server's clock is a wall clock. If it steps forward by more than the remaining time of a
//     lease, the lease ends in the database while its holder still trusts it.
//
//   - Reads from a replica may be stale, so connect to the primary. If the server becomes
//     read-only, every call returns an error until the server is the primary again or the
//     connections lead to the new primary.
//
//   - SQLServer is experimental: it has not been run against a server. Only the texts of its
//     statements are tested.
//
//   - If a name has many slots, a slot whose row was deleted by hand may not be granted for a
//     while. An acquire looks for missing rows among 16 slots (SQLite: 64).
//
// # The table
//
//	resource_name      | slot | lock_id | fence | acquired_at | expires_at | released_at | …
//	timer:orders:slot: |   -1 |   the last tick, its starts and who claimed it, declared slots,
//	                              the last success, and overrides: a pause, a limit, a run
//	timer:orders:slot: |    0 | token   | grows | …           the lock timer:orders:slot:0
//	nightly-report     |    0 | token   | grows | …           a mutex
//
// A lock is held while expires_at is in the future. A release keeps the lock's row, which stores
// the fence and the last holder. Cleanup deletes rows that have been idle for Options.Retention,
// but not overrides.
//
// acquired_at is when the lease was granted, and renewed_at when it was last granted or extended.
// If expires_at is in the past but not 1970, the lock was never released, because its holder died
// or lost it. Names are VARBINARY on MySQL, because its collations treat 'job', 'JOB' and 'job ' as
// equal.
//
//	-- Postgres: who holds what
//	SELECT resource_name, slot, host_name, process_id, acquired_at, expires_at
//	FROM distributed_locks WHERE slot >= 0 AND expires_at > now();
//	-- MySQL, MariaDB: times are UTC
//	SELECT CONVERT(resource_name USING utf8mb4) AS resource_name, slot, host_name, process_id,
//	acquired_at, expires_at FROM distributed_locks WHERE slot >= 0 AND expires_at > UTC_TIMESTAMP(6);
//	-- SQLite: times are microseconds since 1970
//	SELECT resource_name, slot, host_name, process_id, datetime(expires_at / 1000000, 'unixepoch')
//	FROM distributed_locks WHERE slot >= 0 AND expires_at > unixepoch() * 1000000;
//
// In the row with slot -1, host_name and the other holder columns describe the host that claimed
// the tick. tick_starts and slots come from the latest grant, succeeded_at is when a run last
// succeeded, and starts has the starts of a limit with a Rate. Overrides are paused_until (NULL
// after the pause was ended early, at resumed_at), slot_limit and triggered_at, each with an origin
// as JSON (pause_origin and so on). Hosts notice a change by overrides_version. In the row of the
// name tickslot:trigger:<timer>, kept_value has the timer's triggers that no host has started yet,
// with their payloads.
//
// Migrate creates the table and, on Postgres and MySQL, the routines that make each operation one
// call. It records the version of the table in a second table, TableName_migrations. If you apply
// your own migrations, Schema returns Migrate's statements; call Verify at startup in this case.
//
// Two versions of this package can share a table during a rolling update: the names of the routines
// include their version, and additional columns are ignored. A version that changes the meaning of
// rows stores a higher format in the row with slot -1 and an empty name. Every acquire reads that
// row. So older versions stop granting and return an error that matches driver.ErrSetup and asks
// for an update of the host. They may still extend and release their leases.
//
// # Privileges
//
// The user that calls Migrate owns the tables. The role of the service needs only
//
//	Postgres:  GRANT USAGE ON SCHEMA … TO app
//	           GRANT SELECT, INSERT, UPDATE, DELETE ON distributed_locks TO app
//	           GRANT SELECT ON distributed_locks_migrations TO app
//	MySQL:     GRANT SELECT, INSERT, UPDATE, DELETE ON db.distributed_locks TO app
//	           GRANT SELECT ON db.distributed_locks_migrations TO app
//	           GRANT EXECUTE ON PROCEDURE db.distributed_locks_acquire_v1 TO app
//	           and the same for _extend_v1, _release_v1, _cleanup_v1, _update_v1 and _revoke_v1
//
// Only Cleanup needs DELETE. Postgres lets every role execute functions unless that was revoked.
//
// # Connections and timeouts
//
// Give the store its own *sql.DB with a handful of connections. If the store shares a *sql.DB with
// the application, and the application uses all connections, heartbeats wait and leases are lost.
// pgxlock opens its own pool.
//
// Every call ends with its context; a dlock.Session sets StoreTimeout (1 s by default). The
// database waits for locks for at most nine tenths of that time, so no statement outlives its
// caller, and the caller still gets the answer. If another session keeps a row locked, only the
// row's slot or lease is affected. The error says so and matches driver.ErrFault.
package sqllock
