package tickslot_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"go/ast"
	"maps"
	"net"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/redisregistry"
	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/cluster/sqlregistry/pgxregistry"
	"github.com/tickslot/tickslot/dlock"
	lock "github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/nativelock"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/dlock/redlock"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/dlock/sqllock/pgxlock"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/pgxdurable"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/pgxoutbox"
)

// handles are the arguments that users pass to constructors. Connecting through one of them fails
// the test.
type handles struct {
	pool     *pgxpool.Pool
	db       *sql.DB
	client   redis.UniversalClient
	clients  []redis.UniversalClient
	failover *redis.FailoverOptions
}

// A connectorFunc is a connector of database/sql.
type connectorFunc func(context.Context) (driver.Conn, error)

func (f connectorFunc) Connect(ctx context.Context) (driver.Conn, error) { return f(ctx) }
func (f connectorFunc) Driver() driver.Driver                            { return nil }

func newHandles(t *testing.T, dialed func() error) handles {
	t.Helper()
	config, err := pgxpool.ParseConfig("postgres://nobody@127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	dial := func(context.Context, string, string) (net.Conn, error) { return nil, dialed() }
	config.ConnConfig.DialFunc = dial
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	// go-redis would log a failed dial, so this one returns a closed connection.
	dial = func(context.Context, string, string) (net.Conn, error) {
		conn, other := net.Pipe()
		other.Close()
		_ = dialed()
		return conn, nil
	}
	db := sql.OpenDB(connectorFunc(func(context.Context) (driver.Conn, error) { return nil, dialed() }))
	t.Cleanup(func() { db.Close() })
	h := handles{pool: pool, db: db, failover: &redis.FailoverOptions{MasterName: "m", Dialer: dial,
		SentinelAddrs: []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}}}
	for _, addr := range h.failover.SentinelAddrs {
		client := redis.NewClient(&redis.Options{Addr: addr, Dialer: dial, MaxRetries: -1})
		t.Cleanup(func() { client.Close() })
		h.clients = append(h.clients, client)
	}
	h.client = h.clients[0]
	return h
}

// check fails the test if a handle was closed.
func (h handles) check(t *testing.T) {
	t.Helper()
	for handle, err := range map[string]error{"*pgxpool.Pool": h.pool.Ping(t.Context()),
		"*sql.DB": h.db.PingContext(t.Context())} {
		if !strings.Contains(err.Error(), errDialed.Error()) {
			t.Errorf("the %s that was handed in was closed: %v", handle, err)
		}
	}
	for _, client := range h.clients {
		if err := client.Ping(t.Context()).Err(); errors.Is(err, redis.ErrClosed) {
			t.Errorf("a client that was handed in was closed: %v", err)
		}
	}
}

var errDialed = errors.New("it was dialed")

type store interface{ Close() error }

// constructors are those of all stores that users build from a handle, by package and name.
var constructors = map[string]func(h handles) store{
	"dlock/sqllock.Postgres":  func(h handles) store { return sqllock.Postgres(h.db, sqllock.Options{}) },
	"dlock/sqllock.MySQL":     func(h handles) store { return sqllock.MySQL(h.db, sqllock.Options{}) },
	"dlock/sqllock.SQLite":    func(h handles) store { return sqllock.SQLite(h.db, sqllock.Options{}) },
	"dlock/sqllock.SQLServer": func(h handles) store { return sqllock.SQLServer(h.db, sqllock.Options{}) },
	"dlock/sqllock/pgxlock.New": func(h handles) store {
		return pgxlock.New(h.pool, sqllock.Options{})
	},
	"dlock/nativelock.PostgresAdvisory": func(h handles) store {
		return nativelock.PostgresAdvisory(h.db, nativelock.Options{})
	},
	"dlock/nativelock.MySQLGetLock": func(h handles) store {
		return nativelock.MySQLGetLock(h.db, nativelock.Options{})
	},
	"dlock/nativelock.SQLServerAppLock": func(h handles) store {
		return nativelock.SQLServerAppLock(h.db, nativelock.Options{})
	},
	"dlock/redislock.New": func(h handles) store { return redislock.New(h.client, redislock.Options{}) },
	"dlock/redislock.NewFailover": func(h handles) store {
		return redislock.NewFailover(h.failover, redislock.Options{})
	},
	"dlock/redlock.New": func(h handles) store { return redlock.New(h.clients, redlock.Options{}) },
	"cluster/sqlregistry.Postgres": func(h handles) store {
		return sqlregistry.Postgres(h.db, sqlregistry.Options{})
	},
	"cluster/sqlregistry.MySQL":  func(h handles) store { return sqlregistry.MySQL(h.db, sqlregistry.Options{}) },
	"cluster/sqlregistry.SQLite": func(h handles) store { return sqlregistry.SQLite(h.db, sqlregistry.Options{}) },
	"cluster/sqlregistry.SQLServer": func(h handles) store {
		return sqlregistry.SQLServer(h.db, sqlregistry.Options{})
	},
	"cluster/sqlregistry/pgxregistry.New": func(h handles) store {
		return pgxregistry.New(h.pool, sqlregistry.Options{})
	},
	"cluster/redisregistry.New": func(h handles) store {
		return redisregistry.New(h.client, redisregistry.Options{})
	},
	"durable/pgxdurable.New": func(h handles) store { return pgxdurable.New(h.pool, durable.Options{}) },
	"durable.SQLite":         func(h handles) store { return durable.SQLite(h.db, durable.Options{}) },
	"outbox/pgxoutbox.New":   func(h handles) store { return pgxoutbox.New(h.pool, outbox.Options{}) },
	"outbox.MySQL":           func(h handles) store { return outbox.MySQL(h.db, outbox.Options{}) },
	"outbox.SQLite":          func(h handles) store { return outbox.SQLite(h.db, outbox.Options{}) },
	"outbox.SQLServer":       func(h handles) store { return outbox.SQLServer(h.db, outbox.Options{}) },
}

// use makes a call that needs the server.
func use(ctx context.Context, s store) error {
	switch s := s.(type) {
	case interface{ Verify(context.Context) error }:
		return s.Verify(ctx)
	case lock.Store:
		_, err := s.TryAcquire(ctx, lock.Request{Name: "a", TTL: time.Second, Token: "token"})
		return err
	case cluster.Store:
		_, err := s.Read(ctx, cluster.Query{Events: 1})
		return err
	}
	return errors.New("the test does not know how to use it")
}

// All store constructors work the same way. The handle stays the caller's, the zero Options work,
// and the constructor neither returns an error nor calls the server. The first use reports faults.
// Close may be called twice and leaves the handle alone, and every later use fails with the same
// error.
//
// Fails when a constructor connects, panics without a handle, or hides a fault; when Close closes
// the caller's handle; and when a use after Close counts as an outage.
func TestStoresAreMadeAndClosedInOneWay(t *testing.T) {
	t.Parallel()
	for name, open := range constructors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var dialed atomic.Bool
			h := newHandles(t, func() error { dialed.Store(true); return errDialed })
			s := open(h)
			if dialed.Load() {
				t.Error("it calls the server")
			}
			for range 2 {
				if err := s.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			}
			if err := use(t.Context(), s); !errors.Is(err, dlock.ErrClosed) {
				t.Errorf("after Close: %v, want one that matches ErrClosed", err)
			}
			h.check(t)

			without := open(handles{})
			if err := use(t.Context(), without); !errors.Is(err, dlock.ErrSetup) {
				t.Errorf("without a handle: %v, want one that matches ErrSetup", err)
			}
			if err := without.Close(); err != nil {
				t.Errorf("Close without a handle: %v", err)
			}
			none := reflect.Zero(reflect.TypeOf(s)).Interface().(store)
			if err := errors.Join(none.Close(), use(t.Context(), none)); !errors.Is(err, dlock.ErrSetup) {
				t.Errorf("a nil store: %v, want one that matches ErrSetup", err)
			}
		})
	}
}

// handleTypes are the types of the first parameter of store constructors.
var handleTypes = []string{"*pgxpool.Pool", "*sql.DB", "redis.UniversalClient", "[]redis.UniversalClient",
	"*redis.FailoverOptions"}

// Fails when a store constructor has another form than (handle, Options) *Store or is missing from
// the table of the test above, and when a service constructor with a Config returns no error.
func TestConstructorsHaveOneForm(t *testing.T) {
	t.Parallel()
	missing, services := maps.Clone(constructors), 0
	for file, parsed := range publicFiles(t) {
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !f.Name.IsExported() {
				continue
			}
			name := strings.TrimPrefix(path.Dir(file)+"."+f.Name.Name, "./")
			in, out := typesOf(f.Type.Params), typesOf(f.Type.Results)
			switch {
			case len(in) > 0 && slices.Contains(handleTypes, in[0]) && isStore(out):
				if len(in) != 2 || !strings.HasSuffix(in[1], "Options") || len(out) != 1 {
					t.Errorf("%s(%s) (%s): want (handle, Options) *Store", name, strings.Join(in, ", "),
						strings.Join(out, ", "))
				}
				if constructors[name] == nil {
					t.Errorf("%s is not in the table of constructors", name)
				}
				delete(missing, name)
			case strings.HasPrefix(f.Name.Name, "New") && slices.ContainsFunc(in, isConfig) && !harmless[name]:
				services++
				if len(out) != 2 || out[1] != "error" {
					t.Errorf("%s returns (%s): want a pointer and an error", name, strings.Join(out, ", "))
				}
			}
		}
	}
	for name := range missing {
		t.Errorf("there is no %s, or the test does not find it", name)
	}
	if services < 6 {
		t.Errorf("%d constructors of services: the test does not find them", services)
	}
}

// harmless are constructors whose Config cannot be invalid.
var harmless = map[string]bool{"timer/control.New": true}

func isConfig(name string) bool {
	base, _, _ := strings.Cut(name, "[")
	return strings.HasSuffix(base, "Config") || base == "SessionOptions"
}

func isStore(out []string) bool {
	return len(out) > 0 && (strings.HasSuffix(out[0], "Store") || strings.HasSuffix(out[0], "Outbox"))
}

func typesOf(list *ast.FieldList) (names []string) {
	if list == nil {
		return nil
	}
	for _, f := range list.List {
		for range max(1, len(f.Names)) {
			names = append(names, typeName(f.Type))
		}
	}
	return names
}

func typeName(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.Ident:
		return t.Name
	case *ast.StarExpr:
		return "*" + typeName(t.X)
	case *ast.ArrayType:
		return "[]" + typeName(t.Elt)
	case *ast.SelectorExpr:
		return typeName(t.X) + "." + t.Sel.Name
	case *ast.IndexExpr:
		return typeName(t.X) + "[" + typeName(t.Index) + "]"
	}
	return "?"
}
