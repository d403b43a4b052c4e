// Package doctor looks for conditions that endanger a fleet, in its store and in what its hosts
// report about themselves.
//
// Every failed check describes the repair. A fleet in which all checks pass is not guaranteed to be
// healthy. The checks run once, from this machine: round trips and the clock are this machine's,
// and the checks see only what the user of the URL may see.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/stores"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
)

// slowTrip is the round trip time from which the store's timeout leaves little margin: a fifth of
// dlock.DefaultStoreTimeout, which a heartbeat gets.
const slowTrip = dlock.DefaultStoreTimeout / 5

// poolerTries is how often two clients check which server connection serves them.
const poolerTries = 5

// A Target is the store and fleet to check.
type Target struct {
	Store    *stores.Store
	Snapshot func(ctx context.Context) (*cluster.Snapshot, error)
	Calls    int // round trips to measure
}

// A Severity says how bad the finding of a check is.
type Severity string

// The severities. Only a failure needs immediate action. A warning disappears by itself after a
// rollout, or endangers the fleet only in combination with another fault.
const (
	SeverityOK      Severity = "ok"
	SeverityNote    Severity = "note" // may be intended
	SeverityWarning Severity = "warning"
	SeverityFailure Severity = "failure"
)

// A Result is the finding of one check.
type Result struct {
	About    string   `json:"about"`
	Severity Severity `json:"severity"`
	Text     string   `json:"text"`
	Fix      string   `json:"fix,omitempty"` // what to do; "" if OK
}

// A report collects the results of checks.
type report struct {
	Target
	snapshot    *cluster.Snapshot // never nil
	snapshotErr error             // why it could not be read
	results     []Result

	noRegistry bool // the registry has no tables
}

func (r *report) pass(about, format string, args ...any) {
	r.results = append(r.results, Result{About: about, Severity: SeverityOK, Text: fmt.Sprintf(format, args...)})
}

func (r *report) fail(about, fix, format string, args ...any) {
	r.add(SeverityFailure, about, fix, format, args...)
}

func (r *report) warn(about, fix, format string, args ...any) {
	r.add(SeverityWarning, about, fix, format, args...)
}

func (r *report) add(severity Severity, about, fix, format string, args ...any) {
	r.results = append(r.results, Result{About: about, Severity: severity, Text: fmt.Sprintf(format, args...),
		Fix: fix})
}

// Check checks a store and its fleet. It changes nothing.
func Check(ctx context.Context, t Target) []Result {
	r := &report{Target: t, snapshot: &cluster.Snapshot{}}
	if r.roundTrips(ctx) {
		if s, err := t.Snapshot(ctx); err == nil {
			r.snapshot = s
		} else {
			r.snapshotErr = err
		}
		r.tables(ctx)
		r.audit(ctx)
		if t.Store.Redis != nil {
			r.redis(ctx)
		}
		if t.Store.Pool != nil {
			r.pooler(ctx)
		}
		r.fleet()
	}
	for i := range r.results { // in an operator's words, on one line
		for _, text := range []*string{&r.results[i].Text, &r.results[i].Fix} {
			*text = t.Store.Say(errors.New(*text))
		}
	}
	return r.results
}

// roundTrips measures calls and reports whether the store answers.
func (r *report) roundTrips(ctx context.Context) bool {
	const about = "round trips"
	took := make([]time.Duration, 0, r.Calls)
	if err := r.Store.Ping(ctx); err != nil { // the first call also connects
		advice, sure := r.Store.Advice(err)
		if !sure {
			advice = strings.TrimSpace(advice + " See that it runs, that this machine reaches it, and that user, " +
				"password and database are right.")
		}
		r.fail("connection", advice, "the store does not answer: %v", err)
		return false
	}
	for range r.Calls {
		began := time.Now()
		if err := r.Store.Ping(ctx); err != nil {
			r.fail(about, "Look at the network, and at what else the server does.",
				"after %d calls the store did not answer: %v", len(took), err)
			return false
		}
		took = append(took, time.Since(began))
	}
	p50, p99 := quantile(took, 0.5), quantile(took, 0.99)
	if p99 > slowTrip {
		r.warn(about, "Bring hosts and store nearer to each other, or look at what else the server does; else raise "+
			"StoreTimeout and TTL.", "p50 %v, p99 %v of %d: leases are renewed too late when it gets worse", p50, p99,
			len(took))
		return true
	}
	r.pass(about, "p50 %v, p99 %v of %d", p50, p99, len(took))
	return true
}

// quantile returns a quantile by the nearest-rank method.
func quantile(took []time.Duration, q float64) time.Duration {
	slices.Sort(took)
	rank := int(q*float64(len(took))+0.999999) - 1
	return took[max(0, min(rank, len(took)-1))].Round(time.Microsecond)
}

// audit asks the store of locks for settings that endanger leases: clocks, eviction, persistence,
// replicas, and on databases also tables and rights.
func (r *report) audit(ctx context.Context) {
	const about = "settings for leases"
	warnings, err := driver.CapabilitiesOf(r.Store.Locks).Auditor.Audit(ctx)
	warnings = slices.DeleteFunc(warnings, r.reported)
	for _, w := range warnings {
		severity := SeverityFailure
		w, note := strings.CutPrefix(w, driver.AuditNote)
		if note {
			severity = SeverityNote
		}
		text, fix := splitWarning(w)
		r.add(severity, about, fix, "%s", text)
	}
	switch {
	case err != nil:
		r.fail(about, "\"tickslot migrate validate\" says whether the tables are there.",
			"they cannot be checked: %v", err)
	case len(warnings) == 0:
		r.pass(about, "clock, persistence, replicas and rights are as leases need them")
	}
}

// reported reports whether a check of tables has failed with the same text.
func (r *report) reported(warning string) bool {
	return slices.ContainsFunc(r.results, func(res Result) bool {
		return res.Severity != SeverityOK && res.Text == warning
	})
}

// splitWarning splits a warning into the fault and the repair, which the stores put last.
func splitWarning(warning string) (text, fix string) {
	for _, between := range []string{"; ", ": "} {
		if i := strings.LastIndex(warning, between); i > 0 {
			return warning[:i], warning[i+len(between):]
		}
	}
	return warning, "docs/redis.md and docs/sql.md say what leases need."
}

// pooler checks whether a pooler gives each transaction another connection. In that case two
// clients that are connected at the same time share a server connection.
func (r *report) pooler(ctx context.Context) {
	const about = "pooler"
	shared, err := sharedConnection(ctx, r.Store)
	switch {
	case err != nil:
		r.fail(about, "See that the user may open two connections.", "it cannot be found out whether there is one: "+
			"%v", err)
	case shared:
		r.warn(about, "Locks, registry and durable runs work through it. Give nativelock, and what waits for LISTEN, "+
			"a URL that leads to the server itself, or let the pooler keep sessions (pool_mode = session).",
			"a pooler gives each transaction another connection: session locks and LISTEN do not work")
	default:
		r.pass(about, "each client has a connection of its own, as far as can be seen")
	}
}

func sharedConnection(ctx context.Context, s *stores.Store) (bool, error) {
	one, err := s.Pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer one.Release()
	two, err := s.Pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer two.Release()
	by := map[uint32]*pgxpool.Conn{} // by server connection: the client it last served
	for range poolerTries {          // other users of the pooler may interfere
		for _, client := range []*pgxpool.Conn{one, two} {
			var backend uint32
			if err := client.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&backend); err != nil {
				return false, err
			}
			if had := by[backend]; had != nil && had != client {
				return true, nil
			}
			by[backend] = client
		}
	}
	return len(by) > 2, nil
}
