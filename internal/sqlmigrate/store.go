package sqlmigrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pressly/goose/v3/database"

	"github.com/tickslot/tickslot/internal/sqlkit"
)

// store is goose's view of the table of versions. goose's own stores do not fit: they take names
// that need no quotes, and their statements have parameters, which drivers prepare, and a pooler
// that shares connections may not have the prepared statement in the next one.
type store struct {
	Schema
	versions string
}

// Tablename implements database.Store.
func (s store) Tablename() string { return s.versions }

// TableExists makes goose leave the table to Up. goose itself would ask three times for what the
// user may not create, with a second between.
func (s store) TableExists(context.Context, database.DBTxConn) (bool, error) { return true, nil }

// CreateVersionTable implements database.Store. It is not called, because of TableExists.
func (s store) CreateVersionTable(context.Context, database.DBTxConn) error {
	return database.ErrNotImplemented
}

// Insert records a migration. Another host may have done so meanwhile: see step.
func (s store) Insert(ctx context.Context, db database.DBTxConn, req database.InsertRequest) error {
	_, err := db.ExecContext(ctx, s.Dialect.record(s.versions, req.Version))
	return err
}

// Delete implements database.Store. Nothing goes back.
func (s store) Delete(context.Context, database.DBTxConn, int64) error {
	return database.ErrNotImplemented
}

// GetMigration implements database.Store. goose asks it for its Status and ApplyVersion only.
func (s store) GetMigration(context.Context, database.DBTxConn, int64) (*database.GetMigrationResult, error) {
	return nil, database.ErrNotImplemented
}

// GetLatestVersion implements database.Store.
func (s store) GetLatestVersion(ctx context.Context, db database.DBTxConn) (latest int64, err error) {
	err = sqlkit.QueryRow(ctx, db, s.LatestQuery(), nil, &latest)
	return latest, err
}

// ListMigrations implements database.Store. goose wants a version 0, which we do not store.
func (s store) ListMigrations(ctx context.Context, db database.DBTxConn) ([]*database.ListMigrationsResult, error) {
	var list []*database.ListMigrationsResult
	query := "SELECT version FROM " + s.versions + " ORDER BY version DESC"
	err := sqlkit.EachRow(ctx, db, query, nil, func(rows *sql.Rows) error {
		applied := &database.ListMigrationsResult{IsApplied: true}
		list = append(list, applied)
		return rows.Scan(&applied.Version)
	})
	return append(list, &database.ListMigrationsResult{IsApplied: true}), err
}

// isApplied reports whether a migration is recorded.
func (s store) isApplied(ctx context.Context, tx *sql.Tx, version int64) (bool, error) {
	var n int
	query := fmt.Sprintf("SELECT COUNT(*) FROM %s WHERE version = %d", s.versions, version)
	err := sqlkit.QueryRow(ctx, tx, query, nil, &n)
	return n > 0, err
}

// mysqlLock is goose's lock for MySQL: one of the connection, because DDL ends transactions. It
// also gives the session settings for what migrations create.
type mysqlLock struct {
	key          int64
	mode, commit string // settings of the session
	idle, tables int64
}

// SessionLock implements lock.SessionLocker.
func (l *mysqlLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, mysqlAnew); err != nil {
		return err
	}
	if err := sqlkit.QueryRow(ctx, conn, "SELECT @@SESSION.sql_mode, @@SESSION.completion_type, "+
		"@@SESSION.wait_timeout, @@SESSION.lock_wait_timeout", nil, &l.mode, &l.commit, &l.idle,
		&l.tables); err != nil {
		return err
	}
	// A routine keeps the sql_mode of the session that made it. Some change what '' or "x" means.
	// With completion_type RELEASE a COMMIT ends the session. The server ends one that does nothing
	// for wait_timeout, and with it the lock.
	err := l.set(ctx, conn, "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION", "NO_CHAIN", seconds(pause), seconds(lastWait))
	if err != nil {
		return err
	}
	var got sql.NullInt64
	query := fmt.Sprintf("SELECT GET_LOCK(%s, %d)", l.name(), max(1, int64(wait(ctx).Seconds())))
	err = sqlkit.QueryRow(ctx, conn, query, nil, &got)
	if err == nil && got.Int64 != 1 {
		err = errBusy
	}
	if err != nil {
		_ = l.SessionUnlock(context.WithoutCancel(ctx), conn)
	}
	return err
}

// name is an expression: the server has locks of one name for all databases.
func (l *mysqlLock) name() string {
	return fmt.Sprintf("CONCAT('tickslot migrate ', SHA1(CONCAT(COALESCE(DATABASE(), ''), ' %x')))", uint64(l.key))
}

var errBusy = errors.New("another host is migrating, or has stopped in the middle of it")

func (l *mysqlLock) set(ctx context.Context, conn *sql.Conn, mode, commit string, idle, tables int64) error {
	_, err := conn.ExecContext(ctx, fmt.Sprintf(
		"SET SESSION sql_mode = '%s', completion_type = '%s', wait_timeout = %d, lock_wait_timeout = %d",
		mode, commit, idle, tables))
	return err
}

// mysqlAnew ends a transaction that is open because of autocommit = 0 or completion_type = CHAIN: it
// would read what the table had when it began.
const mysqlAnew = "ROLLBACK AND NO CHAIN NO RELEASE"

// seconds rounds up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// SessionUnlock implements lock.SessionLocker. The context that goose passes never ends. If it
// fails, the connection is broken, and the lock ends with its session.
func (l *mysqlLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, lastWait)
	defer cancel()
	if _, err := conn.ExecContext(ctx, "DO RELEASE_LOCK("+l.name()+")"); err == nil {
		_ = l.set(ctx, conn, l.mode, l.commit, l.idle, l.tables)
	}
	return nil // what was to be done is done
}
