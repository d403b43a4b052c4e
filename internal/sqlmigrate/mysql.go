package sqlmigrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tickslot/tickslot/internal/sqlkit"
)

// mysqlLock is goose's lock for MySQL. It belongs to the connection, because DDL ends transactions.
// It also sets the session settings that migrations need.
type mysqlLock struct {
	key    int64
	before settings
}

// settings are the settings of a session.
type settings struct {
	mode, completion, isolation string
	idle, tables, safe          int64 // wait_timeout, lock_wait_timeout, sql_safe_updates
}

// migrating are the session settings during migrations. A routine keeps the sql_mode of the session
// that created it, and some modes change the meaning of quotes. With completion_type RELEASE, a
// COMMIT ends the session. With READ COMMITTED and binlog_format STATEMENT, no row can be written.
// The server ends a session that is idle for wait_timeout, and with it the lock. With
// sql_safe_updates, the server deletes only rows found by a key.
var migrating = settings{"STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION", "NO_CHAIN", "REPEATABLE-READ",
	seconds(pause), seconds(lastWait), 0}

// SessionLock implements lock.SessionLocker.
func (m *mysqlLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, mysqlAnew); err != nil {
		return err
	}
	if err := m.before.read(ctx, conn); err != nil {
		return err
	}
	err := migrating.set(ctx, conn)
	if err == nil {
		var got sql.NullInt64
		query := fmt.Sprintf("SELECT GET_LOCK(%s, %d)", m.name(), max(1, int64(wait(ctx).Seconds())))
		err = sqlkit.QueryRow(ctx, conn, query, nil, &got)
		if err == nil && got.Int64 != 1 {
			err = errBusy
		}
	}
	if err != nil {
		_ = m.SessionUnlock(context.WithoutCancel(ctx), conn)
	}
	return err
}

// SessionUnlock implements lock.SessionLocker. The context that goose passes never ends. If
// SessionUnlock fails, the connection is broken, and the lock ends with its session.
func (m *mysqlLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, lastWait)
	defer cancel()
	if _, err := conn.ExecContext(ctx, "DO RELEASE_LOCK("+m.name()+")"); err == nil {
		_ = m.before.set(ctx, conn)
	}
	return nil // the lock is released in any case
}

var errBusy = errors.New("another host is migrating, or has stopped in the middle of it")

// name returns an SQL expression that includes the database, because lock names are server-wide.
func (m *mysqlLock) name() string {
	return fmt.Sprintf("CONCAT('tickslot migrate ', LEFT(SHA2(CONCAT(COALESCE(DATABASE(), ''), ' %x'), 256), 40))",
		uint64(m.key))
}

func (s *settings) read(ctx context.Context, conn *sql.Conn) error {
	err := sqlkit.QueryRow(ctx, conn, "SELECT @@SESSION.sql_mode, @@SESSION.completion_type, "+
		"@@SESSION.wait_timeout, @@SESSION.lock_wait_timeout, @@SESSION.sql_safe_updates", nil, &s.mode,
		&s.completion, &s.idle, &s.tables, &s.safe)
	if err != nil {
		return err
	}
	// MySQL and MariaDB have different names for this variable.
	return sqlkit.EachRow(ctx, conn, "SHOW SESSION VARIABLES WHERE Variable_name IN ('tx_isolation', "+
		"'transaction_isolation')", nil, func(rows *sql.Rows) error {
		var name string
		return rows.Scan(&name, &s.isolation)
	})
}

func (s *settings) set(ctx context.Context, conn *sql.Conn) error {
	for _, statement := range []string{
		fmt.Sprintf("SET SESSION sql_mode = '%s', completion_type = '%s', wait_timeout = %d, lock_wait_timeout = %d, "+
			"sql_safe_updates = %d", s.mode, s.completion, s.idle, s.tables, s.safe),
		"SET SESSION TRANSACTION ISOLATION LEVEL " + strings.ReplaceAll(s.isolation, "-", " "),
	} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// mysqlAnew ends a transaction that is open because of autocommit = 0 or completion_type = CHAIN.
// That transaction would read the table as it was when the transaction began.
const mysqlAnew = "ROLLBACK AND NO CHAIN NO RELEASE"

// seconds rounds up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
