package postgres

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/internal/pgxkit"
)

const (
	// maxOwn is enough for the loops of a worker, each of which makes one call at a time.
	maxOwn = 4

	// idleFor is how long an unused connection stays open. It is short, so that connections close
	// soon after a worker has ended.
	idleFor = 10 * time.Second

	// surelyAlive is how long after its last use a connection is used without checking whether the
	// server has closed it.
	surelyAlive = time.Second
)

// connections holds the connections for a store's workers. It does not use a pgxpool.Pool, because
// a pool runs goroutines until it is closed, and not every program closes its store.
type connections struct {
	config *pgxpool.Config // the pool's
	turns  chan struct{}   // holds one element for each connection that is in use or being opened

	mu   sync.Mutex
	idle []idleConnection // the most recently used comes last
}

type idleConnection struct {
	*pgx.Conn
	since time.Time
}

func newConnections(pool *pgxpool.Pool) *connections {
	config := pgxkit.OwnPool(pool, maxOwn, "tickslot durable")
	return &connections{config: config, turns: make(chan struct{}, maxOwn)}
}

// take returns a connection that no other call uses. The caller must give it back.
func (c *connections) take(ctx context.Context) (*pgx.Conn, error) {
	select {
	case c.turns <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for {
		conn, ok := c.pop()
		if !ok {
			break
		}
		//nolint:staticcheck // Ping costs a round trip; if this is wrong, the call fails.
		if time.Since(conn.since) < surelyAlive || conn.PgConn().CheckConn() == nil {
			return conn.Conn, nil
		}
		pgxkit.HangUp(conn.Conn)
	}
	made := false // deferred, because connection hooks of the application may panic
	defer func() {
		if !made {
			<-c.turns
		}
	}()
	conn, err := pgxkit.Connect(ctx, c.config)
	made = err == nil
	return conn, err
}

func (c *connections) pop() (idleConnection, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle) == 0 {
		return idleConnection{}, false
	}
	last := c.idle[len(c.idle)-1]
	c.idle = c.idle[:len(c.idle)-1]
	return last, true
}

// give takes back a connection after a call that returned err.
func (c *connections) give(conn *pgx.Conn, err error) {
	defer func() { <-c.turns }()
	if isAway(err) {
		// The other connections lead to the same server, so the next call should open a new one.
		pgxkit.HangUp(conn)
		c.close()
		return
	}
	if conn.IsClosed() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = append(c.idle, idleConnection{conn, time.Now()})
	time.AfterFunc(idleFor, c.expire)
}

// close closes the connections that are not in use.
func (c *connections) close() {
	for conn, ok := c.pop(); ok; conn, ok = c.pop() {
		pgxkit.HangUp(conn.Conn)
	}
}

// expire closes connections that were unused for idleFor.
func (c *connections) expire() {
	c.mu.Lock()
	n := 0
	for n < len(c.idle) && time.Since(c.idle[n].since) >= idleFor {
		n++
	}
	old := append([]idleConnection(nil), c.idle[:n]...)
	c.idle = append([]idleConnection(nil), c.idle[n:]...)
	c.mu.Unlock()
	for _, conn := range old {
		pgxkit.HangUp(conn.Conn)
	}
}

// isAway reports whether an error shows that the server is gone or is no longer the primary. The
// error of a canceled call says nothing about the server.
func isAway(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	refusal, refused := errors.AsType[*pgconn.PgError](err)
	return !refused || refusal.Code == "25006" || strings.HasPrefix(refusal.Code, "57P")
}
