//go:build unix

package pgxkit

import (
	"errors"
	"net"
	"syscall"
)

// hasInput reports whether data, its end or an error has arrived at a socket, and leaves it there.
// It does not wait. If that cannot be told, known is false.
func hasInput(conn net.Conn) (yes, known bool) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false, false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false, false
	}
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		yes = !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR)
		return true
	})
	return yes, err == nil
}
