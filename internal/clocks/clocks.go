// Package clocks compares the clock of this host with that of a store's server.
package clocks

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// maxOffset is the accepted difference between the two clocks.
const maxOffset = time.Second

// Warning describes how far a server's clock is off, or returns "" if it is accurate enough. The
// clock was read after sent and before got.
func Warning(sent, got, server time.Time) string {
	half := got.Sub(sent) / 2
	ahead := sent.Add(half).Sub(server)
	if ahead.Abs()-half <= maxOffset {
		return ""
	}
	const ms = time.Millisecond
	which, then := "ahead of",
		"starts its ticks too early, and those more than "+driver.MaxTickAhead.String()+" ahead are refused"
	if ahead < 0 {
		which, then = "behind", "starts its ticks too late"
	}
	return fmt.Sprintf("the clock of this host is %v %s the server's (give or take %v): leases are not affected, but "+
		"this host %s; synchronize both with NTP", ahead.Abs().Round(ms), which, max(half.Round(ms), ms), then)
}
