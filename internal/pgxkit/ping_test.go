package pgxkit

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/internal/sqltest"
	"github.com/tickslot/tickslot/internal/testkit"
)

// A connection is pinged if the server has sent something since it was last used, such as its last
// word, and only then.
//
// Fails when idle connections cost a round trip, or when one that the server has closed does not.
func TestShouldPing(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedPostgres(t)
	config, err := pgxpool.ParseConfig(server.DSN("", "", server.NewDatabase(t)))
	if err != nil {
		t.Fatal(err)
	}
	asked, pinged := 0, 0
	config.MaxConns = 1
	config.ShouldPing = func(ctx context.Context, p pgxpool.ShouldPingParams) bool {
		yes := ShouldPing(ctx, p)
		asked++
		if yes {
			pinged++
		}
		return yes
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	var pid int
	backend := func() {
		t.Helper()
		if err := pool.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		backend()
	}
	if asked < 2 || pinged != 0 {
		t.Fatalf("%d pings for %d calls", pinged, asked)
	}
	was := pid
	if _, err := server.Exec("postgres", fmt.Sprintf("SELECT pg_terminate_backend(%d)", pid)); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "the backend is gone", func() bool {
		left, err := server.Exec("postgres", fmt.Sprintf("SELECT count(*) FROM pg_stat_activity WHERE pid = %d", was))
		return err == nil && strings.TrimSpace(left) == "0"
	})
	backend()
	if pinged != 1 || pid == was {
		t.Errorf("%d pings, backend %d, was %d", pinged, pid, was)
	}
}
