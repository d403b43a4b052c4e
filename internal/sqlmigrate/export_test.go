package sqlmigrate

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/tickslot/tickslot/internal/sqlkit"
)

// Verify returns an error unless all migrations are recorded.
func (s Schema) Verify(ctx context.Context, db *sql.DB) error {
	read := ReadDB(s.Dialect, db)
	if s.Dialect == sqlkit.SQLite {
		read = ReadFile(sqlkit.NewFile(db))
	}
	return s.pending(ctx, read)
}

// Hold takes the lock of a schema on a connection of db until release is called, like a host in the
// middle of a migration.
func (s Schema) Hold(ctx context.Context, db *sql.DB) (release func(), err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if s.Dialect == sqlkit.MySQL {
		l := &mysqlLock{key: key(s.Versions())}
		if err := l.SessionLock(ctx, conn); err != nil {
			return nil, fmt.Errorf("%w, %w", err, conn.Close())
		}
		return func() { _ = l.SessionUnlock(ctx, conn); conn.Close() }, nil
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	return func() { _ = tx.Rollback(); conn.Close() }, s.lock(ctx, tx)
}
