package caslock

import (
	"sync"
	"time"

	"github.com/tickslot/tickslot/internal/suspend"
)

const (
	// drift is by how much this host's clock may be faster or slower than the server's: 500 of a
	// million parts, which is what NTP corrects at most.
	drift = 500
	// freshFor is how long bounds are used without another answer. They are 60 ms wider by then.
	freshFor = time.Minute
	// defaultSkew is the default of Clock.MaxSkew.
	defaultSkew = 500 * time.Millisecond
)

// A Clock finds out what a server's clock shows from times in its answers, also if these have whole
// seconds only, as the header Date of HTTP has: each answer gives two bounds, and those of many
// leave some tens of milliseconds. The clock of this host measures how much time has passed since;
// what it shows plays no part.
//
// A server may be several, whose clocks differ. What their latest clock shows is the time, and any
// of them may have answered.
type Clock struct {
	// MaxSkew is by how much the clocks of the server's members differ at most. Leases may last by
	// so much longer. If it is larger than that, MaxConcurrency may be exceeded. Set it before the
	// first use. At most 2 s. Default 500 ms; negative: the server has one clock.
	MaxSkew time.Duration

	mu        sync.Mutex
	bounds    Bounds
	at        time.Time     // when they held, by this host's clock
	suspended time.Duration // how long this host had been asleep by then
	restarts  int
}

// Observe learns from an answer: its request was sent, and it was received, at these times, and the
// server's clock showed stamp between them, cut to a whole unit.
func (c *Clock) Observe(sent, received, stamp time.Time, unit time.Duration) {
	skew := c.MaxSkew
	if skew == 0 {
		skew = defaultSkew
	}
	now := Bounds{stamp, stamp.Add(unit + max(0, received.Sub(sent)) + max(0, skew))}
	asleep := suspend.Suspended()
	c.mu.Lock()
	defer c.mu.Unlock()
	if received.Before(c.at) { // another answer came first
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
		if both.Until.Before(both.From) { // one of the clocks was set, or the members differ by more
			c.restarts++
		} else {
			now = both
		}
	}
	c.bounds, c.at, c.suspended = now, received, asleep
}

// Now returns bounds of what the server's clock shows. ok is false if no answer came within the
// last minute, or since this host was asleep: then ask the server.
func (c *Clock) Now() (b Bounds, ok bool) {
	asleep := suspend.Suspended()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.after(time.Now(), asleep)
}

// Restarts returns how often an answer contradicted those before it, because the server's clock was
// set, or because the clocks of its members differ by more than MaxSkew.
func (c *Clock) Restarts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.restarts
}

// after returns the bounds at a time of this host.
func (c *Clock) after(t time.Time, asleep time.Duration) (Bounds, bool) {
	passed := t.Sub(c.at)
	if c.at.IsZero() || passed > freshFor || asleep != c.suspended {
		return Bounds{}, false
	}
	return later(c.bounds, max(0, passed)), true
}

// later returns the bounds after some time.
func later(b Bounds, passed time.Duration) Bounds {
	wrong := passed * drift / 1_000_000
	return Bounds{b.From.Add(passed - wrong), b.Until.Add(passed + wrong)}
}
