package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"
)

// downAfter is how many calls in a row have to fail before the database counts as down.
const downAfter = 3

// The calls, as metrics and lines name them.
const (
	opVerify = "verify"
	opLayout = "layout"
	opDue    = "due"
	opMark   = "mark"
	opSweep  = "sweep"
	opStats  = "stats"
	opLocks  = "locks"
)

// calls bounds the calls of a relay to the database, and knows whether they succeed.
type calls struct {
	name    string
	timeout time.Duration
	events  *events
	life    context.Context // of all calls: it ends with Run. Set when that begins

	mu        sync.Mutex // of all parts
	called    bool
	failures  int // in a row, of all calls
	down      bool
	changedAt time.Time // when down last changed; zero: never
	failing   map[string]error
	errors    map[string]uint64
}

// call makes a call to the database. A panic is a failure. A call that the end of Run has cut off
// is not recorded, because it says nothing about the database.
func call[T any](c *calls, op string, f func(context.Context) (T, error)) (answer T, err error) {
	ctx, cancel := context.WithTimeout(c.life, c.timeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the call panicked: %v", p)
		}
		if c.life.Err() == nil || err == nil {
			c.record(op, err)
		}
	}()
	return f(ctx)
}

// record records whether a call succeeded, and tells of changes.
func (c *calls) record(op string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.called = true
	before := c.failing[op]
	if err == nil {
		delete(c.failing, op)
		c.failures = 0
		if c.down {
			downFor := time.Since(c.changedAt)
			c.down, c.changedAt = false, time.Now()
			c.events.log(slog.LevelInfo, "outbox: the database answers again", "down_for", downFor)
			tell(c.events, "DatabaseUp", c.events.hooks.DatabaseUp, DatabaseInfo{Database: c.name, DownFor: downFor})
		}
		return
	}
	c.failing[op] = err
	c.errors[op]++
	c.failures++
	level := slog.LevelDebug
	if before == nil && !c.down { // else it was said
		level = slog.LevelWarn
	}
	c.events.log(level, "outbox: a call to the database failed: it is repeated", "call", op, "err", err)
	if c.failures >= downAfter && !c.down {
		c.down, c.changedAt = true, time.Now()
		c.events.log(slog.LevelError, "outbox: the database does not answer: nothing is delivered", "err", err)
		tell(c.events, "DatabaseDown", c.events.hooks.DatabaseDown, DatabaseInfo{Database: c.name, Err: err})
	}
}

// wasCalled reports whether a call has returned.
func (c *calls) wasCalled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.called
}

// errorOf returns the error of the latest call of a sort; nil: it succeeded.
func (c *calls) errorOf(op string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failing[op]
}

// reachable returns an error while the database is down.
func (c *calls) reachable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.down {
		return nil
	}
	return fmt.Errorf("%s has not answered for %v", c.name, time.Since(c.changedAt).Round(time.Second))
}

// errorCounts returns how many calls of each sort have failed.
func (c *calls) errorCounts() map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.errors)
}
