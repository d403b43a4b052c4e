package dlock

import (
	"fmt"
	"log/slog"
)

// Whoever knows a token can extend and release its lease, so none is printed, with any verb but
// %#v, nor logged by slog.

// String leaves the token out.
func (g Grant) String() string {
	return fmt.Sprintf("{Name:%s Slots:%d Slot:%d Token:%s Fence:%d Info:%+v PreviousExpired:%t Succeeded:%t}",
		g.Name, g.Slots, g.Slot, hidden(g.Token), g.Fence, g.Info, g.PreviousExpired, g.Succeeded)
}

// LogValue leaves the token out.
func (g Grant) LogValue() slog.Value { return slog.StringValue(g.String()) }

// String leaves the token out.
func (r Request) String() string {
	tick := "none"
	if r.Tick != nil {
		tick = fmt.Sprintf("%+v", *r.Tick)
	}
	return fmt.Sprintf("{Name:%s Slots:%d Holder:%v Token:%s TTL:%v Tick:%s}", r.Name, r.Slots, r.Holder, hidden(r.Token), r.TTL, tick)
}

// LogValue leaves the token out.
func (r Request) LogValue() slog.Value { return slog.StringValue(r.String()) }

// String tells what is held, and not its token.
func (l *Lease) String() string {
	return fmt.Sprintf("lease of %s, slot %d, fence %d", l.Name(), l.Slot(), l.Fence())
}

// String tells whose session it is.
func (s *Session) String() string { return "session of " + s.holder.String() }

// hidden tells two tokens apart in a message, and gives neither away.
func hidden(token string) string {
	if len(token) < 12 { // of a test, or made up: half of it would be most of it
		return "…"
	}
	return token[:6] + "…"
}
