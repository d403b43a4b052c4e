package durable

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/durable/internal/postgres"
)

// Postgres returns a store on Postgres 13 or newer, in a database with the encoding UTF8. It does
// not call the server, and the pool stays the caller's.
//
// Each call is one transaction and one round trip. With pgx's default mode, a connection prepares
// each statement before it first sends it, which takes one more round trip. Behind a PgBouncer in
// transaction mode, set pgx.QueryExecModeExec, or pgx.QueryExecModeSimpleProtocol: then nothing is
// prepared. LISTEN does not work through it, so workers find runs that others have queued within
// PollInterval.
//
// A Store has up to four connections of its own, which it makes with the settings of the pool
// (BeforeConnect and AfterConnect are called, PrepareConn and AfterRelease are not) when its
// workers need them, and each worker another one for LISTEN. So handlers that use all connections
// of the pool cost no lease. Other calls, such as Trigger and Control, take one of the pool.
//
// Time-outs, isolation level, search_path and formats that the server has for the role or the
// database make no difference. A role that is read-only (default_transaction_read_only) stays so.
//
// What each role may do in the database: docs/sql.md.
func Postgres(pool *pgxpool.Pool, opts Options) *Store {
	opts = opts.withDefaults()
	s, err := postgres.New(pool, postgres.Options{TableName: opts.TableName, Schema: opts.Schema})
	if err != nil {
		return &Store{fault: err}
	}
	return &Store{store: s}
}
