package sqlstore_test

import (
	"database/sql"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox/internal/sqlstore"
	"github.com/tickslot/tickslot/outbox/internal/store"
	"github.com/tickslot/tickslot/outbox/internal/storetest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// ways are the ways to reach a database.
var ways = map[string]func(t testing.TB) subject{
	"Postgres": func(t testing.TB) subject { return postgresOn(t, quickPostgres(t), "") },
	"Postgres, simple protocol": func(t testing.TB) subject {
		return postgresOn(t, quickPostgres(t), "&default_query_exec_mode=simple_protocol")
	},
	"Postgres, PgBouncer": func(t testing.TB) subject {
		s := postgresOn(t, quickPostgres(t), "&default_query_exec_mode=exec")
		bouncer := sqltest.PgBouncer(t, s.server, "transaction")
		direct := s.db
		s.db = func(t testing.TB, _, user string) *sql.DB { return direct(t, bouncer.Addr(), user) }
		s.behind = true
		return s
	},
	"MySQL":           func(t testing.TB) subject { return mysqlOn(t, quickMariaDB(t), oneTrip) },
	"MySQL, prepared": func(t testing.TB) subject { return mysqlOn(t, quickMariaDB(t), "") },
	"MySQL, strange session": func(t testing.TB) subject {
		return mysqlOn(t, quickMariaDB(t), oneTrip+"&"+sqltest.StrangeMariaDB)
	},
	"SQLite": sqliteFile,
}

func TestConformance(t *testing.T) {
	t.Parallel()
	all := maps.Clone(ways)
	all["MySQL itself"] = func(t testing.TB) subject { return mysqlOn(t, quickMySQL(t), oneTrip) }
	for way, of := range all {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(way, ",") || way == "MySQL itself" {
				testkit.Long(t) // same store, reached in another way or on a related server
			}
			storetest.Run(t, newPlace(t, of(t)).harness())
		})
	}
}

// A place is a database whose tables are reused by one test after the other.
type place struct {
	subject
	pool *sql.DB // used by the stores and by applications

	mu    sync.Mutex
	pools map[store.Store]*sql.DB
}

func newPlace(t testing.TB, s subject) *place {
	t.Helper()
	p := &place{subject: s, pools: map[store.Store]*sql.DB{}}
	if s.server != nil {
		p.pool = s.db(t, "", "")
	}
	return p
}

func (p *place) harness() storetest.Harness {
	return storetest.Harness{
		OneWriter: p.server == nil,
		New: func(t testing.TB) store.Store {
			s, db := p.subject, p.pool
			if db == nil {
				s = sqliteFile(t)
				db = s.db(t, "", "")
			}
			made := p.migrate(t, s, db)
			p.mu.Lock()
			defer p.mu.Unlock()
			p.pools[made] = db
			return made
		},
		Begin: func(t testing.TB, s store.Store) storetest.Transaction {
			p.mu.Lock()
			db := p.pools[s]
			p.mu.Unlock()
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return storetest.Transaction{Tx: sqlTx{tx}, Commit: tx.Commit, Rollback: tx.Rollback}
		},
	}
}

// migrate creates tables whose names must be quoted.
func (p *place) migrate(t testing.TB, s subject, db *sql.DB) *sqlstore.Store {
	t.Helper()
	made := s.on(t, db, strings.TrimSuffix(sqltest.Unique("t'o\"th`er"), ":"))
	list, err := made.Schema() // like users who apply their own migrations
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range list {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	return made
}
