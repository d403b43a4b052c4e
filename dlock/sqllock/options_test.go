package sqllock_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/dlock/sqllock/pgxlock"
)

// Check and every other method return all faults of the options at once, without calling a server.
func TestFaultsOfOptions(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("pgx", "postgres://nobody@127.0.0.1:1/nothing")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/nothing")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	bad := sqllock.Options{Prefix: "a:slot:\n", TableName: strings.Repeat("t", 50) + "\x00", Schema: "\xff$tickslot$",
		Retention: time.Hour}
	all := []string{"Prefix", ":slot:", "control characters", "TableName of 51 bytes: at most 44", "Schema",
		"without $tickslot$", "Retention 1h0m0s: at least 24h"}
	for name, c := range map[string]struct {
		store *sqllock.Store
		want  []string
	}{
		"postgres":     {sqllock.Postgres(db, bad), all},
		"mysql":        {sqllock.MySQL(db, bad), all},
		"sqlserver":    {sqllock.SQLServer(db, bad), all},
		"pgx":          {pgxlock.New(pool, bad), all},
		"no pool":      {pgxlock.New(nil, sqllock.Options{}), []string{"no pool"}},
		"no db":        {sqllock.Postgres(nil, sqllock.Options{}), []string{"no *sql.DB"}},
		"no mysql":     {sqllock.MySQL(nil, sqllock.Options{}), []string{"no *sql.DB"}},
		"no sqlite":    {sqllock.SQLite(nil, sqllock.Options{}), []string{"no *sql.DB"}},
		"no sqlserver": {sqllock.SQLServer(nil, sqllock.Options{}), []string{"no *sql.DB"}},
		"empty":        {&sqllock.Store{}, []string{"make one with"}},
		"nil":          {nil, []string{"make one with"}},
	} {
		g := driver.Grant{Name: "a", Slots: 1, Token: "t"}
		for what, call := range map[string]func() error{
			"check":  c.store.Check,
			"verify": func() error { return c.store.Verify(t.Context()) },
			"schema": func() error { _, err := c.store.Schema(); return err },
			"acquire": func() error {
				_, err := c.store.TryAcquire(t.Context(), driver.Request{Name: "a", Token: "t", TTL: time.Minute})
				return err
			},
			"extend":  func() error { _, err := c.store.Extend(t.Context(), time.Minute, g); return err },
			"release": func() error { _, err := c.store.Release(t.Context(), g); return err },
			"list":    func() error { _, err := c.store.List(t.Context(), "a", 1); return err },
			"audit":   func() error { _, err := c.store.Audit(t.Context()); return err },
			"cleanup": func() error { return c.store.Cleanup(t.Context()) },
			"update":  func() error { return c.store.Update(t.Context(), "a", driver.Update{}) },
			"inspect": func() error { _, err := c.store.Inspect(t.Context(), "a"); return err },
			"revoke":  func() error { return c.store.Revoke(t.Context(), "a", 0, 1, ann) },
			"migrate": func() error { return c.store.Migrate(t.Context()) },

			"enumerate": func() error { _, err := c.store.Enumerate(t.Context(), "", 1); return err },
		} {
			err := call()
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s, %s: missing %q in: %v", name, what, want, err)
				}
			}
		}
		if err := c.store.Close(); err != nil {
			t.Errorf("%s: close: %v", name, err)
		}
		_ = c.store.String()
	}
}

// A holder may have any text, and the table can store it.
func TestStrangeHoldersPostgres(t *testing.T) {
	t.Parallel()
	s := postgres(t, "pgx").migrated(t).open(t, sqllock.Options{})
	_, err := s.TryAcquire(t.Context(), driver.Request{Name: "a", Token: "t", TTL: time.Minute,
		Holder: driver.Holder{Host: "h\xff\x00", ID: "\x00"}})
	if err != nil {
		t.Error(err)
	}
}

// A prefix and a name may be valid alone but invalid together.
func TestPrefixAndNameTogether(t *testing.T) {
	t.Parallel()
	s := postgres(t, "pgx").migrated(t).open(t, sqllock.Options{Prefix: "a:slo"})
	_, err := s.TryAcquire(t.Context(), driver.Request{Name: "t:b", Slots: 1, Token: "t", TTL: time.Minute})
	if err == nil || !strings.Contains(err.Error(), "choose another prefix") {
		t.Error(err)
	}
}

// No error contains the password.
func TestPasswordIsNotTold(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	pool, err := pgxpool.New(ctx, "postgres://user:hunter2@127.0.0.1:1/nothing")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	s := pgxlock.New(pool, sqllock.Options{})
	defer s.Close()
	for what, err := range map[string]error{"migrate": s.Migrate(ctx), "cleanup": s.Cleanup(ctx)} {
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
