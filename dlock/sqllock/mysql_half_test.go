package sqllock_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// Once stall is set, a halfConn delivers the next answer except its last packet, and then nothing
// more, like a server that hangs in the middle of an answer.
type halfConn struct {
	net.Conn
	stall  *atomic.Bool
	held   bool // the last packet was held back; used only by the reader
	closed chan struct{}
	close  sync.Once
}

func (c *halfConn) Read(b []byte) (int, error) {
	if c.held {
		<-c.closed
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Read(b)
	if c.stall.Load() && n > 0 {
		c.held = true
		if n = lastPacket(b[:n]); n == 0 {
			return c.Read(b)
		}
	}
	return n, err
}

func (c *halfConn) Close() error {
	c.close.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// lastPacket returns where the last packet begins. Each packet starts with its length in three
// bytes and a number.
func lastPacket(b []byte) (last int) {
	for next := 0; next+4 <= len(b); {
		last = next
		next += 4 + int(b[next]) + int(b[next+1])<<8 + int(b[next+2])<<16
	}
	return last
}

// The server hangs near the end of its answer. The call ends with its context, as with any other
// hang, and the next call uses another connection.
//
// Fails when sqlkit's QueryRow leaves the end of an answer to Rows.Close.
func TestI7HalfAnAnswerMySQL(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedMariaDB(t)
	for way, params := range map[string]string{"one round trip": oneTrip, "prepared": ""} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			dsn := server.DSN("", "", server.NewDatabase(t))
			var stall atomic.Bool
			network := strings.Trim(sqltest.Unique("half"), ":")
			mysql.RegisterDialContext(network, func(ctx context.Context, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
				return &halfConn{Conn: conn, stall: &stall, closed: make(chan struct{})}, err
			})
			direct := viaMySQL(dsn+params)(t, sqllock.Options{})
			if err := direct.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			s := viaMySQL(strings.Replace(dsn, "@tcp(", "@"+network+"(", 1)+params)(t, sqllock.Options{})
			g, err := direct.TryAcquire(t.Context(), request("x", 3))
			if err != nil {
				t.Fatal(err)
			}
			for what, call := range map[string]func(context.Context) error{
				"acquire": func(ctx context.Context) error { _, err := s.TryAcquire(ctx, request("x", 3)); return err },
				"extend":  func(ctx context.Context) error { _, err := s.Extend(ctx, time.Minute, g); return err },
				"release": func(ctx context.Context) error { _, err := s.Release(ctx, g); return err },
				"list":    func(ctx context.Context) error { _, err := s.List(ctx, "x", 3); return err },
				"inspect": func(ctx context.Context) error { _, err := s.Inspect(ctx, "x"); return err },
				"update": func(ctx context.Context) error {
					return s.Update(ctx, "x", driver.Update{Pause: &driver.Pause{Cause: ann}})
				},
				"revoke":  func(ctx context.Context) error { return s.Revoke(ctx, "x", g.Slot, g.Fence, ann) },
				"cleanup": s.Cleanup,
				"verify":  s.Verify,

				"enumerate": func(ctx context.Context) error { _, err := s.Enumerate(ctx, "", 10); return err },
			} {
				if _, err := s.List(t.Context(), "warm", 0); err != nil { // opens a connection
					t.Errorf("before %s: %v", what, err)
				}
				stall.Store(true)
				ended := make(chan error, 1)
				go func() {
					_, err := callWithTimeout(300*time.Millisecond, call)
					ended <- err
				}()
				select {
				case err := <-ended:
					if err == nil {
						t.Errorf("%s: the end of its answer is missing, and it returned no error", what)
					}
				case <-time.After(testkit.Patience):
					t.Fatalf("%s: goes on %v after its context has ended", what, testkit.Patience)
				}
				stall.Store(false)
			}
		})
	}
}
