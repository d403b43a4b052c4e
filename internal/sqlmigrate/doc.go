// Package sqlmigrate creates and upgrades the tables of one package in a database with numbered,
// forward-only migrations. Any number of hosts may run them at the same time, and users may get
// them as text to run them themselves. Package goose decides which migrations are due and runs
// them. This package adds a lock that works behind poolers, the version table, and the text.
//
// A package with tables creates a Schema for the database and the names in its options, and calls
// it in its own Migrate, Verify and Schema:
//
//	schema := sqlmigrate.Schema{
//		Dialect: sqlkit.Postgres, Schema: opts.Schema, Name: opts.TableName,
//		Table: opts.TableName + "_hosts", // of migration 1
//		Migrations: [][]string{
//			sqlmigrate.Statements(texts["schema"]), // migration 1, of sqlkit.ReadTexts
//			sqlmigrate.Statements(texts["events"]), // migration 2
//		},
//		Repeat: indexesAndFunctions,
//	}
//	tables := sqlmigrate.Tables{Schema: schema, Read: sqlmigrate.ReadDB(sqlkit.Postgres, db), …}
//	err := tables.Migrate(ctx)
//	err := tables.Verify(ctx)
//	list := schema.Statements() // for users who apply their own migrations
//
// The required columns and indexes are read from the statements that create them. On Postgres, set
// Schema: otherwise the search_path decides, and behind a pooler another client may have set it.
// Names of indexes and tables have at most 63 bytes on Postgres.
//
// # What a package must promise
//
//   - A released migration is never changed, moved or removed: hosts identify it by its number,
//     which is its position in the list, starting at 1.
//   - Each statement can be executed again (CREATE TABLE IF NOT EXISTS). The table may have been
//     created manually. On MySQL every DDL statement commits, so a host that dies leaves half a
//     migration; there, "already exists" for a table, column, key or routine is not an error. Make
//     each change of a table a separate statement.
//   - Older hosts work with the tables of newer ones: a migration adds columns and tables, and
//     removes none that a running host may need. Up and Verify of an older host accept higher
//     numbers. If an older version would misread a package's rows, the package itself must detect
//     that.
//   - The statements of Repeat create what is missing and change nothing else: routines whose names
//     end with a version, and indexes. They are executed after the migrations, whenever Up is
//     called.
//   - Statements have no parameters. Names in them are quoted and include their schema. No
//     statement begins, commits or rolls back a transaction.
//
// # What this package promises
//
// If several hosts call Up, only one applies migrations at a time. On Postgres and SQL Server each
// migration is one transaction with its own lock, which also works behind a PgBouncer in
// transaction mode. On SQLite it is also one transaction, with the file's write lock. On MySQL a
// lock of the connection (GET_LOCK) is held while migrations run. A host that stops for longer than
// 10 s in the middle loses lock and transaction on Postgres and MySQL. On SQLite and SQL Server the
// others wait until it continues or dies.
//
// Up and Verify return when their context ends, even if the server does not answer. The statement
// in progress may still be executed after that; call Up or Verify again to find out. Waits for
// locks end at nine tenths of the context's time, or after 5 s without a deadline.
//
// The version table is named Name_migrations, so that several sets of tables can share a database.
// A user that calls Verify needs SELECT on it. A user that calls Up while migrations are missing
// needs the right to create tables.
package sqlmigrate
