package pgxlock

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// driver implements sqllock.Driver.
type driver struct {
	pool *pgxpool.Pool

	// life ends with Close. Then what failed connections still wait for is cut off.
	life    context.Context
	endLife context.CancelFunc
	failed  sync.WaitGroup // connections that are being closed
	closing atomic.Int32   // how many these are
}

func newDriver() *driver {
	d := &driver{}
	d.life, d.endLife = context.WithCancel(context.Background())
	return d
}

func (d *driver) QueryRow(ctx context.Context, query string, args []any, dest ...any) error {
	return d.with(ctx, func(conn *pgx.Conn) error { return conn.QueryRow(ctx, query, args...).Scan(dest...) })
}

func (d *driver) Exec(ctx context.Context, statements string) error {
	return d.with(ctx, func(conn *pgx.Conn) error {
		// without arguments pgx uses the simple protocol, in which there may be several
		_, err := conn.Exec(ctx, statements)
		return err
	})
}

// Close waits for calls that are under way.
func (d *driver) Close() error {
	d.pool.Close()
	d.endLife()
	d.failed.Wait()
	return nil
}

// with calls do with a connection.
func (d *driver) with(ctx context.Context, do func(*pgx.Conn) error) error {
	for {
		conn, err := d.pool.Acquire(ctx)
		if err == nil {
			alive := isAlive(conn.Conn())
			if alive {
				err = do(conn.Conn())
			}
			d.giveBack(conn)
			if !alive { // it lies in the pool no more, so that this ends
				continue
			}
		}
		// That nobody gave a connection in time tells nothing of those that there are, and those
		// that are being made would be thrown away, too: where a connect takes longer than a call
		// may, none would ever be used.
		if conn != nil || ctx.Err() == nil {
			d.judge(err)
		}
		return err
	}
}

// maxClosing is how many failed connections may be on their way out beside those of the pool: the
// server may still count them.
const maxClosing = 8

// used is the key under which a connection knows when it was last used.
const used = "tickslot: used"

// isAlive tells whether the server has not closed the connection while nobody used it. That takes
// no round trip, but a millisecond, so that a connection is not looked at that was used just now.
func isAlive(conn *pgx.Conn) bool {
	last, ok := conn.PgConn().CustomData()[used].(time.Time)
	//lint:ignore SA1019 Ping costs a round trip. A connection that only seems to be alive fails, as one that breaks a moment later.
	return !ok || time.Since(last) < time.Second || conn.PgConn().CheckConn() == nil
}

// giveBack puts a connection back into the pool, or takes one out that failed. The pool itself
// would keep its place until the server has closed it, for up to 15 s if the network swallows
// everything: four of them, and the store would be down for that long.
func (d *driver) giveBack(conn *pgxpool.Conn) {
	// the server may be one that accepts connections, and hangs
	if !conn.Conn().IsClosed() || d.closing.Load() >= maxClosing {
		conn.Conn().PgConn().CustomData()[used] = time.Now()
		conn.Release()
		return
	}
	d.failed.Add(1)
	d.closing.Add(1)
	closed := conn.Hijack().PgConn().CleanupDone()
	go func() {
		defer d.failed.Done()
		defer d.closing.Add(-1)
		<-closed
	}()
}

// judge throws away all connections when one of them failed, or led to a server that has become
// read-only: they lead to the same server, and the next call had better look for it anew than find
// out about each of them. A caller that went away tells nothing.
func (d *driver) judge(err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	refusal, refused := errors.AsType[*pgconn.PgError](err)
	if !refused || refusal.Code == readOnly || strings.HasPrefix(refusal.Code, shutdown) {
		d.pool.Reset()
	}
}

const (
	readOnly = "25006"
	shutdown = "57P" // the server is being shut down, or the connection was ended by an administrator
)

// dialer dials by dial, and cuts off at the end of the driver's life what is still open then. That
// are failed connections: pgx asks the server to cancel their statements, on new connections, and
// waits for an answer.
func (d *driver) dialer(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(d.life, cancel)()
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &socket{conn, context.AfterFunc(d.life, func() { _ = conn.Close() })}, nil
	}
}

// A socket is closed with the driver.
type socket struct {
	net.Conn
	forget func() bool
}

func (s *socket) Close() error {
	s.forget()
	return s.Conn.Close()
}

// A discreet tracer is not told the arguments of statements.
type discreet struct{ tracer pgx.QueryTracer }

func (d discreet) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	data.Args = nil
	return d.tracer.TraceQueryStart(ctx, conn, data)
}

func (d discreet) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	d.tracer.TraceQueryEnd(ctx, conn, data)
}
