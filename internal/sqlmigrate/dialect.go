package sqlmigrate

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tickslot/tickslot/internal/sqlkit"
)

// createVersions returns the statement that creates the version table.
func (s Schema) createVersions() string {
	table := s.Versions()
	switch s.Dialect {
	case sqlkit.MySQL:
		return "CREATE TABLE IF NOT EXISTS " + table + " (\n\tversion    BIGINT NOT NULL PRIMARY KEY,\n" +
			"\tapplied_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)\n) ENGINE = InnoDB"
	case sqlkit.SQLite:
		return "CREATE TABLE IF NOT EXISTS " + table + " (\n\tversion    INTEGER NOT NULL PRIMARY KEY,\n" +
			"\tapplied_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP\n) STRICT"
	case sqlkit.SQLServer:
		return "IF OBJECT_ID(N" + sqlkit.Text(table) + ", N'U') IS NULL\nCREATE TABLE " + table +
			" (\n\tversion    bigint NOT NULL PRIMARY KEY,\n" +
			"\tapplied_at datetime2(6) NOT NULL DEFAULT SYSUTCDATETIME()\n)"
	}
	return "CREATE TABLE IF NOT EXISTS " + table + " (\n\tversion    bigint PRIMARY KEY,\n" +
		"\tapplied_at timestamptz NOT NULL DEFAULT pg_catalog.now()\n)"
}

// record returns a statement that records a migration as applied, once.
func (s Schema) record(version int64) string {
	table := s.Versions()
	insert, values := " INTO "+table+" (version)", fmt.Sprintf(" VALUES (%d)", version)
	switch s.Dialect {
	case sqlkit.MySQL:
		return "INSERT IGNORE" + insert + values
	case sqlkit.SQLServer:
		return fmt.Sprintf("INSERT%s SELECT %d WHERE NOT EXISTS (SELECT 1 FROM %s WHERE version = %[2]d)",
			insert, version, table)
	}
	return "INSERT" + insert + values + " ON CONFLICT DO NOTHING"
}

// forget returns a statement that deletes the records of migrations if the first table is missing.
func (s Schema) forget() string {
	gone := "pg_catalog.to_regclass(" + sqlkit.Text(s.Dialect.Qualified(s.Schema, s.Table)) + "::text) IS NULL"
	switch s.Dialect {
	case sqlkit.MySQL:
		schema := "DATABASE()"
		if s.Schema != "" {
			schema = sqlkit.Text(strings.ReplaceAll(s.Schema, `\`, `\\`))
		}
		gone = "NOT EXISTS (SELECT 1 FROM information_schema.tables WHERE table_schema = " + schema +
			" AND table_name = " + sqlkit.Text(strings.ReplaceAll(s.Table, `\`, `\\`)) + ")"
	case sqlkit.SQLite:
		gone = "NOT EXISTS (SELECT 1 FROM main.sqlite_master WHERE name = " + sqlkit.Text(s.Table) + " COLLATE NOCASE)"
	case sqlkit.SQLServer:
		gone = "OBJECT_ID(N" + sqlkit.Text(s.Dialect.Qualified(s.Schema, s.Table)) + ", N'U') IS NULL"
	}
	return "DELETE FROM " + s.Versions() + " WHERE " + gone
}

// lastWait bounds waits in the database if the context has no deadline. It always bounds the wait
// for a table, because other statements queue behind a statement that waits to alter their table.
const lastWait = sqlkit.LastResort

// pause is how long a host with the lock may be idle, as if it were suspended, before the server
// ends its session.
const pause = 10 * time.Second

func wait(ctx context.Context) time.Duration { return sqlkit.MaxWait(ctx, 24*time.Hour) }

// An executor is a *sql.Tx or a *sql.Conn.
type executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// lock gives a transaction exclusive use of this version table until it ends. MySQL uses a lock of
// the connection instead: see mysqlLock.
func (s Schema) lock(ctx context.Context, tx executor) error {
	versions := s.Versions()
	var statements []string
	switch s.Dialect {
	case sqlkit.Postgres:
		// With a stricter isolation level, which may be the default, the transaction would not see
		// what others have committed while it waited. lock_timeout also bounds the wait for an
		// advisory lock.
		statements = []string{
			"SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
			"SELECT " + setLocal("lock_timeout", wait(ctx)) + ", " +
				setLocal("idle_in_transaction_session_timeout", pause) +
				", pg_catalog.set_config('search_path'::text, 'pg_catalog, pg_temp'::text, true)",
			"SELECT pg_catalog.pg_advisory_xact_lock(" + strconv.FormatInt(key(versions), 10) + "::bigint)",
			"SELECT " + setLocal("lock_timeout", min(wait(ctx), lastWait)),
		}
	case sqlkit.SQLite: // any write takes the lock of the file, even if it changes no row
		statements = []string{s.touch()}
	case sqlkit.SQLServer:
		statements = []string{fmt.Sprintf("SET XACT_ABORT ON;\nSET LOCK_TIMEOUT %d;\nDECLARE @got int;\n"+
			"EXEC @got = sp_getapplock @Resource = N'tickslot migrate %x', @LockMode = 'Exclusive', "+
			"@LockOwner = 'Transaction', @LockTimeout = %d;\n"+
			"IF @got < 0 THROW 51222, N'another host is migrating', 1;",
			min(wait(ctx), lastWait).Milliseconds(), uint64(key(versions)), wait(ctx).Milliseconds())}
	}
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("waiting for other hosts that migrate: %w", err)
		}
	}
	return nil
}

// touch returns a statement that writes but changes no row.
func (s Schema) touch() string {
	return "UPDATE " + s.Versions() + " SET version = version WHERE version < 0"
}

// setLocal returns an expression that sets a Postgres timeout until the transaction ends.
func setLocal(name string, d time.Duration) string {
	return fmt.Sprintf("pg_catalog.set_config('%s'::text, '%d'::text, true)", name, d.Milliseconds())
}

// key returns the number of the lock for a version table.
func key(versions string) (n int64) {
	sum := sha256.Sum256([]byte("tickslot migrate " + versions))
	for _, b := range sum[:8] {
		n = n<<8 | int64(b)
	}
	return n
}

// existsAlready reports whether a statement failed because it was executed before. On MySQL, half
// of a migration may have been executed.
func (s Schema) existsAlready(err error) bool {
	return s.Dialect == sqlkit.MySQL && slices.Contains(exists, sqlkit.MySQLNumber(err))
}

// exists are the errors for an existing table, column, key, routine or foreign key, and for
// dropping something that does not exist.
var exists = []string{"1050", "1060", "1061", "1304", "1091", "1826"}

// isMissing reports whether a query failed because its table does not exist.
func isMissing(err error) bool {
	state := sqlkit.State(err)
	return state == "42P01" || state == "42S02" || err != nil && strings.Contains(err.Error(), "no such table")
}
