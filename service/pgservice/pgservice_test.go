package pgservice_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/service"
	"github.com/tickslot/tickslot/service/pgservice"
	"github.com/tickslot/tickslot/timer"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func open(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func database(t *testing.T) (server *sqltest.Server, name string) {
	t.Helper()
	server = sqltest.SharedPostgres(t)
	return server, server.NewDatabase(t)
}

// An app is a service with one part of each kind, and a record of what they did.
type app struct {
	*pgservice.Service
	pool    *pgxpool.Pool
	job     service.Job[int]
	ticked  chan struct{}
	ran     chan int
	arrived chan string
}

func newApp(t *testing.T, pool *pgxpool.Pool, config service.Config) *app {
	t.Helper()
	a := &app{pool: pool, ticked: make(chan struct{}, 100), ran: make(chan int, 100), arrived: make(chan string, 100)}
	config.Logger = slog.New(slog.DiscardHandler)
	config.Relay.DefaultSink = outbox.SinkFunc(func(_ context.Context, d outbox.Delivery) error {
		a.arrived <- string(d.Payload)
		return nil
	})
	var err error
	a.Service, err = pgservice.New(pool, config, ticking(a.ticked))
	if err != nil {
		t.Fatal(err)
	}
	a.job = service.Handle(a.Worker(), "invoice", func(_ context.Context, number int) error {
		a.ran <- number
		return nil
	}, durable.HandlerOptions{})
	return a
}

// ticking returns a timer that sends each tick to ticked if the test is receiving.
func ticking(ticked chan struct{}) timer.Timer {
	return timer.Timer{Name: "tick", Schedule: schedule.Every(100 * time.Millisecond),
		Run: func(context.Context) error {
			select {
			case ticked <- struct{}{}:
			default:
			}
			return nil
		}}
}

// start runs the service until the test ends.
func (a *app) start(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	testkit.Eventually(t, 30*time.Second, "the service is ready", func() bool {
		w := httptest.NewRecorder()
		a.Probes().ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
		return w.Code == 200
	})
}

func receive[T any](t *testing.T, from chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(30 * time.Second):
		t.Fatalf("no %s within 30s", what)
	}
	return v
}

func TestAllOfItOnPostgres(t *testing.T) {
	server, name := database(t)
	a := newApp(t, open(t, server.DSN("", "", name)), service.Config{Name: "billing", Environment: "test"})
	a.start(t)
	receive(t, a.ticked, "tick")
	if _, err := a.pool.Exec(t.Context(), `CREATE TABLE invoice (number int)`); err != nil {
		t.Fatal(err)
	}
	if err := a.InTx(t.Context(), func(tx pgservice.Tx) error {
		if _, err := tx.Exec(t.Context(), `INSERT INTO invoice VALUES (7)`); err != nil {
			return err
		}
		if _, err := a.job.Trigger(t.Context(), tx, 7, durable.TriggerOptions{}); err != nil {
			return err
		}
		_, err := tx.Append(t.Context(), outbox.Message{ID: outbox.RandomID(), Topic: "paid", Payload: []byte("seven")})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, a.ran, "run"); got != 7 {
		t.Errorf("the run has the payload %d", got)
	}
	if got := receive(t, a.arrived, "message"); got != "seven" {
		t.Errorf("the message is %q", got)
	}
	var foreign int
	if err := a.pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_tables WHERE schemaname = 'public'
		AND tablename NOT LIKE 'billing\_%' AND tablename <> 'invoice'`).Scan(&foreign); err != nil || foreign != 0 {
		t.Errorf("%d tables do not begin with the name, %v", foreign, err)
	}
}

func TestInTxRollsBack(t *testing.T) {
	server, name := database(t)
	a := newApp(t, open(t, server.DSN("", "", name)), service.Config{})
	a.start(t)
	queue := func(tx pgservice.Tx) {
		if _, err := a.job.Trigger(context.Background(), tx, 1, durable.TriggerOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := tx.Append(context.Background(), outbox.Message{ID: outbox.RandomID(), Topic: "paid"}); err != nil {
			t.Error(err)
		}
	}
	fault := errors.New("no")
	if err := a.InTx(t.Context(), func(tx pgservice.Tx) error { queue(tx); return fault }); err != fault {
		t.Errorf("an error: %v", err)
	}
	func() {
		defer func() {
			if p := recover(); p != "boom" {
				t.Errorf("the panic became %v", p)
			}
		}()
		_ = a.InTx(t.Context(), func(tx pgservice.Tx) error { queue(tx); panic("boom") })
	}()
	ctx, cancel := context.WithCancel(t.Context())
	if err := a.InTx(ctx, func(tx pgservice.Tx) error { queue(tx); cancel(); return nil }); !errors.Is(err,
		context.Canceled) {
		t.Errorf("after its context had ended: %v", err)
	}
	if err := a.InTx(t.Context(), func(tx pgservice.Tx) error {
		queue(tx)
		_, _ = tx.Exec(t.Context(), "SELECT 1/0")
		return nil
	}); err == nil || !strings.Contains(err.Error(), "rolled back") {
		t.Errorf("after a statement that failed: %v", err)
	}
	if err := a.InTx(t.Context(), func(tx pgservice.Tx) error {
		queue(tx)
		return tx.Commit(t.Context())
	}); !errors.Is(err, service.ErrCommitted) {
		t.Errorf("Commit: %v", err)
	}
	for _, table := range []string{"tickslot_durable_run", "tickslot_outbox"} {
		var rows int
		count := `SELECT count(*) FROM ` + tableLike(t, a.pool, table)
		if err := a.pool.QueryRow(t.Context(), count).Scan(&rows); err != nil || rows != 0 {
			t.Errorf("%s has %d rows, %v", table, rows, err)
		}
	}
	if n := a.pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections were not given back", n)
	}
}

// tableLike returns the shortest table name with the given prefix.
func tableLike(t *testing.T, pool *pgxpool.Pool, prefix string) (table string) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT tablename FROM pg_tables WHERE starts_with(tablename, $1)
		ORDER BY length(tablename) LIMIT 1`, prefix).Scan(&table); err != nil {
		t.Fatal(err)
	}
	return table
}

// If the function commits with a statement of its own, InTx detects this before its own commit.
func TestInTxWhoseFunctionCommits(t *testing.T) {
	server, name := database(t)
	a := newApp(t, open(t, server.DSN("", "", name)), service.Config{})
	defer a.Close()
	if err := a.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.InTx(t.Context(), func(tx pgservice.Tx) error {
		_, err := a.job.Trigger(t.Context(), tx, 1, durable.TriggerOptions{})
		return err
	}); err != nil {
		t.Errorf("after Migrate: %v", err)
	}
	if err := a.InTx(t.Context(), func(tx pgservice.Tx) error {
		_, err := tx.Exec(t.Context(), "COMMIT")
		return err
	}); !errors.Is(err, service.ErrCommitted) {
		t.Errorf("got %v", err)
	}
}

func TestPoolThatIsClosed(t *testing.T) {
	server, name := database(t)
	pool := open(t, server.DSN("", "", name))
	a := newApp(t, pool, service.Config{})
	pool.Close()
	if err := a.InTx(t.Context(), func(pgservice.Tx) error { return nil }); err == nil {
		t.Error("InTx has no error")
	}
	if _, err := pgservice.New(nil, service.Config{}); !errors.Is(err, dlock.ErrSetup) {
		t.Errorf("no pool: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

func TestMigratesWithoutRights(t *testing.T) {
	server, name := database(t)
	admin := open(t, server.DSN("", "", name))
	if _, err := admin.Exec(t.Context(), `CREATE ROLE pgservice_poor LOGIN PASSWORD 'x';
		REVOKE CREATE ON SCHEMA public FROM PUBLIC`); err != nil {
		t.Fatal(err)
	}
	for _, config := range []service.Config{{}, {NoMigrate: true}} {
		a := newApp(t, open(t, server.DSN("pgservice_poor", "x", name)), config)
		began := time.Now()
		if err := a.Run(t.Context()); !errors.Is(err, dlock.ErrSetup) {
			t.Errorf("%+v: %v", config.NoMigrate, err)
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("it took %v", took)
		}
	}
	// A role without the right to create anything can run on existing tables.
	all := newApp(t, admin, service.Config{})
	defer all.Close()
	all.start(t)
	if _, err := admin.Exec(t.Context(), `GRANT ALL ON ALL TABLES IN SCHEMA public TO pgservice_poor;
		GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO pgservice_poor`); err != nil {
		t.Fatal(err)
	}
	newApp(t, open(t, server.DSN("pgservice_poor", "x", name)), service.Config{}).start(t)
}

func TestTimersOnly(t *testing.T) {
	server, name := database(t)
	pool := open(t, server.DSN("", "", name))
	ticked := make(chan struct{}, 1)
	svc, err := pgservice.New(pool, service.Config{TimersOnly: true, Logger: slog.New(slog.DiscardHandler)},
		ticking(ticked))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(ctx) }()
	receive(t, ticked, "tick")
	if err := svc.InTx(t.Context(), func(tx pgservice.Tx) error {
		_, err := tx.Append(t.Context(), outbox.Message{Topic: "x"})
		return err
	}); err == nil || !strings.Contains(err.Error(), "there is no outbox") {
		t.Errorf("Append: %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	var others int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_tables WHERE schemaname = 'public'
		AND (tablename LIKE '%durable%' OR tablename LIKE '%outbox%')`).Scan(&others); err != nil || others != 0 {
		t.Errorf("%d tables of durable runs and the outbox, %v", others, err)
	}
}

// A service starts while its database is down, and timers follow their OnStoreDown.
func TestStartsWhileTheDatabaseIsDown(t *testing.T) {
	a := newApp(t, open(t, "postgres://nobody@127.0.0.1:1/none?connect_timeout=2"), service.Config{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	receive(t, a.ticked, "tick")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// In pg_stat_activity, an administrator sees which connections belong to tickslot and what each one
// is for, unless the application has set a name, which stays.
//
// Fails when a store's connections have no name, and when a name set by the application is
// replaced.
func TestConnectionsHaveNames(t *testing.T) {
	t.Parallel()
	for named, want := range map[string]string{
		"":                       "tickslot durable,tickslot locks,tickslot outbox,tickslot registry",
		"&application_name=shop": "shop",
	} {
		server, name := database(t)
		a := newApp(t, open(t, server.DSN("", "", name)+named), service.Config{})
		a.start(t)
		names := func() string {
			var got string
			err := a.pool.QueryRow(t.Context(), "SELECT coalesce(string_agg(DISTINCT application_name, ','), '') "+
				"FROM pg_stat_activity WHERE datname = current_database() AND application_name <> '' "+
				"AND backend_type = 'client backend'").Scan(&got)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		testkit.Eventually(t, 30*time.Second, "connections named "+want, func() bool { return names() == want })
	}
}
