// Package sqlmigrate creates and upgrades the tables of one package in a database: numbered
// migrations that only go forward, any number of hosts at once, and the same as text for those who
// execute it themselves. Package goose decides what is due and runs it; this package has what goose
// leaves to others: a lock that works behind poolers, the table of versions, and the text.
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
// What the tables need to have is read from the statements that create them. On Postgres name a
// Schema, or the search_path decides, which behind a pooler another client may have set. The name
// of an index or table has at most 63 bytes there.
//
// # What a package promises
//
//   - A migration that was released is never changed, moved or taken out: hosts go by its number,
//     which is its place in the list, from 1.
//   - Each statement can be executed again (CREATE TABLE IF NOT EXISTS): somebody may have made the
//     table by hand, and on MySQL every statement of DDL commits, so that a host that dies leaves
//     half a migration. There, "exists already" of a table, column, key or routine is no error;
//     make each change of a table a statement of its own.
//   - Older hosts work with the tables of newer ones: a migration adds columns and tables, and
//     takes none away that a host which still runs may need. Up and Verify of an older host are
//     content with higher numbers. A package whose rows an older one would misread says so itself.
//   - What Repeat has creates what is missing and changes nothing else. It is executed after the
//     migrations, whenever Up is called: routines whose names end with a version, and indexes.
//   - Statements have no parameters, and names in them are quoted and have their schema. No
//     statement begins, commits or rolls back a transaction.
//
// # What it promises
//
// If several hosts call Up, only one applies migrations at a time. On Postgres and SQL Server each
// migration is one transaction, with a lock that belongs to it, which also holds behind a PgBouncer
// in transaction mode. On SQLite it is one transaction, too, with the file's write lock. On MySQL a
// lock of the connection (GET_LOCK) is held while migrations run. A host that stops for longer than
// 10 s in the middle loses lock and transaction on Postgres and MySQL; on SQLite the others wait
// until it goes on or dies, and on SQL Server, too.
//
// Up and Verify return when their context ends, whatever the server does; a statement under way
// may still be carried out then, or not. Call them again to know. Waits for locks end at nine
// tenths of the context's time, or after 5 s if it has no deadline.
//
// The table of versions is called Name_migrations, so that several sets of tables in one database
// do not mix. A user that calls Verify needs SELECT on it. A user that calls Up while migrations
// are missing needs the right to create tables.
package sqlmigrate
