// Package sqlregistry keeps the registry of package cluster in a table of the SQL database that you
// already have: Postgres, MySQL or MariaDB, SQLite, and, experimental, SQL Server.
//
//	registry := sqlregistry.MySQL(db, sqlregistry.Options{}) // or SQLite, SQLServer, Postgres
//	if err := registry.Migrate(ctx); err != nil { … }
//
// Package pgxregistry opens the store on Postgres with a *pgxpool.Pool.
//
// The locks may be anywhere else: the registry only describes them. Each call is one statement: a
// batch of any size is one insert, which updates the rows that exist.
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
// the last of these ended, and grant_id the last outcomes, a letter each. A bucket has a row for each
// bin of durations that occurred, slot: bin n has those of up to 2^(n-1) ms. There slots is the
// width of the bucket in minutes, fence how many runs ended in it, pid how many of them failed,
// up_for how long they took together, and ttl the longest of them, in microseconds. A bucket of the
// whole fleet has no lock_name and no bins, and is spread over several rows. In the row of a host
// fence is the number of the last batch whose runs were counted.
//
// A mutex has slots 0. A lease that has ended and was not released was lost, or its holder died:
//
//	-- Postgres: who holds what, as its holder last said
//	SELECT lock_name, slot, node_id, kind, acquired_at, renewed_at, expires_at FROM tickslot_registry
//	WHERE sort = 'lease' AND released_at IS NULL AND expires_at > now();
//	-- Postgres: who is there
//	SELECT node_id, renewed_at FROM tickslot_registry WHERE sort = 'host' AND released_at IS NULL;
//
// On Postgres heartbeats are HOT updates, which leave little to VACUUM: they change no column that
// an index has, and the table has a fillfactor of 70.
//
// Times are by the database's clock: clients send durations, measured from the beginning of the
// call, even if it has to wait for a connection or a lock. Fields that are not meant for queries
// are in the column data, as JSON.
//
// Text is stored unchanged, except NUL and invalid UTF-8, which become U+FFFD. Names are cut after
// 512 bytes, other words (hosts, kinds, versions) after 255, and texts and errors after 4,096,
// between runes, with … at their end. IDs that are longer than 255 bytes end with a hash.
//
// Migrate creates and upgrades the table; Schema returns its statements for programs that apply
// their own migrations, and call Verify at start-up. Two versions of this package can share a table
// during a rolling update: columns that a version does not know are left alone.
//
// # Errors
//
// An error that lasts until the set-up is repaired (no table, no right, a wrong password, a
// database with another encoding) matches dlock.ErrSetup, and says how. After any other it is not
// known whether the call was carried out: it may be repeated. Calls that fail because of a
// concurrent one (deadlocks) are repeated until the context ends. Every call returns when its
// context ends; without a deadline a call on SQLite ends after 5 s.
//
// # Privileges
//
// The user that calls Migrate owns the table. The role of the service needs only
//
//	Postgres:  GRANT USAGE ON SCHEMA … TO app
//	           GRANT SELECT, INSERT, UPDATE, DELETE ON tickslot_registry TO app
//	           GRANT SELECT ON tickslot_registry_migrations TO app
//	MySQL:     GRANT SELECT, INSERT, UPDATE, DELETE ON db.tickslot_registry TO app
//	           GRANT SELECT ON db.tickslot_registry_migrations TO app
//
// Only Sweep needs DELETE. Without that right the rest works, but old rows stay, unless another
// host sweeps them; tickslot_cluster_failing of this host is 1 from its first sweep on, and the
// state of its runner "writer" is "failing".
//
// # What is not promised
//
//   - A row is the last write of its host, and may be outdated: its lease may have ended, and a
//     lease may be held that has no row. Locks do not depend on it.
//   - A batch is one statement, and so one transaction. If a failover loses its commit, the next
//     write of each row repairs it; events and runs in it are lost.
//   - Each Read reads the whole registry, even with tens of thousands of leases.
//   - SQLServer is experimental: it has not been run against a server. Only the texts of its
//     statements are tested.
package sqlregistry
