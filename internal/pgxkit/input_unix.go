//go:build unix && !aix

package pgxkit

import (
	"errors"
	"net"
	"syscall"
)

// hasInput is like HasInput, for a connection that does not wrap another one.
func hasInput(conn net.Conn) (yes, known bool) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false, false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false, false
	}
	// Read instead of Control would wait for a reading goroutine, which pgx may have left behind.
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		yes = !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR)
	})
	return yes, err == nil
}
