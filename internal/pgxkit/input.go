package pgxkit

import "net"

// HasInput reports whether data, the end of the stream or an error has arrived at a connection,
// which is a socket or a wrapper around one. It reads nothing and does not wait. known is false if
// it cannot tell, because the connection is not a socket or the operating system is not Unix.
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
