//go:build unix

package crash

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/pgxoutbox"
)

// A place is a database with an outbox and two tables of the application: orders, each of which has
// a message, and the effects of these messages. Because all are in one database, a single query
// shows whether they agree.
type place struct {
	Kind string // "SQLite", "Postgres" or "MariaDB"
	DSN  string
}

var tables = map[string][]string{
	"SQLite": {"CREATE TABLE orders (n INTEGER PRIMARY KEY, k INTEGER)",
		"CREATE TABLE effects (at INTEGER PRIMARY KEY AUTOINCREMENT, n INTEGER, k INTEGER)"},
	"Postgres": {"CREATE TABLE orders (n integer PRIMARY KEY, k integer)",
		"CREATE TABLE effects (at serial PRIMARY KEY, n integer, k integer)"},
	"MariaDB": {"CREATE TABLE orders (n integer PRIMARY KEY, k integer)",
		"CREATE TABLE effects (at integer AUTO_INCREMENT PRIMARY KEY, n integer, k integer)"},
}

// An app is a process that uses a place.
type app struct {
	place
	db    *sql.DB
	pool  *pgxpool.Pool // nil except on Postgres
	box   *outbox.Outbox
	inbox *outbox.Inbox
}

// open opens a place. The killer sees every statement.
func (p place) open(k *killer) (*app, error) {
	a := &app{place: p}
	switch p.Kind {
	case "Postgres":
		config, err := pgxpool.ParseConfig(p.DSN)
		if err != nil {
			return nil, err
		}
		config.ConnConfig.DialFunc = k.dialer()
		if a.pool, err = pgxpool.NewWithConfig(context.Background(), config); err != nil {
			return nil, err
		}
		a.db = stdlib.OpenDBFromPool(a.pool)
		a.box = pgxoutbox.New(a.pool, outbox.Options{})
	case "MariaDB":
		config, err := mysql.ParseDSN(p.DSN)
		if err != nil {
			return nil, err
		}
		inner, err := mysql.NewConnector(config)
		if err != nil {
			return nil, err
		}
		a.db = sql.OpenDB(connector{inner.Driver(), func(ctx context.Context) (driver.Conn, error) {
			return k.watched(inner.Connect(ctx))
		}})
		a.box = outbox.MySQL(a.db, outbox.Options{})
	default:
		inner, err := sql.Open("sqlite", "")
		if err != nil {
			return nil, err
		}
		a.db = sql.OpenDB(connector{inner.Driver(), func(context.Context) (driver.Conn, error) {
			return k.watched(inner.Driver().Open(p.DSN))
		}})
		a.box = outbox.SQLite(a.db, outbox.Options{})
	}
	a.inbox = a.box.Inbox()
	return a, nil
}

// A connector opens connections with a function.
type connector struct {
	driver  driver.Driver
	connect func(context.Context) (driver.Conn, error)
}

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) { return c.connect(ctx) }

// Driver implements driver.Connector.
func (c connector) Driver() driver.Driver { return c.driver }

func (a *app) close() {
	_ = a.box.Close()
	_ = a.db.Close()
	if a.pool != nil {
		a.pool.Close()
	}
}

// setup creates all tables.
func (a *app) setup(ctx context.Context) error {
	if err := a.box.Migrate(ctx); err != nil {
		return err
	}
	for _, text := range tables[a.Kind] {
		if _, err := a.db.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// A transaction is a transaction of the application.
type transaction struct {
	outbox.Tx
	commit, rollback func() error
}

func (a *app) begin(ctx context.Context) (transaction, error) {
	if a.pool != nil {
		tx, err := a.pool.Begin(ctx)
		return transaction{pgxoutbox.Tx(tx), func() error { return tx.Commit(ctx) },
			func() error { return tx.Rollback(ctx) }}, err
	}
	tx, err := a.db.BeginTx(ctx, nil)
	return transaction{outbox.SQLTx(tx), func() error { return tx.Commit() },
		func() error { return tx.Rollback() }}, err
}

const keys = 3

// isWithdrawn reports whether an order is rolled back after its message was appended.
func isWithdrawn(n int) bool { return n%4 == 3 }

// order creates an order with its message, or does nothing if it exists. A caller that does not
// know whether the order was committed calls it again.
func (a *app) order(ctx context.Context, n int) error {
	tx, err := a.begin(ctx)
	if err != nil {
		return err
	}
	insert := "INSERT INTO orders (n, k) VALUES (%d, %d) ON CONFLICT DO NOTHING"
	if a.Kind == "MariaDB" {
		insert = "INSERT INTO orders (n, k) VALUES (%d, %d) ON DUPLICATE KEY UPDATE k = k"
	}
	if _, err := tx.Exec(ctx, fmt.Sprintf(insert, n, n%keys)); err != nil {
		return err
	}
	if _, err := a.box.Append(ctx, tx, outbox.Message{ID: outbox.NewID("order", uint64(n), 0), Topic: "orders",
		Key: fmt.Sprint(n % keys), Payload: fmt.Append(nil, n)}); err != nil {
		return err
	}
	if isWithdrawn(n) {
		return tx.rollback()
	}
	return tx.commit()
}

// receive applies the effect of a message, once.
func (a *app) receive(ctx context.Context, id outbox.ID, n int) error {
	tx, err := a.begin(ctx)
	if err != nil {
		return err
	}
	fresh, err := a.inbox.Once(ctx, tx, "billing", id)
	if err != nil || !fresh {
		_ = tx.rollback()
		return err
	}
	if _, err := tx.Exec(ctx, fmt.Sprintf("INSERT INTO effects (n, k) VALUES (%d, %d)", n, n%keys)); err != nil {
		_ = tx.rollback()
		return err
	}
	return tx.commit()
}
