//go:build unix

package acceptance

import (
	"context"
	"crypto/rand"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// A ground is a store for fleets in tests.
type ground struct {
	name string
	addr string                 // address of the server, or ""
	at   func(via string) place // the place, reached through that address

	server interface { // nil if there is none or it is shared
		Pause() error
		Resume() error
		Kill() error
		Restart() error
	}
	file string // SQLite
}

// shared returns a ground for a test that does not disturb the server.
func shared(t *testing.T, store string) *ground {
	t.Helper()
	switch store {
	case "redis":
		return redisOn(redistest.Shared(t))
	case "postgres":
		return postgresOn(t, sqltest.SharedPostgres(t))
	}
	return sqliteOn(t)
}

// own returns a ground for a test that disturbs the server.
func own(t *testing.T, store string) *ground {
	t.Helper()
	switch store {
	case "redis":
		s := redistest.New(t)
		g := redisOn(s)
		g.server = s
		return g
	case "postgres":
		s := sqltest.Postgres(t)
		g := postgresOn(t, s)
		g.server = restarting{s.Server}
		return g
	}
	return sqliteOn(t)
}

func redisOn(s *redistest.Server) *ground {
	prefix := rand.Text() + ":"
	return &ground{name: "redis", addr: s.Addr(), at: func(via string) place {
		return place{Store: "redis", At: via, Lock: prefix}
	}}
}

func postgresOn(t *testing.T, s *sqltest.Server) *ground {
	dsn := s.DSN("", "", s.NewDatabase(t))
	return &ground{name: "postgres", addr: s.Addr(), at: func(via string) place {
		return place{Store: "postgres", At: strings.Replace(dsn, s.Addr(), via, 1)}
	}}
}

func sqliteOn(t *testing.T) *ground {
	file := filepath.Join(t.TempDir(), "fleet.db")
	return &ground{name: "sqlite", file: file, at: func(string) place {
		return place{Store: "sqlite", At: file}
	}}
}

// A restarting server is a servertest.Server that needs no preparation before a restart.
type restarting struct{ *servertest.Server }

func (r restarting) Restart() error { return r.Server.Restart() }

// hold takes the write lock of a SQLite file, like a long transaction of the application.
func (g *ground) hold(t *testing.T) (release func()) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+g.file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "the write lock is free", func(ctx context.Context) error {
		_, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE")
		return err
	})
	return func() {
		if _, err := conn.ExecContext(context.Background(), "ROLLBACK"); err != nil {
			t.Error(err)
		}
		conn.Close()
	}
}

// free reports whether the write lock of a SQLite file becomes free. A paused process may hold it.
// Other stores have no such lock.
func (g *ground) free(t *testing.T) bool {
	t.Helper()
	if g.file == "" {
		return true
	}
	db, err := sql.Open("sqlite", "file:"+g.file+"?_pragma=busy_timeout(500)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	conn, err := db.Conn(ctx)
	if err != nil {
		return false
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return false
	}
	_, err = conn.ExecContext(ctx, "ROLLBACK")
	return err == nil
}
