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

	// idleFor is how long an own connection stays open that nobody uses, so that none is left
	// shortly after a worker has ended.
	idleFor = 10 * time.Second

	// surelyAlive is how soon after its use a connection is used again without a look whether the
	// server has closed it.
	surelyAlive = time.Second
)

// connections are those of the workers of a store. They are not a pgxpool.Pool, because that has
// goroutines of its own for as long as it exists, and not everybody closes a store.
type connections struct {
	config *pgxpool.Config // that of the pool
	turns  chan struct{}   // one is in it for each connection that is in use, or being made

	mu   sync.Mutex
	idle []idleConnection // the one that was used last is the last
}

type idleConnection struct {
	*pgx.Conn
	since time.Time
}

func newConnections(pool *pgxpool.Pool) *connections {
	config := pgxkit.OwnPool(pool, maxOwn, "tickslot durable")
	return &connections{config: config, turns: make(chan struct{}, maxOwn)}
}

// take returns a connection that nobody else uses. Give it back.
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
	made := false // deferred: what the application does when it connects may panic
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

// give takes a connection back after a call that had this error.
func (c *connections) give(conn *pgx.Conn, err error) {
	defer func() { <-c.turns }()
	if isAway(err) {
		// The others lead to the same server, and the next call should connect anew.
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

// expire closes what nobody has used for idleFor.
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

// isAway reports whether an error is not that of a statement, but of a server that is gone, or no
// longer the primary. A call that was canceled says nothing about the server.
func isAway(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	refusal, refused := errors.AsType[*pgconn.PgError](err)
	return !refused || refusal.Code == "25006" || strings.HasPrefix(refusal.Code, "57P")
}
