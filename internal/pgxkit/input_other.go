//go:build !unix || aix

package pgxkit

import "net"

// hasInput cannot tell on this operating system.
func hasInput(net.Conn) (yes, known bool) { return false, false }
