package postgres

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/durable/internal/storetest"
	"github.com/tickslot/tickslot/internal/sqltest"
	"github.com/tickslot/tickslot/internal/testkit"
)

// ways are how a database is reached.
var ways = map[string]struct {
	mode    pgx.QueryExecMode
	bouncer bool
}{
	"directly":                                {},
	"simple protocol":                         {mode: pgx.QueryExecModeSimpleProtocol},
	"not prepared":                            {mode: pgx.QueryExecModeExec},
	"PgBouncer, not prepared":                 {mode: pgx.QueryExecModeExec, bouncer: true},
	"PgBouncer in front, and simple protocol": {mode: pgx.QueryExecModeSimpleProtocol, bouncer: true},
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for way, how := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			if way != "directly" {
				testkit.Long(t) // it is the same store, reached in another way
			}
			storetest.Run(t, harness(t, how.mode, how.bouncer, testkit.Rounds(t, 1, 5)))
		})
	}
}

func harness(t testing.TB, mode pgx.QueryExecMode, bouncer bool, rounds int) storetest.Harness {
	t.Helper()
	d := newDatabase(t)
	d.mode = mode
	addr := ""
	if bouncer {
		addr = sqltest.PgBouncer(t, d.server, "transaction").Addr()
	}
	pool, direct := d.pool(t, addr, ""), d.pool(t, "", "")
	return storetest.Harness{
		Rounds: rounds,
		New: func(t testing.TB) func() store.Store {
			table := strings.TrimSuffix(sqltest.Unique("t'o\"th`er"), ":")
			if err := on(t, direct, table).Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			return func() store.Store { return on(t, pool, table) }
		},
		Begin: func(t testing.TB, _ store.Store) storetest.Transaction {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return storetest.Transaction{Tx: pgxTx{tx},
				Commit:   func() error { return tx.Commit(t.Context()) },
				Rollback: func() error { return tx.Rollback(t.Context()) }}
		},
		Refuse: func(t testing.TB, s store.Store, handler string) {
			runs := s.(*Store).names["runs"]
			if _, err := direct.Exec(t.Context(), "ALTER TABLE "+runs+" ADD CHECK (handler <> '"+handler+"')"); err != nil {
				t.Fatal(err)
			}
		},
	}
}
