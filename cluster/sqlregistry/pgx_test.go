package sqlregistry_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/cluster/sqlregistry/pgxregistry"
	"github.com/tickslot/tickslot/internal/testkit"
)

// A store made from a pgx pool works while the application uses all connections of that pool. No
// call fails because the server has ended an idle connection.
//
// Fails when the store takes connections from the pool, or does not check that its own are alive.
func TestPgxHasConnectionsOfItsOwn(t *testing.T) {
	t.Parallel()
	s := ways["pgx"](t)
	config, err := pgxpool.ParseConfig(s.dsn("", ""))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	config.ConnConfig.RuntimeParams["application_name"] = "registry"
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	db := s.db(t, "", "")
	store := pgxregistry.New(pool, sqlregistry.Options{})
	defer store.Close()
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if failed := calls(t, store); len(failed) > 0 {
			t.Fatal(failed)
		}
		const ours = " FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'registry'"
		s.exec(t, "SELECT pg_terminate_backend(pid)"+ours)
		testkit.Eventually(t, testkit.Patience, "the connections have ended", func() bool {
			var left int
			err := db.QueryRow("SELECT count(*)" + ours).Scan(&left)
			return err == nil && left == 0
		})
	}
}

// The registry works even if the application's AfterConnect changes session settings that the
// simple protocol of pgx depends on.
//
// Fails when the settings of AfterConnect take effect.
func TestPgxWithOtherSettingsOfTheSession(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(ways["pgx"](t).dsn("", ""))
	if err != nil {
		t.Fatal(err)
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SET standard_conforming_strings = off; SET client_encoding = 'LATIN1'")
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	store := pgxregistry.New(pool, sqlregistry.Options{})
	defer store.Close()
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if failed := calls(t, store); len(failed) > 0 {
		t.Error(failed)
	}
}
