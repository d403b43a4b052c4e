package outbox

import (
	"context"
	"sync"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
)

// DefaultTableName is the default of Options.TableName.
const DefaultTableName = "tickslot_outbox"

// Options are the settings of an Outbox. The zero value is valid.
type Options struct {
	// TableName is the prefix of the names of all tables and indexes, so that one database can hold
	// several outboxes. It is quoted, so any text without braces is valid. At most 36 bytes.
	// Default "tickslot_outbox".
	TableName string

	// Schema is the schema (Postgres, SQL Server) or database (MySQL) of the tables. SQLite has
	// none. At most 63 bytes. Default "public" on Postgres, regardless of the search_path;
	// elsewhere, the schema or database of the connection.
	Schema string
}

// roleName is the role of the relays. All outboxes can use the same name, because every outbox has
// its own locks.
const roleName = "outbox"

// locks are the locks of the relays, in the same database.
type locks interface {
	dlock.DistributedLock
	driver.Enumerator
	Migrate(ctx context.Context) error
	Verify(ctx context.Context) error
	Schema() ([]string, error)
	Close() error
}

// lazyLocks opens the locks when they are first needed, because a program that only appends does
// not need their connections.
type lazyLocks struct {
	open func() locks

	mu   sync.Mutex
	kept locks
}

func (l *lazyLocks) get() locks {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept == nil {
		l.kept = l.open()
	}
	return l.kept
}

func (l *lazyLocks) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept == nil {
		return nil
	}
	return l.kept.Close()
}
