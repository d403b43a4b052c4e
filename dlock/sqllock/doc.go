// Package sqllock is a dlock store on an SQL database: Postgres, MySQL and MariaDB, SQLite, SQL Server.
package sqllock
