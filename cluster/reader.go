package cluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/tickslot/tickslot/dlock"
)

// Limits for the events, runs and timer records of a snapshot.
const (
	snapshotEvents = 200
	snapshotRuns   = 200
	snapshotTimers = 10_000
)

// A reader reads the registry and the store of locks for all viewers. Callers that arrive during a
// call wait for it, and for SnapshotAge all callers share its result or its error.
type reader struct {
	config   Config
	kinds    *kinds
	faults   *faults
	listing  *listing
	observer *observer
	calls    singleflight.Group

	mu      sync.Mutex // held while reading
	rows    part[rows]
	leases  part[listed]
	details map[dlock.Holder]decoded
	all     []Lease // from both stores; nil if not yet merged
}

// A part is one half of a snapshot's data, with its last error.
type part[T any] struct {
	value   T
	at      time.Time // when it was read; zero if never
	triedAt time.Time
	err     error // of the last attempt
}

// rows are the rows of the registry in the form that Snapshot returns.
type rows struct {
	hosts    []Host
	recorded []Lease
	events   []HistoryEvent
	runs     []HistoryRun
	timers   []TimerHistory
}

// listed are the leases that the store of locks lists.
type listed struct {
	leases []Lease
	more   bool // further leases exist
}

// A decoded detail is kept while the text stays the same, because decoding is slow: the details of
// 200 hosts with 1,000 timers each are 13 MB.
type decoded struct {
	text   json.RawMessage
	detail HostDetail
}

// refresh reads the parts that are older than age. It returns when they are read or ctx ends.
func (r *reader) refresh(ctx context.Context, age time.Duration, withLeases bool) {
	if age == 0 {
		r.calls.Forget("rows") // the store may already have executed a call in progress
	}
	read := r.calls.DoChan("rows", func() (any, error) { load(r, &r.rows, age, r.readRows); return nil, nil })
	if withLeases {
		r.refreshLeases(ctx, age)
	}
	select {
	case <-read:
	case <-ctx.Done():
	}
}

func (r *reader) refreshLeases(ctx context.Context, age time.Duration) {
	if r.listing.unsupported() {
		return
	}
	read := r.calls.DoChan("leases", func() (any, error) { load(r, &r.leases, age, r.readLeases); return nil, nil })
	select {
	case <-read:
	case <-ctx.Done():
	}
}

// load reads a part again if it is older than age. A read does not end with the caller's context,
// because other callers may wait for it.
func load[T any](r *reader, p *part[T], age time.Duration, read func(now time.Time) (T, error)) {
	now := time.Now()
	r.mu.Lock()
	fresh := !p.triedAt.IsZero() && now.Sub(p.triedAt) < age
	r.mu.Unlock()
	if fresh {
		return
	}
	value, err := read(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	p.triedAt, p.err = time.Now(), err
	if err == nil && !now.Before(p.at) {
		p.value, p.at, r.all = value, now, nil
	}
}

// readRows reads the registry with one call.
func (r *reader) readRows(now time.Time) (rows, error) {
	got, err := call(context.Background(), r.faults, opRead, func(ctx context.Context) (Rows, error) {
		return r.config.Store.Read(ctx, Query{Events: snapshotEvents, Runs: snapshotRuns, Timers: snapshotTimers})
	})
	if err != nil {
		return rows{}, err
	}
	shown := r.show(got, now)
	r.observer.observe(shown.hosts)
	return shown, nil
}

// readLeases reads the leases with one call per page.
func (r *reader) readLeases(now time.Time) (listed, error) {
	infos, more, err := r.listing.all(context.Background(), r.faults)
	if err != nil {
		return listed{}, err
	}
	shown := listed{make([]Lease, 0, len(infos)), more}
	for _, l := range infos {
		shown.leases = append(shown.leases, r.leaseOf(l, now))
	}
	return shown, nil
}

// parts returns both halves of the last read.
func (r *reader) parts() (part[rows], part[listed]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rows, r.leases
}

// view returns the last read and the leases of both stores, which are merged once for all viewers.
func (r *reader) view() (part[rows], part[listed], []Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = merge(r.leases.value.leases, r.rows.value.recorded, r.rows.value.hosts)
	}
	return r.rows, r.leases, r.all
}

// show converts ages into instants of this host's clock. Only the differences between the instants
// are by the store's clock.
func (r *reader) show(got Rows, now time.Time) (s rows) {
	now = now.UTC().Round(0)
	known := make(map[dlock.Holder]decoded, len(got.Hosts))
	for i := range got.Hosts {
		h := &got.Hosts[i]
		d := r.decode(h)
		known[h.Holder] = d
		shown := hostOf(h, d.detail, now)
		shown.Own = shown.Holder == r.config.Holder
		s.hosts = append(s.hosts, shown)
	}
	r.mu.Lock()
	r.details = known
	r.mu.Unlock()
	slices.SortFunc(s.hosts, func(a, b Host) int {
		x, y := a.Holder, b.Holder
		return cmp.Or(strings.Compare(x.Host, y.Host), cmp.Compare(x.PID, y.PID), strings.Compare(x.ID, y.ID))
	})
	for _, l := range got.Leases {
		s.recorded = append(s.recorded, r.recordedOf(l, now))
	}
	for _, e := range got.Events {
		s.events = append(s.events, HistoryEvent{Event: e, At: now.Add(-e.Ago)})
	}
	s.runs = runsOf(got.Runs, now)
	for _, t := range got.Timers {
		s.timers = append(s.timers, timerHistoryOf(t, now))
	}
	slices.SortFunc(s.timers, func(a, b TimerHistory) int { return strings.Compare(a.Timer, b.Timer) })
	return s
}

// decode returns the detail of a host. A detail that cannot be decoded, perhaps from another
// version of this library, counts as empty.
func (r *reader) decode(h *HostRow) decoded {
	r.mu.Lock()
	d, ok := r.details[h.Holder]
	r.mu.Unlock()
	if ok && bytes.Equal(d.text, h.Detail) {
		return d
	}
	d = decoded{text: h.Detail}
	if json.Unmarshal(h.Detail, &d.detail) != nil {
		d.detail = HostDetail{}
	}
	return d
}
