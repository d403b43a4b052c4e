package postgres

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/durable/internal/storetest"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// ways are the ways to reach a database.
var ways = map[string]struct {
	mode    pgx.QueryExecMode
	bouncer bool
	user    string // "" means the owner
}{
	"directly":                   {},
	"simple protocol":            {mode: pgx.QueryExecModeSimpleProtocol},
	"not prepared":               {mode: pgx.QueryExecModeExec},
	"least privilege":            {user: "app"},
	"described":                  {mode: pgx.QueryExecModeCacheDescribe},
	"PgBouncer, not prepared":    {mode: pgx.QueryExecModeExec, bouncer: true},
	"PgBouncer, simple protocol": {mode: pgx.QueryExecModeSimpleProtocol, bouncer: true},
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for way, how := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			rounds := testkit.Rounds(t, 1, 5)
			if way != "directly" {
				testkit.Long(t) // same store, reached in another way
				rounds = 1
			}
			p := newPlace(t, how.mode, how.bouncer, how.user)
			h := p.harness(rounds)
			h.NoNotifications = how.bouncer
			storetest.Run(t, h)
		})
	}
}

// A place is a database in which tests reuse tables, one test after another.
type place struct {
	direct *pgxpool.Pool // connects directly to the server
	pool   *pgxpool.Pool // as the stores reach it
	own    *connections  // of all stores
	user   string        // "" means the owner

	mu   sync.Mutex
	free []string // empty sets of tables that no test uses
}

func newPlace(t testing.TB, mode pgx.QueryExecMode, bouncer bool, user string) *place {
	t.Helper()
	d := newDatabase(t)
	d.mode = mode
	addr := ""
	if bouncer {
		addr = sqltest.PgBouncer(t, d.server, "transaction").Addr()
	}
	p := &place{direct: d.pool(t, "", ""), pool: d.pool(t, addr, user), user: user}
	p.own = newConnections(p.pool)
	p.own.turns = make(chan struct{}, 8)
	t.Cleanup(p.own.close)
	return p
}

// take returns the name of an empty set of tables.
func (p *place) take(t testing.TB) string {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.free) - 1; last >= 0 {
		table := p.free[last]
		p.free = p.free[:last]
		return table
	}
	table := strings.TrimSuffix(sqltest.Unique("t'o\"th`er"), ":")
	s := on(t, p.direct, table)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.user != "" {
		s.grant(t, documented(t, "durable, a worker"))
	}
	return table
}

func (p *place) store(t testing.TB, table string) *Store {
	s := on(t, p.pool, table)
	s.own = p.own
	return s
}

func (p *place) harness(rounds int) storetest.Harness {
	var refused sync.Map // tables that must not be used again
	return storetest.Harness{
		Rounds: rounds,
		New: func(t testing.TB) func() store.Store {
			table := p.take(t)
			n := p.store(t, table).names
			t.Cleanup(func() {
				if _, gone := refused.Load(n["runs"]); gone {
					return
				}
				// Do not use TRUNCATE: each connection would have to plan all its statements again.
				for _, of := range []string{"attempts", "runs", "handlers", "schedules"} {
					if _, err := p.direct.Exec(context.Background(), "DELETE FROM "+n[of]); err != nil {
						t.Error(err)
					}
				}
				p.mu.Lock()
				defer p.mu.Unlock()
				p.free = append(p.free, table)
			})
			return func() store.Store { return p.store(t, table) }
		},
		Begin: func(t testing.TB, _ store.Store) storetest.Transaction {
			tx, err := p.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return storetest.Transaction{Tx: pgxTx{tx},
				Commit:   func() error { return tx.Commit(t.Context()) },
				Rollback: func() error { return tx.Rollback(t.Context()) }}
		},
		SeenAhead: func(t testing.TB, s store.Store, by time.Duration) {
			_, err := p.direct.Exec(t.Context(), "UPDATE "+s.(*Store).names["schedules"]+
				" SET seen_at = seen_at + $1::bigint * interval '1 microsecond'", by.Microseconds())
			if err != nil {
				t.Fatal(err)
			}
		},
		Refuse: func(t testing.TB, s store.Store, handler string) {
			runs := s.(*Store).names["runs"]
			refused.Store(runs, true)
			_, err := p.direct.Exec(t.Context(), "ALTER TABLE "+runs+" ADD CHECK (handler <> '"+handler+"')")
			if err != nil {
				t.Fatal(err)
			}
		},
	}
}

// grant executes grants that are documented for other table names.
func (s *Store) grant(t testing.TB, grants []string) {
	t.Helper()
	for _, grant := range grants {
		grant = strings.Replace(grant, "work.tickslot_durable_migrations", s.schema.Versions(), 1)
		for _, table := range tables {
			grant = strings.Replace(grant, "work.tickslot_durable_"+table, s.names[table], 1)
		}
		grant = strings.Replace(grant, "SCHEMA work", "SCHEMA "+s.schema.Schema, 1)
		if _, err := s.pool.Exec(t.Context(), grant); err != nil {
			t.Fatalf("%s: %v", grant, err)
		}
	}
}
