// Package sqlmigrate creates and upgrades the tables of one package in a database: numbered
// migrations that only go forward, by any number of hosts at the same time, and as text for those
// who execute them on their own. Package goose decides what is due and runs it; this package has
// what goose leaves to others: a lock that works behind poolers, the table of versions, and the
// text.
//
// A package that has tables makes a Schema of them for the database and the names of its options,
// and calls it in its own Migrate, Verify and Schema:
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
// The required columns and indexes are read from the statements that create them. On Postgres name
// a Schema, or the search_path decides, which behind a pooler another client may have set. The name
// of an index or table has at most 63 bytes there.
//
// # What a package promises
//
//   - A migration that was released is never changed, moved or taken out: hosts identify it by its
//     number, which is its place in the list, from 1.
//   - Each statement can be executed again (CREATE TABLE IF NOT EXISTS): the table may have been
//     made by hand, and on MySQL every statement of DDL commits, so that a host that dies leaves
//     half a migration. There, "exists already" of a table, column, key or routine is no error;
//     make each change of a table a statement of its own.
//   - Older hosts work with the tables of newer ones: a migration adds columns and tables, and
//     removes none that a host which still runs may need. Up and Verify of an older host accept
//     higher numbers. If an older version would misread a package's rows, the package itself has
//     to detect that.
//   - The statements of Repeat create what is missing and change nothing else. They are executed
//     after the migrations, whenever Up is called: routines whose names end with a version, and
//     indexes.
//   - Statements have no parameters, and names in them are quoted and have their schema. No
//     statement begins, commits or rolls back a transaction.
//
// # What it promises
//
// If several hosts call Up, only one applies migrations at a time. On Postgres and SQL Server each
// migration is one transaction, with a lock that belongs to it, which also holds behind a PgBouncer
// in transaction mode. On SQLite it is one transaction, too, with the file's write lock. On MySQL a
// lock of the connection (GET_LOCK) is held while migrations run. A host that stops for longer than
// 10 s in the middle loses lock and transaction on Postgres and MySQL; on SQLite and SQL Server the
// others wait until it continues or dies.
//
// Up and Verify return when their context ends, even if the server does not answer; a statement in
// progress may still be carried out then, or not. Call them again to find out. Waits for locks end
// at nine tenths of the context's time, or after 5 s if it has no deadline.
//
// The table of versions is called Name_migrations, so that several sets of tables in one database
// do not mix. A user that calls Verify needs SELECT on it. A user that calls Up while migrations
// are missing needs the right to create tables.
package sqlmigrate
