//go:build unix

package acceptance

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/cluster/sqlregistry/pgxregistry"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/pgxdurable"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/pgxoutbox"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A granted is a database in which every part has its own role, with the rights documented in
// docs/.
type granted struct {
	t        *testing.T
	server   *sqltest.Server
	database string
	kind     string // as in the headings of docs/
}

func newGranted(t *testing.T, kind string) *granted {
	t.Helper()
	g := &granted{t: t, kind: kind}
	if kind == "Postgres" {
		g.server = sqltest.SharedPostgres(t)
	} else {
		g.server = sqltest.SharedMariaDB(t)
	}
	g.database = g.server.NewDatabase(t)
	if kind == "Postgres" {
		g.exec("REVOKE ALL ON SCHEMA public FROM PUBLIC")
	}
	return g
}

func (g *granted) exec(statements ...string) {
	g.t.Helper()
	if _, err := g.server.Exec(g.database, strings.Join(statements, "\n")); err != nil {
		g.t.Fatal(err)
	}
}

// role creates a role with the rights under the given headings of docs/sql.md. The prefix
// "delivers, " before the heading of the locks selects the lock table of the outbox, as the page
// describes.
func (g *granted) role(name string, headings ...string) (user string, grants []string) {
	g.t.Helper()
	user = name + "_" + g.database[len(g.database)-10:]
	schema, made := "public", "CREATE ROLE "+user+" LOGIN PASSWORD '"+servertest.Canary+"';"
	if g.kind != "Postgres" {
		schema, made = g.database, "CREATE USER "+user+" IDENTIFIED BY '"+servertest.Canary+"';"
	}
	for _, heading := range headings {
		heading, delivers := strings.CutPrefix(heading, "delivers, ")
		more, err := sqltest.Documented(page, heading, schema, user)
		if err != nil {
			g.t.Fatal(err)
		}
		for _, grant := range more {
			if delivers {
				grant = strings.ReplaceAll(grant, "distributed_locks", g.locksOfOutbox())
			}
			grants = append(grants, grant)
		}
	}
	g.exec(append([]string{made}, grants...)...)
	g.t.Cleanup(func() {
		if g.kind == "Postgres" {
			made = "DROP OWNED BY " + user + " CASCADE; DROP ROLE " + user
		} else {
			made = "DROP USER " + user
		}
		g.exec(made)
	})
	return user, grants
}

const page = "../../docs/sql.md"

// locksOfOutbox returns the lock table on which a relay needs rights.
func (g *granted) locksOfOutbox() string {
	g.t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		g.t.Fatal(err)
	}
	said := regexp.MustCompile(`\*\*A\s+relay\s+also\s+needs\*\*\s+those\s+of\s+\[Locks\]\(#locks\),\s+with\s+` +
		"`(\\w+)`\\s+in\\s+place\\s+of\\s+`distributed_locks`").FindSubmatch(text)
	if said == nil {
		g.t.Fatalf("%s does not say what a relay needs for the locks of the outbox", page)
	}
	return string(said[1])
}

func (g *granted) db(user string) *sql.DB {
	driver := "pgx"
	if g.kind != "Postgres" {
		driver = "mysql"
	}
	db, err := sql.Open(driver, g.server.DSN(user, "", g.database))
	if err != nil {
		g.t.Fatal(err)
	}
	db.SetMaxOpenConns(2)
	if driver == "mysql" {
		db.SetMaxIdleConns(-1) // rights on a database are read when a connection opens
	}
	g.t.Cleanup(func() { db.Close() })
	return db
}

func (g *granted) pool(user string) *pgxpool.Pool {
	pool, err := pgxpool.New(g.t.Context(), g.server.DSN(user, "", g.database)+"&pool_max_conns=3")
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(pool.Close)
	return pool
}

func (g *granted) locks(user string) *sqllock.Store {
	open := sqllock.Postgres
	if g.kind != "Postgres" {
		open = sqllock.MySQL
	}
	s := open(g.db(user), sqllock.Options{})
	g.t.Cleanup(func() { s.Close() })
	return s
}

func (g *granted) registry(user string) *sqlregistry.Store {
	if g.kind != "Postgres" {
		return sqlregistry.MySQL(g.db(user), sqlregistry.Options{})
	}
	s := pgxregistry.New(g.pool(user), sqlregistry.Options{})
	g.t.Cleanup(func() { s.Close() })
	return s
}

func (g *granted) box(user string) *outbox.Outbox {
	if g.kind != "Postgres" {
		return outbox.MySQL(g.db(user), outbox.Options{})
	}
	return pgxoutbox.New(g.pool(user), outbox.Options{})
}

// run runs a part until done returns true.
func (g *granted) run(what string, run func(context.Context) error, done func() bool) {
	g.t.Helper()
	ctx, stop := context.WithCancel(g.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	err := testkit.Poll(testkit.Patience, what, func() bool { return done() || len(ended) > 0 })
	stop()
	if err = errors.Join(err, <-ended); err != nil || !done() {
		g.t.Errorf("%s: %v", what, err)
	}
}

var quiet = slog.New(slog.DiscardHandler)

// migrates checks that creating all tables fails with one right less, then creates them.
func (g *granted) migrates() {
	g.t.Helper()
	owner, grants := g.role("owner", "who migrates, "+g.kind)
	box := g.box(owner)
	g.t.Cleanup(func() { box.Close() })
	parts := []interface{ Migrate(context.Context) error }{g.locks(owner), g.registry(owner), box}
	if g.kind == "Postgres" {
		parts = append(parts, pgxdurable.New(g.pool(owner), durable.Options{}))
	}
	for _, right := range sqltest.Rights(grants) {
		g.exec(right.Revoke)
		err := parts[0].Migrate(g.t.Context())
		if !errors.Is(err, dlock.ErrSetup) || strings.Contains(err.Error(), servertest.Canary) {
			g.t.Errorf("without %s: %v: must be an error of the set-up", right, err)
		}
		g.exec(right.Grant)
	}
	for _, part := range parts {
		if err := part.Migrate(g.t.Context()); err != nil {
			g.t.Fatalf("%T: %v", part, err)
		}
	}
}

// timers runs a timer that takes its slot in the database, with a registry.
func (g *granted) timers() {
	g.t.Helper()
	app, _ := g.role("app", g.kind, "registry, "+g.kind)
	locks := g.locks(app)
	registry, err := cluster.New(cluster.Config{Store: g.registry(app), Locks: locks, Logger: quiet})
	if err != nil {
		g.t.Fatal(err)
	}
	var ran atomic.Int64
	timers, err := timer.New(timer.Config{Store: registry.Decorate(locks), Logger: quiet, Holder: registry.Holder()},
		timer.Timer{Name: "report", Schedule: schedule.Every(50 * time.Millisecond), Run: func(context.Context) error {
			ran.Add(1)
			return nil
		}})
	if err != nil {
		g.t.Fatal(err)
	}
	registry.Add(timers)
	g.run("a timer runs, and the registry shows its host", func(ctx context.Context) error {
		ended := make(chan error, 1)
		go func() { ended <- registry.Run(ctx) }()
		return errors.Join(timers.Run(ctx), <-ended)
	}, func() bool {
		s, err := registry.Snapshot(g.t.Context())
		return ran.Load() > 2 && err == nil && len(s.Hosts) == 1
	})
}

// runs triggers a run as one role and executes it as another.
func (g *granted) runs() {
	g.t.Helper()
	worker, _ := g.role("worker", "durable, a worker")
	trigger, _ := g.role("trigger", "durable, a program that triggers")
	id, err := pgxdurable.New(g.pool(trigger), durable.Options{}).Trigger(g.t.Context(), nil, "mail", nil,
		durable.TriggerOptions{})
	if err != nil {
		g.t.Fatal(err)
	}
	var ran atomic.Int64
	w, err := durable.NewWorker(pgxdurable.New(g.pool(worker), durable.Options{}), durable.Config{Logger: quiet})
	if err != nil {
		g.t.Fatal(err)
	}
	w.Handle("mail", func(_ context.Context, run *durable.Run) error {
		ran.Store(run.ID)
		return nil
	}, durable.HandlerOptions{})
	g.run("a run that was triggered is done", w.Run, func() bool { return ran.Load() == id })
}

// messages appends a message as one role, delivers it as another, and receives it once as a third.
func (g *granted) messages() {
	g.t.Helper()
	producer, _ := g.role("producer", "outbox, producer, "+g.kind)
	relay, _ := g.role("relay", "outbox, relay, "+g.kind, "delivers, "+g.kind)
	receiver, _ := g.role("receiver", "outbox, receiver, "+g.kind)
	inTx := func(db *sql.DB, do func(outbox.Tx) error) error {
		tx, err := db.BeginTx(g.t.Context(), nil)
		if err != nil {
			return err
		}
		if err := do(outbox.SQLTx(tx)); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}
	m := outbox.Message{ID: outbox.RandomID(), Topic: "orders", Payload: []byte("x")}
	boxes := map[string]*outbox.Outbox{}
	for _, user := range []string{producer, relay} {
		boxes[user] = g.box(user)
		g.t.Cleanup(func() { boxes[user].Close() })
	}
	err := inTx(g.db(producer), func(tx outbox.Tx) error {
		_, err := boxes[producer].Append(g.t.Context(), tx, m)
		return err
	})
	if err != nil {
		g.t.Fatal(err)
	}
	inbox, receivers, fresh := g.box(receiver).Inbox(), g.db(receiver), atomic.Bool{}
	r, err := outbox.NewRelay(boxes[relay], outbox.RelayConfig{Logger: quiet, Shards: 1,
		DefaultSink: outbox.SinkFunc(func(ctx context.Context, d outbox.Delivery) error {
			return inTx(receivers, func(tx outbox.Tx) error {
				first, err := inbox.Once(ctx, tx, "billing", d.ID)
				fresh.Store(first)
				return err
			})
		})})
	if err != nil {
		g.t.Fatal(err)
	}
	g.run("a message is delivered", r.Run, fresh.Load)
}

// Each part starts and works as a role with exactly the rights documented in docs/sql.md, beginning
// with the creation of the tables.
//
// Fails when a part needs an undocumented right. The stores' own tests remove each right in turn;
// here only the migrating role is tested that way.
func TestPartsStartWithTheDocumentedRights(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Postgres", "MySQL, MariaDB"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			if kind != "Postgres" {
				testkit.Long(t) // another server; other tests cover all but its migrating role
			}
			g := newGranted(t, kind)
			g.migrates()
			g.timers()
			if kind == "Postgres" {
				g.runs()
			}
			g.messages()
		})
	}
}
