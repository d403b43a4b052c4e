// Package doctor looks for what endangers a fleet: in its store, and in what its hosts say of
// themselves.
//
// Every finding says how to mend it. It is not promised that a fleet without findings is well. The
// doctor looks once, from where it runs: round trips and the clock are those of this machine, and
// what the user of the URL may not see is not seen.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/stores"
	"github.com/tickslot/tickslot/dlock"
)

// slowTrip is the round trip from which on there is little room in the store's time-out: a
// heartbeat gets dlock.DefaultStoreTimeout, of which this is a fifth.
const slowTrip = dlock.DefaultStoreTimeout / 5

// poolerTries is how often two clients ask for the connection that serves them.
const poolerTries = 5

// A Patient is what is examined.
type Patient struct {
	Store    *stores.Store
	Snapshot func(ctx context.Context) (*cluster.Snapshot, error)
	Calls    int // round trips that are measured
}

// A Finding is what was found.
type Finding struct {
	About string `json:"about"`
	Well  bool   `json:"ok"`
	Text  string `json:"text"`
	Mend  string `json:"mend,omitempty"` // how; "" if it is well
}

// An exam collects findings.
type exam struct {
	Patient
	snapshot *cluster.Snapshot // never nil
	unread   error             // why it was not read
	findings []Finding

	noRegistry bool // it has no tables
}

func (e *exam) well(about, format string, args ...any) {
	e.findings = append(e.findings, Finding{About: about, Well: true, Text: fmt.Sprintf(format, args...)})
}

func (e *exam) ill(about, mend, format string, args ...any) {
	e.findings = append(e.findings, Finding{About: about, Text: fmt.Sprintf(format, args...), Mend: mend})
}

// Examine looks at a store and its fleet. It changes nothing.
func Examine(ctx context.Context, p Patient) []Finding {
	e := &exam{Patient: p, snapshot: &cluster.Snapshot{}}
	if e.roundTrips(ctx) {
		if s, err := p.Snapshot(ctx); err == nil {
			e.snapshot = s
		} else {
			e.unread = err
		}
		e.tables(ctx)
		e.audit(ctx)
		if p.Store.Pool != nil {
			e.pooler(ctx)
		}
		e.fleet()
	}
	for i := range e.findings { // drivers have errors of several lines
		e.findings[i].Text = strings.Join(strings.Fields(e.findings[i].Text), " ")
	}
	return e.findings
}

// roundTrips measures calls, and reports whether the store answers.
func (e *exam) roundTrips(ctx context.Context) bool {
	const about = "round trips"
	took := make([]time.Duration, 0, e.Calls)
	if err := e.Store.Ping(ctx); err != nil { // the first call also connects
		e.ill("connection", "See that it runs, that this machine reaches it, and that user, password and database "+
			"are right.",
			"the store does not answer: %v", err)
		return false
	}
	for range e.Calls {
		began := time.Now()
		if err := e.Store.Ping(ctx); err != nil {
			e.ill(about, "Look at the network, and at what the server does beside.", "after %d calls the store did "+
				"not "+
				"answer: %v", len(took), err)
			return false
		}
		took = append(took, time.Since(began))
	}
	p50, p99 := quantile(took, 0.5), quantile(took, 0.99)
	if p99 > slowTrip {
		e.ill(about, "Bring hosts and store nearer to each other, or look at what the server does beside; else raise "+
			"StoreTimeout and TTL.", "p50 %v, p99 %v of %d: leases are renewed too late when it gets worse", p50, p99,
			len(took))
		return true
	}
	e.well(about, "p50 %v, p99 %v of %d", p50, p99, len(took))
	return true
}

// quantile is the nearest rank.
func quantile(took []time.Duration, q float64) time.Duration {
	slices.Sort(took)
	rank := int(q*float64(len(took))+0.999999) - 1
	return took[max(0, min(rank, len(took)-1))].Round(time.Microsecond)
}

// audit asks the store of locks for settings that endanger leases: clocks, eviction, persistence,
// replicas; of databases also tables and rights.
func (e *exam) audit(ctx context.Context) {
	const about = "settings for leases"
	warnings, err := dlock.CapabilitiesOf(e.Store.Locks).Auditor.Audit(ctx)
	warnings = slices.DeleteFunc(warnings, e.hasSaid)
	for _, w := range warnings {
		text, mend := cure(w)
		e.ill(about, mend, "%s", text)
	}
	switch {
	case err != nil:
		e.ill(about, "\"tickslot migrate validate\" says whether the tables are there.",
			"they cannot be checked: %v", err)
	case len(warnings) == 0:
		e.well(about, "clock, persistence, replicas and rights are as leases need them")
	}
}

// hasSaid reports whether a warning is about tables, which are a finding already.
func (e *exam) hasSaid(warning string) bool {
	return slices.ContainsFunc(e.findings, func(f Finding) bool { return !f.Well && f.Text == warning })
}

// cure divides a warning into what is wrong and how to mend it, which the stores say last.
func cure(warning string) (text, mend string) {
	for _, between := range []string{"; ", ": "} {
		if i := strings.LastIndex(warning, between); i > 0 {
			return warning[:i], warning[i+len(between):]
		}
	}
	return warning, "docs/redis.md and docs/sql.md say what leases need."
}

// pooler finds out whether a pooler gives each transaction another connection: two clients that are
// connected at the same time are then served by one connection of the server.
func (e *exam) pooler(ctx context.Context) {
	const about = "pooler"
	shared, err := sharedConnection(ctx, e.Store)
	switch {
	case err != nil:
		e.ill(about, "See that the user may open two connections.", "it cannot be found out whether there is one: "+
			"%v", err)
	case shared:
		e.ill(about, "Locks, registry and durable runs work through it. Give nativelock, and what waits for LISTEN, a "+
			"URL that leads to the server itself, or let the pooler keep sessions (pool_mode = session).",
			"a pooler gives each transaction another connection: session locks and LISTEN do not work")
	default:
		e.well(about, "each client has a connection of its own, as far as can be seen")
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
	by := map[uint32]*pgxpool.Conn{} // who had the connection of the server
	for range poolerTries {          // others that use the pooler may come in between
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
