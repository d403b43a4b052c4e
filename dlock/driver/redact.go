package driver

import (
	"fmt"
	"log/slog"
)

// Anyone who has a token can extend or release its lease. So fmt (except with %#v) and slog print
// no tokens.

// String returns the grant with its token shortened.
func (g Grant) String() string {
	return fmt.Sprintf("{Name:%s Slots:%d Slot:%d Token:%s Fence:%d Info:%+v PreviousExpired:%t Succeeded:%t}",
		g.Name, g.Slots, g.Slot, redacted(g.Token), g.Fence, g.Info, g.PreviousExpired, g.Succeeded)
}

// LogValue returns the grant with its token shortened.
func (g Grant) LogValue() slog.Value { return slog.StringValue(g.String()) }

// String returns the request with its token shortened.
func (r Request) String() string {
	tick := "none"
	if r.Tick != nil {
		tick = fmt.Sprintf("%+v", *r.Tick)
	}
	return fmt.Sprintf("{Name:%s Slots:%d Holder:%v Token:%s TTL:%v Tick:%s}",
		r.Name, r.Slots, r.Holder, redacted(r.Token), r.TTL, tick)
}

// LogValue returns the request with its token shortened.
func (r Request) LogValue() slog.Value { return slog.StringValue(r.String()) }

// redacted shortens a token: enough remains to tell two tokens apart, but not enough to use one.
func redacted(token string) string {
	if len(token) < 12 { // not one of ours, and six characters could be most of it
		return "…"
	}
	return token[:6] + "…"
}
