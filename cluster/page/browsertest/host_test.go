package browsertest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/clustertimer"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/cluster/page/durablepage"
	"github.com/tickslot/tickslot/cluster/page/outboxpage"
	"github.com/tickslot/tickslot/cluster/redisregistry"
	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/cluster/sqlregistry/pgxregistry"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/pgxdurable"
	"github.com/tickslot/tickslot/leader"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/pgxoutbox"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// hostEnv has the hostSettings of a child process, which is a host.
const hostEnv = "TICKSLOT_BROWSERTEST_HOST"

const ttl = 3 * time.Second

// hostSettings say what a host is.
type hostSettings struct {
	Name     string
	Addr     string
	Redis    string // URL; "": Postgres has all
	Postgres string // URL; "": SQLite has durable runs and the outbox, and Redis the rest
	Folder   string // of SQLite
	First    bool   // it triggers and appends what there is to see

	// Seldom is when what a test triggers itself runs by itself for the first time: on the wall's
	// grid, a test that starts shortly before the hour would see runs that it did not trigger.
	Seldom time.Time
}

// These are the names of what there is to see.
const (
	timerReport  = "report" // is only triggered, and runs until it is canceled
	timerTick    = "send-digest"
	timerBusy    = "resize-images"
	timerBroken  = "sync-inventory"
	timerLong    = "billing.recalculate-all-open-positions-of-the-previous-quarter"
	timerHostile = `<script>alert("timer")</script>` + "\u202e"
	rolePlanner  = "planner"
	workInvoice  = "invoice"
	workExport   = "export" // fails
	topicMail    = "mail"
	topicPartner = "partner" // is refused
	topicSlow    = "slow"    // is tried again and again
)

// runHost is a host, until it is asked to end.
func runHost(text string) error {
	var s hostSettings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	h, err := newHost(ctx, s)
	if err != nil {
		return err
	}
	return h.run(ctx)
}

// A host has one of each.
type host struct {
	settings hostSettings
	locks    dlock.DistributedLock
	rows     cluster.Store
	store    *durable.Store
	box      *outbox.Outbox
	begin    func(context.Context) (outbox.Tx, func() error, error)

	registry *cluster.Registry
	session  *dlock.Session
	loops    []func(context.Context) error
	page     *page.Page
}

func newHost(ctx context.Context, s hostSettings) (*host, error) {
	h := &host{settings: s}
	open := h.openRedis
	if s.Redis == "" {
		open = h.openPostgres
	}
	if err := open(ctx); err != nil {
		return nil, err
	}
	var err error
	h.registry, err = cluster.New(cluster.Config{Store: h.rows, Locks: h.locks, TTL: ttl, AppVersion: "v1.4.2",
		Environment: "staging", Holder: dlock.Holder{Host: s.Name, PID: os.Getpid(), ID: dlock.NewHolder().ID}})
	if err != nil {
		return nil, err
	}
	lock := h.registry.Decorate(h.locks)
	timers, err := timer.New(timer.Config{Store: lock, TTL: ttl, Holder: h.registry.Holder(),
		Hooks: clustertimer.Hooks(h.registry, timer.Hooks{})}, timersOf(s.Seldom)...)
	if err != nil {
		return nil, err
	}
	h.session, err = dlock.NewSession(lock, dlock.SessionOptions{TTL: ttl, Holder: h.registry.Holder()})
	if err != nil {
		return nil, err
	}
	planner, err := leader.New(h.session, leader.Role{Name: rolePlanner, RetryInterval: ttl / 6,
		Run: func(ctx context.Context, _ *leader.Term) error { <-ctx.Done(); return nil }})
	if err != nil {
		return nil, err
	}
	worker, err := h.worker()
	if err != nil {
		return nil, err
	}
	relay, err := h.relay()
	if err != nil {
		return nil, err
	}
	h.registry.Add(timers)
	h.registry.Add(h.session)
	h.registry.Add(planner)
	h.registry.Add(worker)
	h.registry.Add(relay)
	h.loops = []func(context.Context) error{timers.Run, planner.Run, worker.Run, relay.Run}
	h.page, err = page.New(page.Config{Registry: h.registry, Timers: timers, RefreshInterval: 300 * time.Millisecond,
		Sections: []page.Section{durablepage.New(h.store), outboxpage.New(h.box)},
		Authorize: func(*http.Request) page.Access {
			return page.Access{Act: true, Payloads: true, By: "ann"}
		}})
	return h, err
}

func (h *host) openRedis(ctx context.Context) error {
	options, err := redis.ParseURL(h.settings.Redis)
	if err != nil {
		return err
	}
	h.locks = redislock.New(redis.NewClient(options), redislock.Options{QuarantineTTL: ttl}) // it just started
	h.rows = redisregistry.New(redis.NewClient(options), redisregistry.Options{})
	runs, err := openSQLite(filepath.Join(h.settings.Folder, "durable.db"))
	if err != nil {
		return err
	}
	messages, err := openSQLite(filepath.Join(h.settings.Folder, "outbox.db"))
	if err != nil {
		return err
	}
	h.store, h.box = durable.SQLite(runs, durable.Options{}), outbox.SQLite(messages, outbox.Options{})
	h.begin = beginOf(messages)
	return errors.Join(h.store.Migrate(ctx), h.box.Migrate(ctx))
}

func (h *host) openPostgres(ctx context.Context) error {
	db, err := sql.Open("pgx", h.settings.Postgres)
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(4) // a new connection costs more than what it is used for
	db.SetMaxIdleConns(4)
	pool, err := pgxpool.New(ctx, h.settings.Postgres)
	if err != nil {
		return err
	}
	locks, rows := sqllock.Postgres(db, sqllock.Options{}), pgxregistry.New(pool, sqlregistry.Options{})
	h.locks, h.rows, h.begin = locks, rows, beginOf(db)
	h.store, h.box = pgxdurable.New(pool, durable.Options{}), pgxoutbox.New(pool, outbox.Options{})
	return errors.Join(locks.Migrate(ctx), rows.Migrate(ctx), h.store.Migrate(ctx), h.box.Migrate(ctx))
}

func openSQLite(path string) (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(5000)&_txlock=immediate")
}

func beginOf(db *sql.DB) func(context.Context) (outbox.Tx, func() error, error) {
	return func(ctx context.Context) (outbox.Tx, func() error, error) {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return nil, nil, err
		}
		return outbox.SQLTx(tx), tx.Commit, nil
	}
}

// busy returns work that takes from least to most ms.
func busy(least, most int64) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(least+rand.Int64N(most-least)) * time.Millisecond):
		}
		return nil
	}
}

// daily is a schedule of a time of day, which is that of at.
func daily(at time.Time) schedule.Schedule {
	return schedule.Daily(at.UTC().Format("15:04"), "UTC")
}

func timersOf(seldom time.Time) []timer.Timer {
	hold := func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
	return []timer.Timer{
		{Name: timerReport, Schedule: schedule.Every(time.Hour).From(seldom), MaxConcurrency: 3, MaxPerTick: 3,
			Run: hold},
		{Name: timerTick, Schedule: schedule.Every(time.Second), Run: busy(100, 400)},
		{Name: timerBusy, Schedule: schedule.Every(2 * time.Second), MaxConcurrency: 4, MaxPerTick: 4,
			MaxPerHost: 2, Run: busy(1000, 6000)},
		{Name: timerBroken, Schedule: schedule.Every(2 * time.Second), AlarmAfter: 3, Run: func(context.Context) error {
			return errors.New("dial tcp 10.20.30.40:5432: connect: connection refused")
		}},
		{Name: timerLong, Schedule: daily(seldom), MaxConcurrency: 24, MaxPerTick: 24, Run: hold},
		{Name: timerHostile, Schedule: schedule.Every(time.Hour).From(seldom), Run: hold},
	}
}

func (h *host) worker() (*durable.Worker, error) {
	w, err := durable.NewWorker(h.store, durable.Config{Name: h.settings.Name, PollInterval: 500 * time.Millisecond,
		TTL: ttl, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	w.Handle(workInvoice, func(context.Context, *durable.Run) error { return nil },
		durable.HandlerOptions{MaxConcurrency: 2})
	w.Handle(workExport, func(ctx context.Context, r *durable.Run) error {
		if string(r.Payload) == "hold" {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return durable.Permanent(errors.New("the bucket \"exports\" does not exist"))
	}, durable.HandlerOptions{})
	w.Schedule("invoice-daily", workInvoice, daily(h.settings.Seldom), durable.ScheduleOptions{})
	return w, nil
}

func (h *host) relay() (*outbox.Relay, error) {
	return outbox.NewRelay(h.box, outbox.RelayConfig{Name: h.settings.Name, TTL: ttl,
		PollInterval: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Sinks: map[string]outbox.Sink{
			topicMail: outbox.SinkFunc(func(context.Context, outbox.Delivery) error { return nil }),
			topicPartner: outbox.SinkFunc(func(context.Context, outbox.Delivery) error {
				return outbox.Permanent(errors.New("422 Unprocessable Entity: no such customer"))
			}),
			topicSlow: outbox.SinkFunc(func(context.Context, outbox.Delivery) error {
				return outbox.RetryAfter(time.Hour, errors.New("503 Service Unavailable"))
			}),
		}})
}

// fill triggers and appends what there is to see.
func (h *host) fill(ctx context.Context) error {
	control, by := h.store.Control(), driver.Cause{By: "bob", Note: "a first try"}
	for work, payload := range map[string]string{workInvoice: `{"customer": 4711}`,
		workExport: `{"month": "2026-10", "note": "` + timerHostile + `"}`} {
		if _, err := control.Trigger(ctx, work, []byte(payload), durable.TriggerOptions{By: by}); err != nil {
			return err
		}
	}
	tx, commit, err := h.begin(ctx)
	if err != nil {
		return err
	}
	for _, topic := range []string{topicMail, topicPartner, topicSlow} {
		if _, err := h.box.Append(ctx, tx, outbox.Message{ID: outbox.RandomID(), Topic: topic, Key: "customer-4711",
			Headers: map[string]string{"content-type": "application/json"},
			Payload: []byte(`{"to": "` + timerHostile + `"}`)}); err != nil {
			return err
		}
	}
	if err := commit(); err != nil {
		return err
	}
	h.box.Notify()
	return nil
}

// run serves the page, and runs all loops.
func (h *host) run(ctx context.Context) error {
	listener, err := net.Listen("tcp", h.settings.Addr)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/ops/", h.page)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	server.RegisterOnShutdown(h.page.Close)
	telling, last := context.WithCancel(context.WithoutCancel(ctx)) // the registry ends last
	defer last()
	told := make(chan error, 1)
	go func() { told <- h.registry.Run(telling) }()
	var loops sync.WaitGroup
	for _, loop := range h.loops {
		loops.Go(func() {
			if err := loop(ctx); err != nil {
				fmt.Println(err)
			}
		})
	}
	if h.settings.First {
		if err := h.fill(ctx); err != nil {
			return err
		}
	}
	context.AfterFunc(ctx, func() { _ = server.Shutdown(context.Background()) })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	loops.Wait()
	err = h.session.Close(telling)
	last()
	return errors.Join(err, <-told)
}
