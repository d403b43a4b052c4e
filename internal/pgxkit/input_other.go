//go:build !unix || aix

package pgxkit

import "net"

// hasInput cannot tell here.
func hasInput(net.Conn) (yes, known bool) { return false, false }
