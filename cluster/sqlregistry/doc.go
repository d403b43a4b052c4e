// Package sqlregistry keeps the registry of package cluster in a table of your existing SQL
// database: Postgres, MySQL or MariaDB, SQLite, and, experimentally, SQL Server.
//
//	registry := sqlregistry.MySQL(db, sqlregistry.Options{}) // or SQLite, SQLServer, Postgres
//	if err := registry.Migrate(ctx); err != nil { … }
//
// Package pgxregistry opens the store on Postgres with a *pgxpool.Pool.
//
// The registry only describes locks, so the locks may be in another store. Each call is one
// statement: a batch of any size is one insert that updates existing rows.
//
// # The table
//
//	sort   | id              | lock_name    | node_id    | kind     | …
//	host   | web-1/4711/k3x9 |              | web-1/4711 |          | renewed_at: its last heartbeat
//	lease  | 3:timer:orders  | timer:orders | web-1/4711 | timer    | acquired_at, renewed_at, expires_at
//	event  | its ID          | the lease    | its host   | acquired | happened_at
//	run    | its ID          | the timer    | its host   | ok       | happened_at: when it ended
//	timer  | orders          | the timer    | its host   | ok       | renewed_at: when its last run ended
//	fine   | 9:mail:5982137  | the timer    |            |          | happened_at: when the bucket began
//	coarse | 9:mail:498511   | the timer    |            |          | happened_at: when the bucket began
//
// A row of a timer describes its last run, and all its runs: released_at is when the last success
// ended, up_for how many runs failed in a row since, acquired_at and expires_at when the first and
// the last of these ended, and grant_id the last outcomes, a letter each. A bucket has a row for
// each bin of durations that occurred: slot n has those of up to 2^(n-1) ms. There slots is the
// width of the bucket in minutes, fence how many runs ended in it, pid how many of them failed,
// up_for how long they took together, and ttl the longest of them, in microseconds. A bucket of the
// whole fleet has no lock_name and no bins, and is spread over several rows. In the row of a host
// fence is the number of the last batch whose runs were counted.
//
// In a bucket, slots is the width in minutes, fence is the number of runs that ended in it, and pid
// is the number of those that failed. up_for is their total duration and ttl the longest duration,
// both in microseconds. A bucket of the whole fleet has no lock_name and is spread over several
// rows. In a host row, fence is the number of the last batch whose runs were counted.
//
// A mutex has slots 0. A lease that has expired without being released was lost, or its holder
// died:
//
//	-- Postgres: who holds what, as last reported by the holder
//	SELECT lock_name, slot, node_id, kind, acquired_at, renewed_at, expires_at FROM tickslot_registry
//	WHERE sort = 'lease' AND released_at IS NULL AND expires_at > now();
//	-- Postgres: which hosts are running
//	SELECT node_id, renewed_at FROM tickslot_registry WHERE sort = 'host' AND released_at IS NULL;
//
// On Postgres, heartbeats are HOT updates, which leave little work for VACUUM: they change no
// indexed column, and the table has a fillfactor of 70.
//
// Times are by the database's clock. Clients send durations measured from the start of the call, so
// waiting for a connection or a lock does not distort them. Fields that are not meant for queries
// are stored as JSON in the column data.
//
// Text is stored unchanged, except that NUL and invalid UTF-8 become U+FFFD. Names are cut after
// 512 bytes, other words (hosts, kinds, versions) after 255, and texts and errors after 4,096. A
// cut text ends with … and is cut between runes. IDs longer than 255 bytes are cut and end with a
// hash.
//
// Migrate creates and upgrades the table. Programs that apply their own migrations get the
// statements from Schema and call Verify at start-up. Two versions of this package can share a
// table during a rolling update: a version leaves columns that it does not know unchanged.
//
// # Errors
//
// An error that persists until the setup is repaired (a missing table or permission, a wrong
// password, a database with another encoding) matches dlock.ErrSetup and describes the repair.
// After any other error the outcome of the call is unknown, and the call may be repeated. A call
// that fails because of a concurrent one (a deadlock) is repeated until its context ends. Every
// call returns when its context ends; without a deadline, a call on SQLite ends after 5 s.
//
// # Privileges
//
// The user that calls Migrate owns the table. The role of the service only needs:
//
//	Postgres:  GRANT USAGE ON SCHEMA … TO app
//	           GRANT SELECT, INSERT, UPDATE, DELETE ON tickslot_registry TO app
//	           GRANT SELECT ON tickslot_registry_migrations TO app
//	MySQL:     GRANT SELECT, INSERT, UPDATE, DELETE ON db.tickslot_registry TO app
//	           GRANT SELECT ON db.tickslot_registry_migrations TO app
//
// Only Sweep needs DELETE. Without that right everything else works, but old rows stay unless
// another host sweeps them. From the first failed Sweep on, this host's metric
// tickslot_cluster_failing is 1, and the state of its runner "writer" is "failing".
//
// # What is not promised
//
//   - A row shows the last write of its host and may be outdated: the lease may have expired since,
//     and a held lease may have no row. Locks do not depend on the registry.
//   - A batch is one statement and therefore one transaction. If a failover loses its commit, the
//     next write of each row repairs it, but events and runs in the batch are lost.
//   - Each Read reads the whole registry, even with tens of thousands of leases.
//   - SQLServer is experimental: it has not been run against a server. Only the texts of its
//     statements are tested.
package sqlregistry
