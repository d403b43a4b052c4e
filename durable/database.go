package durable

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
	opVerify      = "verify"
	opRegister    = "register"
	opDue         = "due"
	opMaterialize = "materialize"
	opClaim       = "claim"
	opRenew       = "renew"
	opFinish      = "finish"
	opReclaim     = "reclaim"
	opSweep       = "sweep"
	opStats       = "stats"
	opNotify      = "notify"
	opRead        = "read"
)

// A failure is the state of one kind of call: the error of its latest call (nil: it succeeded), and
// since when such calls fail, or succeed again.
type failure struct {
	err   error
	since time.Time
}

// A database bounds the calls to the store, and knows whether they succeed.
type database struct {
	name    string
	timeout time.Duration
	events  *events
	life    context.Context // of all calls: it ends with Run. Set when that begins

	mu        sync.Mutex // of all parts
	called    bool
	failures  int // in a row, of all calls
	down      bool
	changedAt time.Time          // when down last changed; zero: never
	err       error              // of the last call; nil: it succeeded
	failing   map[string]failure // by call
	errors    map[string]uint64
}

func newDatabase(name string, timeout time.Duration, v *events) *database {
	return &database{name: name, timeout: timeout, events: v, failing: map[string]failure{},
		errors: map[string]uint64{}}
}

// call makes a call to the store. A panic counts as a failure. The error of a call that the end of
// Run cut off is not recorded, because it says nothing about the database.
func call[T any](d *database, op string, f func(context.Context) (T, error)) (answer T, err error) {
	ctx, cancel := context.WithTimeout(d.life, d.timeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the call panicked: %v", p)
		}
		if d.life.Err() == nil || err == nil {
			d.record(op, err)
		}
	}()
	return f(ctx)
}

// record records whether a call succeeded, and tells of changes.
func (d *database) record(op string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.called, d.err = true, err
	before := d.failing[op]
	if (err == nil) != (before.err == nil) {
		d.failing[op] = failure{err, time.Now()}
	} else if err != nil {
		d.failing[op] = failure{err, before.since}
	}
	if err == nil {
		d.failures = 0
		if d.down {
			downFor := time.Since(d.changedAt)
			d.down, d.changedAt = false, time.Now()
			d.events.log(slog.LevelInfo, "durable: the database answers again", "down_for", downFor)
			tell(d.events, "DatabaseUp", d.events.hooks.DatabaseUp, DatabaseInfo{Database: d.name, DownFor: downFor})
		}
		return
	}
	d.errors[op]++
	d.failures++
	level := slog.LevelDebug
	if before.err == nil && !d.down { // else it was said
		level = slog.LevelWarn
	}
	d.events.log(level, "durable: a call to the database failed: it is repeated", "call", op, "err", err)
	if d.failures >= downAfter && !d.down {
		d.down, d.changedAt = true, time.Now()
		d.events.log(slog.LevelError, "durable: the database does not answer: runs go on as long as their leases "+
			"last, and nothing new starts", "err", err)
		tell(d.events, "DatabaseDown", d.events.hooks.DatabaseDown, DatabaseInfo{Database: d.name, Err: err})
	}
}

// status returns whether the database is up, since when, and its last error.
func (d *database) status() (up bool, changedAt time.Time, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.called && !d.down, d.changedAt, d.err
}

// wasCalled reports whether a call has returned.
func (d *database) wasCalled() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.called
}

// failureOf returns the error of the latest call of a sort (nil: it succeeded), and since when such
// calls fail, or no longer do (zero: none has failed).
func (d *database) failureOf(op string) failure {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failing[op]
}

// reachable returns an error while the database is down.
func (d *database) reachable() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.down {
		return nil
	}
	return fmt.Errorf("%s has not answered for %v: %w", d.name, time.Since(d.changedAt).Round(time.Second),
		d.err)
}

// errorCounts returns how many calls of each sort have failed.
func (d *database) errorCounts() map[string]uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.errors)
}
