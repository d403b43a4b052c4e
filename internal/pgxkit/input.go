package pgxkit

import "net"

// HasInput reports whether data, its end or an error has arrived at a connection that is a socket,
// or is wrapped around one. It reads nothing, and does not wait. If it cannot tell, known is false:
// the connection is not a socket, or the operating system is not Unix.
func HasInput(conn net.Conn) (yes, known bool) {
	for range 8 {
		inner, wraps := conn.(interface{ NetConn() net.Conn })
		if !wraps {
			break
		}
		conn = inner.NetConn()
	}
	return hasInput(conn)
}
