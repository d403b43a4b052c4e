package rediskit

import (
	"context"
	"io"
	"net"
	"syscall"
	"time"
)

// go-redis prints a line for every dial that fails, by a logger that all clients of the process
// share, so replacing it would silence those of the application, too. Our stores log an outage
// once. So our pools never see a dial fail: they get a connection that fails as soon as it is used,
// with the error of the dial.

// quietly returns dial in a form that returns an undialed connection instead of an error.
func quietly(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return undialed{dialError{err}}, nil
		}
		return conn, nil
	}
}

// An undialed connection fails with the error of its dial. go-redis immediately writes to a new
// connection, and closes it when that fails. If the caller went away before the dial had failed, it
// keeps the connection, and looks at its descriptor before it gives it to another caller: that
// fails, too.
type undialed struct{ err dialError }

var _ syscall.Conn = undialed{}

func (u undialed) Read([]byte) (int, error)              { return 0, io.EOF }
func (u undialed) Write([]byte) (int, error)             { return 0, u.err }
func (u undialed) Close() error                          { return nil }
func (u undialed) LocalAddr() net.Addr                   { return &net.TCPAddr{} }
func (u undialed) RemoteAddr() net.Addr                  { return &net.TCPAddr{} }
func (u undialed) SetDeadline(time.Time) error           { return nil }
func (u undialed) SetReadDeadline(time.Time) error       { return nil }
func (u undialed) SetWriteDeadline(time.Time) error      { return nil }
func (u undialed) SyscallConn() (syscall.RawConn, error) { return nil, u.err }

// A dialError wraps the error of a dial, because go-redis unwraps the error of a new connection
// once.
type dialError struct{ err error }

func (d dialError) Error() string { return d.err.Error() }
func (d dialError) Unwrap() error { return d.err }
