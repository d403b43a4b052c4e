package caslock

import (
	"sync"
	"time"

	"github.com/tickslot/tickslot/internal/suspend"
)

const (
	// drift is how much the speeds of this host's clock and the server's clock may differ: 500
	// parts per million, the most that NTP corrects.
	drift = 500
	// freshFor is how long bounds are used without a new answer. In this time they become 60 ms
	// wider.
	freshFor = time.Minute
	// defaultSkew is the default of Clock.MaxSkew.
	defaultSkew = 500 * time.Millisecond
)

// A Clock derives the server's time from the times in its answers, even if these have whole seconds
// only, as in HTTP's Date header. Each answer gives two bounds. The bounds from many answers
// together are some tens of milliseconds apart. The host's own clock only measures the time since
// an answer; the time of day that it shows is not used.
//
// A server may have several members whose clocks differ, and any member may answer. The time of the
// latest clock is the server's time.
type Clock struct {
	// MaxSkew is the maximum difference between the clocks of the server's members. Leases may last
	// longer by this much. If the clocks differ by more, MaxConcurrency may be exceeded. Set it
	// before the first use. At most 2 s. A negative value means that the server has one clock.
	// Default 500 ms.
	MaxSkew time.Duration

	mu        sync.Mutex
	bounds    Bounds
	at        time.Time     // when the bounds held, by this host's clock
	suspended time.Duration // how long this host had been asleep at that time
	restarts  int
}

// Observe learns from an answer. The request was sent and the answer was received at the given
// times. Between them the server's clock showed stamp, truncated to a multiple of unit.
func (c *Clock) Observe(sent, received, stamp time.Time, unit time.Duration) {
	skew := c.MaxSkew
	if skew == 0 {
		skew = defaultSkew
	}
	now := Bounds{stamp, stamp.Add(unit + max(0, received.Sub(sent)) + max(0, skew))}
	asleep := suspend.Suspended()
	c.mu.Lock()
	defer c.mu.Unlock()
	if received.Before(c.at) { // a later answer was observed first
		now, received = later(now, c.at.Sub(received)), c.at
	}
	if known, ok := c.after(received, asleep); ok {
		both := now
		if known.From.After(both.From) {
			both.From = known.From
		}
		if known.Until.Before(both.Until) {
			both.Until = known.Until
		}
		if both.Until.Before(both.From) { // a clock was set, or the members differ by more than MaxSkew
			c.restarts++
		} else {
			now = both
		}
	}
	c.bounds, c.at, c.suspended = now, received, asleep
}

// Now returns bounds of the server's time. ok is false if no answer came within the last minute or
// since this host was last asleep. In that case ask the server.
func (c *Clock) Now() (b Bounds, ok bool) {
	asleep := suspend.Suspended()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.after(time.Now(), asleep)
}

// Restarts returns how many answers contradicted the ones before them, either because the server's
// clock was set or because its members' clocks differ by more than MaxSkew.
func (c *Clock) Restarts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.restarts
}

// after returns the bounds at time t of this host's clock.
func (c *Clock) after(t time.Time, asleep time.Duration) (Bounds, bool) {
	passed := t.Sub(c.at)
	if c.at.IsZero() || passed > freshFor || asleep != c.suspended {
		return Bounds{}, false
	}
	return later(c.bounds, max(0, passed)), true
}

// later returns b moved forward by passed and widened by the possible drift.
func later(b Bounds, passed time.Duration) Bounds {
	wrong := passed * drift / 1_000_000
	return Bounds{b.From.Add(passed - wrong), b.Until.Add(passed + wrong)}
}
