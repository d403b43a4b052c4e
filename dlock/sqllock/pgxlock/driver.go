package pgxlock

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tickslot/tickslot/internal/pgxkit"
)

// driver implements sqllock.Driver.
type driver struct {
	pool *pgxpool.Pool

	// life ends with Close. Connections that are still being closed are then cut off.
	life    context.Context
	endLife context.CancelFunc
	failed  sync.WaitGroup // connections that are being closed
	closing atomic.Int32   // number of these connections
}

func newDriver() *driver {
	d := &driver{}
	d.life, d.endLife = context.WithCancel(context.Background())
	return d
}

func (d *driver) QueryRow(ctx context.Context, query string, args []any, dest ...any) error {
	return d.call(ctx, dest, func(ctx context.Context, conn *pgx.Conn, dest []any) error {
		return conn.QueryRow(ctx, query, append([]any{execMode(conn)}, args...)...).Scan(dest...)
	})
}

func (d *driver) QueryRowAlone(ctx context.Context, query string, args []any, dest ...any) error {
	return d.call(ctx, dest, func(ctx context.Context, conn *pgx.Conn, dest []any) error {
		return pgxkit.Transact(ctx, conn, func(b *pgx.Batch) {
			b.Queue(query, args...).QueryRow(func(row pgx.Row) error { return row.Scan(dest...) })
		})
	})
}

// call runs do, which reads an answer into dest, on a connection. It returns when ctx ends. The
// server then has lateAnswer more time before the connection is closed.
func (d *driver) call(ctx context.Context, dest []any,
	do func(ctx context.Context, conn *pgx.Conn, dest []any) error) error {
	conn, err := d.acquire(ctx)
	if err != nil {
		return err
	}
	patient, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if deadline, ok := ctx.Deadline(); ok { // a transaction sends it to the server
		patient, cancel = context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(lateAnswer))
	}
	own := make([]any, len(dest)) // the caller may have left when the answer comes
	for i := range dest {
		own[i] = reflect.New(reflect.TypeOf(dest[i]).Elem()).Interface()
	}
	done := make(chan error, 1)
	go func() {
		defer cancel()
		err := do(patient, conn.Conn(), own)
		d.giveBack(conn)
		if patient.Err() != nil && !errors.Is(ctx.Err(), context.Canceled) { // lateAnswer has passed
			d.pool.Reset()
		} else { // a cancelled call may have waited for a lock on a healthy server
			d.judge(err)
		}
		done <- err
	}()
	select {
	case err := <-done:
		for i := range dest {
			reflect.ValueOf(dest[i]).Elem().Set(reflect.ValueOf(own[i]).Elem())
		}
		return err
	case <-ctx.Done():
		time.AfterFunc(lateAnswer, cancel)
		return ctx.Err()
	}
}

// lateAnswer is how long the server may answer after the time of a call. An answer in this time
// costs no connection. For the server, connecting is far more expensive than answering. If all
// hosts of a fleet reconnected after each late answer, the server could stay too busy to answer in
// time. A late call keeps one of the pool's connections.
const lateAnswer = time.Second

// execMode returns how a single statement is sent to a server. It uses one message, which the
// server executes only when it has received all of it. If a pipeline is cut off before its last
// message, a transaction stays open and a slot locked for as long as something keeps the connection
// up. Under other settings of a session, pgx cannot quote arguments.
func execMode(conn *pgx.Conn) pgx.QueryExecMode {
	c := conn.PgConn()
	if c.ParameterStatus("standard_conforming_strings") == "on" && c.ParameterStatus("client_encoding") == "UTF8" {
		return pgx.QueryExecModeSimpleProtocol
	}
	return pgx.QueryExecModeExec
}

func (d *driver) WithDB(do func(*sql.DB) error) error {
	db := stdlib.OpenDBFromPool(d.pool)
	return errors.Join(do(db), db.Close())
}

// Close waits for calls in progress.
func (d *driver) Close() error {
	d.pool.Close()
	d.endLife()
	d.failed.Wait()
	return nil
}

// acquire returns a connection that the server has not closed.
func (d *driver) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	for {
		conn, err := d.pool.Acquire(ctx)
		switch {
		case err == nil && pgxkit.IsAlive(conn.Conn()):
			return conn, nil
		case err == nil: // it leaves the pool, so the loop ends
			d.giveBack(conn)
			continue
		// If the pool had no connection in time, its connections are not at fault. Closing all
		// would also end connection attempts in progress: if connecting takes longer than a call
		// may, no call would ever succeed.
		case ctx.Err() == nil:
			d.judge(err)
		}
		return nil, err
	}
}

// maxClosing limits the failed connections that are closing in addition to the pool's, because the
// server may still count them.
const maxClosing = 8

// giveBack returns a connection to the pool, or removes a failed one. The pool itself would keep
// the place of a failed connection until the server has closed it, up to 15 s if the network is
// silent. With four such connections, the store would be down for that long.
func (d *driver) giveBack(conn *pgxpool.Conn) {
	// The server may be one that accepts connections and hangs.
	if !conn.Conn().IsClosed() || d.closing.Load() >= maxClosing {
		pgxkit.Used(conn.Conn())
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

// judge closes all connections after one of them failed or reached a read-only server. The others
// lead to the same server, and the next call should reconnect. A cancelled call says nothing about
// the server.
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
	shutdown = "57P" // the server is shutting down, or an administrator ended the connection
)

// dialer returns a dial function whose connections are closed when life ends. At that time, failed
// connections may still be open, because pgx asks the server to cancel their statements and waits
// for the answer.
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

// socket is a connection that is closed with the driver.
type socket struct {
	net.Conn
	forget func() bool
}

// NetConn returns the wrapped connection, as tls.Conn's method does.
func (s *socket) NetConn() net.Conn { return s.Conn }

func (s *socket) Close() error {
	s.forget()
	return s.Conn.Close()
}

// redactingTracer is a tracer that hides the arguments of statements.
type redactingTracer struct{ tracer pgx.QueryTracer }

func (r redactingTracer) TraceQueryStart(ctx context.Context, conn *pgx.Conn,
	data pgx.TraceQueryStartData) context.Context {
	data.Args = nil
	return r.tracer.TraceQueryStart(ctx, conn, data)
}

func (r redactingTracer) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	r.tracer.TraceQueryEnd(ctx, conn, data)
}
