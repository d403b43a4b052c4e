package clustertest

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"sync"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
)

// callTimeout bounds every call to the store. Only a store that hangs reaches it.
const callTimeout = 30 * time.Second

// A check tests one promise on fresh registries. It collects findings instead of failing a test,
// so that the suite itself can be tested on broken stores.
type check struct {
	Registries
	slack time.Duration
	ctx   context.Context // ends with the test

	mu      sync.Mutex
	broken  []string
	skipped string
}

// giveUp is the panic value that ends a check early.
type giveUp struct{}

// errorf records a broken promise. It may be called from any goroutine.
func (c *check) errorf(format string, args ...any) { c.note(format, args...) }

// fatalf records a broken promise and ends the check. Only the check's own goroutine may call it.
func (c *check) fatalf(format string, args ...any) {
	c.note(format, args...)
	panic(giveUp{})
}

// skip ends the check without a finding.
func (c *check) skip(why string) {
	c.skipped = why
	panic(giveUp{})
}

// note records the message and the line in the promise that caused it.
func (c *check) note(format string, args ...any) {
	where := ""
	for skip := 2; ; skip++ {
		_, file, line, ok := runtime.Caller(skip)
		if !ok {
			break
		}
		if name := filepath.Base(file); name != "check.go" {
			where = fmt.Sprintf("%s:%d: ", name, line)
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	const enough = 20
	if len(c.broken) < enough {
		c.broken = append(c.broken, where+fmt.Sprintf(format, args...))
	}
}

// A span is the interval in which a call ran, by the monotonic clock of this process.
type span struct{ from, to time.Time }

func during(call func()) span {
	from := time.Now()
	call()
	return span{from, time.Now()}
}

// write writes a batch to Store and fails the check on an error.
func (c *check) write(b cluster.Batch) span {
	_, at := c.writeTo(c.Store, b)
	return at
}

func (c *check) writeTo(store cluster.Store, b cluster.Batch) (w cluster.Written, at span) {
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	defer cancel()
	var err error
	at = during(func() { w, err = store.Write(ctx, b) })
	if err != nil {
		c.fatalf("Write: %v", err)
	}
	return w, at
}

var everything = cluster.Query{Events: cluster.MaxEvents, Runs: 10_000, Timers: 10_000}

// read returns all rows of Store.
func (c *check) read() (cluster.Rows, span) { return c.readFrom(c.Store, everything) }

func (c *check) readFrom(store cluster.Store, q cluster.Query) (rows cluster.Rows, at span) {
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	defer cancel()
	var err error
	at = during(func() { rows, err = store.Read(ctx, q) })
	if err != nil {
		c.fatalf("Read: %v", err)
	}
	return rows, at
}

// runs returns the runs of a timer.
func (c *check) runs(timer string) ([]cluster.Run, span) {
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	defer cancel()
	var runs []cluster.Run
	var err error
	at := during(func() { runs, err = c.Store.Runs(ctx, timer) })
	if err != nil {
		c.fatalf("Runs: %v", err)
	}
	return runs, at
}

func (c *check) sweep(r cluster.Retention, limit int) (deleted int) {
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	defer cancel()
	deleted, err := c.Store.Sweep(ctx, r, limit)
	if err != nil {
		c.fatalf("Sweep: %v", err)
	}
	return deleted
}

// host returns the only host of the registry, and ends the check if there is not exactly one.
func (c *check) host() cluster.HostRow {
	rows, _ := c.read()
	if len(rows.Hosts) != 1 {
		c.fatalf("%d hosts, want 1: %+v", len(rows.Hosts), rows.Hosts)
	}
	return rows.Hosts[0]
}

// ago checks an age: it was want when the row was written, and has grown since then.
func (c *check) ago(what string, got, want time.Duration, written, read span) {
	least, most := want+read.from.Sub(written.to)-c.slack, want+read.to.Sub(written.from)+c.slack
	if got < least || got > most {
		c.errorf("%s: %v, want %v to %v", what, got, least, most)
	}
}

// same checks that two values are deeply equal.
func (c *check) same(what string, got, want any) {
	if !reflect.DeepEqual(got, want) {
		c.errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

// sameHost compares a host row with what was written, except for its times. The formatting of
// Detail may differ.
func (c *check) sameHost(got cluster.HostRow, want cluster.Heartbeat) {
	var gotDetail, wantDetail any
	if err := json.Unmarshal(got.Detail, &gotDetail); err != nil {
		c.errorf("Detail %.100q: %v", got.Detail, err)
	} else if err := json.Unmarshal(want.Detail, &wantDetail); err != nil {
		c.fatalf("the test's own Detail: %v", err)
	} else if !reflect.DeepEqual(gotDetail, wantDetail) {
		c.errorf("Detail %.100q, want %.100q", got.Detail, want.Detail)
	}
	got.Detail, want.Detail, got.UpFor, want.UpFor = nil, nil, 0, 0
	c.same("host", got.Heartbeat, want)
}

// sameLease compares a lease row with what was written, except for its times.
func (c *check) sameLease(got, want cluster.LeaseRecord) {
	c.same("lease", timeless(got), timeless(want))
}

func timeless(l cluster.LeaseRecord) cluster.LeaseRecord {
	l.HeldFor, l.RenewedAgo, l.ExpiresIn = 0, 0, 0
	return l
}

// The functions below return rows as hosts write them. Each test changes the fields it checks.

func holder(name string) dlock.Holder { return dlock.Holder{Host: name, PID: 4711, ID: "id-" + name} }

func heartbeat(name string) cluster.Heartbeat {
	return cluster.Heartbeat{Holder: holder(name), Environment: "prod", AppVersion: "1.2.3", Version: "v0.9.0",
		UpFor: time.Hour, ClockOffset: -20 * time.Millisecond, TTL: time.Hour,
		Detail: json.RawMessage(`{"timers":[{"name":"orders","max_concurrency":3}]}`)}
}

func leaseRecord(name, host string) cluster.LeaseRecord {
	return cluster.LeaseRecord{Name: name, Kind: "timer", Holder: holder(host), Fence: 7, Grant: "grant-" + host,
		HeldFor: time.Hour, RenewedAgo: time.Minute, ExpiresIn: 2 * time.Hour}
}

func event(id string, ago time.Duration) cluster.Event {
	return cluster.Event{ID: id, Kind: cluster.EventAcquired, Name: "orders", Slot: 2, Fence: 7, Holder: holder("a"),
		Text: "by hand", Ago: ago}
}

func run(id, timer string, endedAgo time.Duration) cluster.Run {
	return cluster.Run{ID: id, Timer: timer, Holder: holder("a"), Slot: 1, Fence: 7, EndedAgo: endedAgo,
		Tick: time.Date(2026, 2, 3, 4, 5, 6, 7000, time.UTC), Took: 1234567 * time.Microsecond, Outcome: "failed",
		Err: "no luck", Attempts: 3, By: "ann"}
}
