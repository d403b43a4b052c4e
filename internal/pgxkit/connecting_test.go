package pgxkit

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// If the server has ended a connection and is unreachable, the connection is closed within the time
// to connect. Until then it occupies its place in a pool.
//
// Fails when pgx may spend as long on connecting as it allows for canceling a statement (15 s).
func TestFailedConnectionIsClosedSoon(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedPostgres(t)
	proxy, err := servertest.NewProxy(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	dsn := server.DSN("", "", server.NewDatabase(t))
	config, err := pgx.ParseConfig(strings.Replace(dsn, server.Addr(), proxy.Addr(), 1))
	if err != nil {
		t.Fatal(err)
	}
	var gone atomic.Bool
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if gone.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return dial(ctx, network, addr)
	}
	BoundConnecting(config)
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	gone.Store(true)
	proxy.Reset()
	began := time.Now()
	if err := conn.Ping(t.Context()); err == nil {
		t.Fatal("the connection was not ended")
	}
	select {
	case <-conn.PgConn().CleanupDone():
	case <-time.After(20 * time.Second):
	}
	if took := time.Since(began); took > connectTime+5*time.Second {
		t.Errorf("it was closed after %v", took)
	}
}
