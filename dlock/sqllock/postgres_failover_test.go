package sqllock_test

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/dlock/sqllock/pgxlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// A failover is a server whose name resolves to another address after fail. The first address then
// closes its connections and stops answering.
type failover struct {
	dial   pgconn.DialFunc
	first  net.Listener
	failed atomic.Bool

	mu            sync.Mutex
	network, addr string
	conns         []net.Conn
}

func (f *failover) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	switch first := f.first.Addr().String(); {
	case addr == first && f.failed.Load(): // pgx tries to cancel a statement of an old connection
		<-ctx.Done()
		return nil, ctx.Err()
	case addr == first || f.failed.Load():
		return f.dial(ctx, network, addr)
	default:
		f.mu.Lock()
		f.network, f.addr = network, addr
		f.mu.Unlock()
		return f.dial(ctx, "tcp", first)
	}
}

func (f *failover) serve(t *testing.T) {
	for {
		client, err := f.first.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.conns = append(f.conns, client)
		network, addr := f.network, f.addr
		f.mu.Unlock()
		server, err := f.dial(t.Context(), network, addr)
		if err != nil {
			client.Close()
			continue
		}
		for _, way := range [2][2]net.Conn{{client, server}, {server, client}} {
			go func() {
				_, _ = io.Copy(way[0], way[1])
				way[0].Close()
			}()
		}
	}
}

func (f *failover) connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns)
}

func (f *failover) fail() {
	f.failed.Store(true)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		c.Close()
	}
}

// After a failover, the first call reaches the new server. A connection that the old server has
// closed gives up its place in the pool immediately, although pgx still waits for the old address
// to cancel the statement.
//
// Fails when a dead connection keeps its place in the pool until it is closed (15 s).
func TestDeadConnectionsKeepNoPlacePostgres(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedPostgres(t)
	config, err := pgxpool.ParseConfig(server.DSN("", "", server.NewDatabase(t)))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	f := &failover{dial: config.ConnConfig.DialFunc, first: listener}
	config.ConnConfig.DialFunc = f.connect
	go f.serve(t)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store := pgxlock.New(pool, sqllock.Options{})
	defer store.Close()
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "the pool has all its connections", func() bool {
		var calls sync.WaitGroup
		for range 16 {
			calls.Go(func() {
				_, _ = store.TryAcquire(t.Context(), driver.Request{Name: "a", Token: "t", TTL: time.Minute})
			})
		}
		calls.Wait()
		return f.connections() >= 4
	})
	f.fail()
	began := time.Now()
	testkit.Eventually(t, testkit.Patience, "a call is answered", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := store.Inspect(ctx, "a")
		return err == nil
	})
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("no call was answered for %v", took)
	}
}
