package rediskit

import (
	"context"
	"io"
	"net"
	"syscall"
	"time"
)

// For every failed dial, go-redis prints a line with a logger that all clients of the process
// share, so replacing the logger would also silence the application's clients. Our stores log an
// outage once. So our pools never see a failed dial: they get a connection that fails on first use,
// with the error of the dial.

// quietly wraps dial so that it returns an undialed connection instead of an error.
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
// connection and closes it when the write fails. If the caller left before the dial failed,
// go-redis keeps the connection and checks its descriptor before it passes it to another caller.
// That check fails too.
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
