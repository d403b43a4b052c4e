package tickslot_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/dlock/sqllock/pgxlock"
	"github.com/tickslot/tickslot/health"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

func TestMain(m *testing.M) {
	servertest.Main(m)
}

// A told collects output (logs, errors, metrics, probes), from any goroutine.
type told struct{ testkit.Log }

func (o *told) Printf(_ context.Context, format string, v ...any) { fmt.Fprintf(o, format+"\n", v...) }
func (o *told) Print(v ...any)                                    { fmt.Fprintln(o, v...) }

// An opener returns a store for this address and password. With tls, it uses TLS, which the servers
// do not speak.
type opener func(addr, password string, tls bool) dlock.DistributedLock

// secretStores are the ways to connect to a server with a password.
var secretStores = map[string]func(t *testing.T) (server string, open opener){
	"redis": func(t *testing.T) (string, opener) {
		server := redistest.New(t)
		return server.Addr(), func(addr, password string, tls bool) dlock.DistributedLock {
			options, err := redis.ParseURL(map[bool]string{true: "rediss", false: "redis"}[tls] + "://:" + password +
				"@" + addr)
			if err != nil {
				t.Fatal("the URL is wrong")
			}
			client := redis.NewClient(options)
			store := redislock.New(client, redislock.Options{QuarantineTTL: 3 * time.Second})
			t.Cleanup(func() { store.Close(); client.Close() })
			return store
		}
	},
	"pgx": func(t *testing.T) (string, opener) {
		server := sqltest.SharedPostgres(t)
		database := server.NewDatabase(t)
		open := func(addr, password string, tls bool) dlock.DistributedLock {
			dsn := strings.Replace(server.DSN("", password, database), server.Addr(), addr, 1)
			if tls {
				dsn = strings.Replace(dsn, "sslmode=disable", "sslmode=require", 1)
			}
			pool, err := pgxpool.New(context.Background(), dsn)
			if err != nil {
				t.Fatal("the URL is wrong")
			}
			store := pgxlock.New(pool, sqllock.Options{})
			t.Cleanup(func() { store.Close(); pool.Close() })
			return store
		}
		if err := open(server.Addr(), servertest.Canary, false).(*sqllock.Store).Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		return server.Addr(), open
	},
	"postgres": func(t *testing.T) (string, opener) {
		return secretSQL(t, sqltest.SharedPostgres(t), "pgx", "&connect_timeout=2", sqllock.Postgres)
	},
	"mysql": func(t *testing.T) (string, opener) {
		return secretSQL(t, sqltest.SharedMariaDB(t), "mysql", "?timeout=2s", sqllock.MySQL)
	},
}

func secretSQL(t *testing.T, server *sqltest.Server, driverName, settings string,
	store func(*sql.DB, sqllock.Options) *sqllock.Store) (string, opener) {
	database := server.NewDatabase(t)
	open := func(addr, password string, tls bool) dlock.DistributedLock {
		dsn := strings.Replace(server.DSN("", password, database), server.Addr(), addr, 1) + settings
		if tls {
			dsn = strings.Replace(dsn, "sslmode=disable", "sslmode=require", 1)
			if driverName == "mysql" {
				dsn += "&tls=true"
			}
		}
		db, err := sql.Open(driverName, dsn)
		if err != nil {
			t.Fatal("the DSN is wrong")
		}
		t.Cleanup(func() { db.Close() })
		return store(db, sqllock.Options{})
	}
	if err := open(server.Addr(), servertest.Canary, false).(*sqllock.Store).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return server.Addr(), open
}

// Neither a password nor a slot's token appears in any output (logs, errors, metrics, probes,
// Status), whatever is wrong with the server.
//
// Fails when a store quotes its client's options, or an error quotes its request.
func TestSecretsAreNotTold(t *testing.T) {
	testkit.SkipShort(t)
	var drivers told // drivers write to the same log
	redis.SetLogger(&drivers)
	if err := mysql.SetLogger(&drivers); err != nil {
		t.Fatal(err)
	}
	t.Run("stores", func(t *testing.T) {
		for name, make := range secretStores {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				addr, open := make(t)
				proxy := servertest.NewProxyFor(t, addr)
				for what, c := range map[string]struct {
					addr, password string
					tls            bool
				}{
					"all is well":    {addr, servertest.Canary, false},
					"wrong password": {addr, "wrong-" + servertest.Canary, false},
					"refused":        {"127.0.0.1:1", servertest.Canary, false},
					"no TLS there":   {addr, servertest.Canary, true},
				} {
					said := &told{}
					tell(t, said, open(c.addr, c.password, c.tls), nil)
					secretless(t, what, said.String())
				}
				for what, fault := range map[string]func(){"silent": func() {
					proxy.BlackHole(true)
				}, "cut": proxy.Cut} {
					said := &told{}
					tell(t, said, open(proxy.Addr(), servertest.Canary, false), fault)
					proxy.BlackHole(false)
					if err := proxy.Mend(); err != nil {
						t.Fatal(err)
					}
					secretless(t, what, said.String())
				}
			})
		}
	})
	t.Run("panic", func(t *testing.T) {
		said := &told{}
		tell(t, said, panics{}, nil)
		secretless(t, "a driver's panic", said.String())
	})
	secretless(t, "the drivers", drivers.String())
}

// secretless fails the test if the text contains a secret, or is too short to be meaningful.
func secretless(t *testing.T, what, text string) {
	t.Helper()
	for _, secret := range []string{servertest.Canary, tokenOf} {
		if at := strings.Index(text, secret); at >= 0 {
			t.Errorf("%s: %q is in: …%s…", what, secret, text[max(0, at-200):min(len(text), at+200)])
		}
	}
	if what != "the drivers" && (!strings.Contains(text, "tickslot_") || !strings.Contains(text, "readyz") ||
		len(text) < 5000) {
		t.Errorf("%s: too little is told for a test: %s", what, text)
	}
}

// tokenOf is the token in the test's own calls.
const tokenOf = "TOKEN-of-a-slot-TOKEN"

type panics struct{}

func (panics) TryAcquire(_ context.Context, req driver.Request) (driver.Grant, error) { panic(req) }
func (panics) Extend(_ context.Context, _ time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	panic(grants)
}
func (panics) Release(_ context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	panic(grants)
}

// tell runs timers on the store, breaks the store, and collects everything visible from outside.
func tell(t *testing.T, said *told, store dlock.DistributedLock, fault func()) {
	t.Helper()
	show := func(v ...any) {
		for _, v := range v {
			fmt.Fprintf(said, "%v %+v %#v\n", v, v, v)
		}
	}
	registry := prometheus.NewRegistry()
	stuck, ran := make(chan struct{}), make(chan struct{}, 100)
	s, err := timer.New(timer.Config{
		Store: store, Registerer: registry, TTL: 1500 * time.Millisecond, StoreTimeout: 300 * time.Millisecond,
		DrainTimeout: 50 * time.Millisecond,
		Logger:       slog.New(slog.NewJSONHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug})),
	},
		timer.Timer{Name: "ok", Schedule: schedule.Every(200 * time.Millisecond), MaxConcurrency: 2, MaxPerTick: 2,
			Run: func(ctx context.Context) error {
				run, _ := timer.RunFromContext(ctx)
				show(run.Fence(), ctx.Err())
				ran <- struct{}{}
				return errors.New("a handler's error")
			}},
		timer.Timer{Name: "stuck", Schedule: schedule.Every(200 * time.Millisecond), MaxRunTime: 300 * time.Millisecond,
			Run: func(context.Context) error {
				<-stuck
				return nil
			}},
		timer.Timer{Name: "skips", Schedule: schedule.Every(200 * time.Millisecond), OnStoreDown: timer.StoreDownSkip,
			Run: func(context.Context) error { panic("a handler's panic") }},
	)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	pages := http.NewServeMux()
	pages.Handle("/", health.New(s))
	pages.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	look := func() {
		for _, path := range []string{"/livez?verbose", "/readyz?verbose", "/startupz?verbose",
			"/readyz/timers-succeed",
			"/readyz/store-reachable", "/metrics"} {
			for _, accept := range []string{"", "application/health+json"} {
				req := httptest.NewRequest(http.MethodGet, path, nil)
				req.RemoteAddr = "127.0.0.1:1" // a local client, who may see more
				req.Header.Set("Accept", accept)
				w := httptest.NewRecorder()
				pages.ServeHTTP(w, req)
				fmt.Fprintln(said, path, w.Code, w.Body)
			}
		}
		show(s.Status(), s.Ready(), s.Live(), s.StoreReachable(), s.TimersSucceed())
		for _, name := range []string{"ok", "skips"} {
			_, err := s.Trigger(ctx, name, timer.TriggerOptions{})
			show(err)
		}
	}
	look() // includes the metrics, which are unregistered when Run ends
	go func() { ended <- s.Run(ctx) }()
	// calls calls the store directly. A user of dlock sees these errors.
	calls := func() {
		defer func() { fmt.Fprintln(said, recover()) }() // the broken store panics
		call, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		req := driver.Request{Name: "calls", Slots: 1, Holder: dlock.NewHolder(), Token: tokenOf, TTL: time.Second}
		g, err := store.TryAcquire(call, req)
		show(errors.Unwrap(err))
		fmt.Fprintf(said, "%v %+v\n", store, store)
		fmt.Fprintf(said, "%v %+v %v %+v\n", err, err, g, req)
		req.Token += "2"
		_, err = store.TryAcquire(call, req)
		fmt.Fprintf(said, "%v %+v %#v\n", err, err, err)
		grant := driver.Grant{Name: "calls", Slots: 1, Token: tokenOf}
		_, err = store.Extend(call, time.Second, grant)
		show(err)
		_, err = store.Release(call, grant)
		show(err)
		caps := driver.CapabilitiesOf(store)
		if l := caps.Lister; l != nil {
			list, err := l.List(call, "calls", 1)
			show(list, err)
		}
		if e := caps.Enumerator; e != nil {
			page, err := e.Enumerate(call, "", 10)
			show(page, err)
		}
		if a := caps.Auditor; a != nil {
			warnings, err := a.Audit(call)
			show(warnings, err)
		}
		session, err := dlock.NewSession(store, dlock.SessionOptions{TTL: 1500 * time.Millisecond,
			StoreTimeout: 300 * time.Millisecond})
		if err != nil {
			t.Error(err)
			return
		}
		defer session.Close(context.Background())
		lease, err := session.Mutex("mutex").TryAcquire(call)
		_, again := session.Mutex("mutex").TryAcquire(call)
		fmt.Fprintf(said, "%v %+v %v %+v %v %#v\n", lease, lease, session, session, err, again)
	}
	look()
	select {
	case <-ran:
	case err := <-ended:
		if !errors.Is(err, dlock.ErrSetup) {
			t.Errorf("Run returned %v", err)
		}
		ended <- err
	case <-time.After(10 * time.Second):
		t.Error("nothing ever ran: StoreDownRunLocal would have")
	}
	calls()
	look()
	if fault != nil {
		fault()
		testkit.Eventually(t, 10*time.Second, "the store is down", func() bool {
			if s.Status().Store.Up {
				calls()
			}
			return !s.Status().Store.Up
		})
		look()
	}
	_, hang := store.(panics) // once is enough, because it takes five seconds
	if !hang {
		close(stuck)
	} else {
		testkit.Eventually(t, 10*time.Second, "the run is seen", func() bool {
			one, _ := s.Status().Timer("stuck")
			return len(one.Running) > 0
		})
	}
	stop()
	err = <-ended
	show(err, store) // the store's fields, no longer in use
	if _, ok := errors.AsType[*timer.StuckError](err); hang {
		close(stuck)
		if !ok {
			t.Errorf("err %v, want a StuckError", err)
		}
	}
	look()
}
