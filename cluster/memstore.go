package cluster

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// NewMemoryStore returns a registry in the memory of this process, for tests and for programs of
// one process. Other processes do not see it. Its clock is time.Now, so that it works under
// testing/synctest. It is safe for concurrent use. It keeps at most MaxEvents events and
// RunsPerTimer runs of a timer. The number of hosts, leases and timers is not bounded: what is no
// longer written stays until a Sweep.
func NewMemoryStore() Store {
	return &memoryStore{
		hosts:    map[dlock.Holder]memHost{},
		leases:   map[leaseKey]memLease{},
		eventIDs: map[string]bool{},
		runs:     map[string][]memRun{},
		runIDs:   map[string]bool{},
	}
}

// A memoryStore implements Store for one process: see NewMemoryStore.
type memoryStore struct {
	mu       sync.Mutex
	hosts    map[dlock.Holder]memHost
	leases   map[leaseKey]memLease
	events   []memEvent // oldest first
	eventIDs map[string]bool
	runs     map[string][]memRun // by timer, oldest first
	runIDs   map[string]bool
}

type (
	memHost struct {
		Heartbeat
		seenAt, startedAt time.Time
	}
	memLease struct {
		LeaseRecord
		acquiredAt, renewedAt, expiresAt time.Time
	}
	memEvent struct {
		Event
		at time.Time
	}
	memRun struct {
		Run
		endedAt time.Time
	}
)

// A leaseKey is the key of a lease's row.
type leaseKey struct {
	name string
	slot int // noSlot: a mutex
}

// noSlot distinguishes the mutex of a name from slot 0 of a semaphore of that name.
const noSlot = -1

func (l *LeaseRecord) key() leaseKey {
	if l.Slots == 0 {
		return leaseKey{l.Name, noSlot}
	}
	return leaseKey{l.Name, l.Slot}
}

// Write implements Store.
func (m *memoryStore) Write(ctx context.Context, b Batch) (Written, error) {
	if err := ctx.Err(); err != nil {
		return Written{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	unknown := b.Host != nil && !m.writeHost(*b.Host, now)
	for _, l := range b.Leases {
		m.writeLease(l, now)
	}
	for _, e := range b.Events {
		m.writeEvent(e, now)
	}
	for _, r := range b.Runs {
		m.writeRun(r, now)
	}
	return Written{At: now, HostUnknown: unknown}, nil
}

func (m *memoryStore) writeHost(h Heartbeat, now time.Time) (known bool) {
	row, known := m.hosts[h.Holder]
	switch {
	case !known && h.Detail == nil:
		return false
	case known && h.UpFor < row.UpFor: // it has been overtaken
		return true
	case h.Detail == nil:
		h.Detail = row.Detail
	default:
		h.Detail = bytes.Clone(h.Detail)
	}
	m.hosts[h.Holder] = memHost{Heartbeat: h, seenAt: now, startedAt: now.Add(-h.UpFor)}
	return true
}

func (m *memoryStore) writeLease(l LeaseRecord, now time.Time) {
	record := memLease{LeaseRecord: l, acquiredAt: now.Add(-l.HeldFor), renewedAt: now.Add(-l.RenewedAgo),
		expiresAt: now.Add(l.ExpiresIn)}
	if row, ok := m.leases[l.key()]; ok && !record.replaces(row, now) {
		return
	}
	m.leases[l.key()] = record
}

// replaces reports whether a record replaces a row: see LeaseRecord.
func (m memLease) replaces(row memLease, now time.Time) bool {
	switch {
	case m.Holder == row.Holder && m.Grant == row.Grant:
		return !row.Released
	case m.Fence != 0 && row.Fence != 0:
		return m.Fence > row.Fence
	case m.live(now) && !row.live(now): // the row may be a late record of an earlier holder
		return true
	default:
		return m.acquiredAt.After(row.acquiredAt)
	}
}

func (m memLease) live(now time.Time) bool { return !m.Released && m.expiresAt.After(now) }

func (m *memoryStore) writeEvent(e Event, now time.Time) {
	if m.eventIDs[e.ID] {
		return
	}
	m.eventIDs[e.ID] = true
	m.events = insert(m.events, memEvent{e, now.Add(-e.Ago)}, memEvent.instant)
	for len(m.events) > MaxEvents {
		m.dropEvents(1)
	}
}

func (m *memoryStore) dropEvents(n int) {
	for _, e := range m.events[:n] {
		delete(m.eventIDs, e.ID)
	}
	m.events = slices.Delete(m.events, 0, n)
}

func (m *memoryStore) writeRun(r Run, now time.Time) {
	if m.runIDs[r.ID] {
		return
	}
	m.runIDs[r.ID] = true
	m.runs[r.Timer] = insert(m.runs[r.Timer], memRun{r, now.Add(-r.EndedAgo)}, memRun.instant)
	if len(m.runs[r.Timer]) > RunsPerTimer {
		m.dropRuns(r.Timer, 1)
	}
}

func (m *memoryStore) dropRuns(timer string, n int) {
	runs := m.runs[timer]
	for _, r := range runs[:n] {
		delete(m.runIDs, r.ID)
	}
	if n == len(runs) {
		delete(m.runs, timer)
		return
	}
	m.runs[timer] = slices.Delete(runs, 0, n)
}

func (m memEvent) instant() time.Time { return m.at }
func (m memRun) instant() time.Time   { return m.endedAt }

// insert inserts a row after those that are not newer.
func insert[T any](rows []T, row T, at func(T) time.Time) []T {
	i := len(rows)
	for i > 0 && at(rows[i-1]).After(at(row)) {
		i--
	}
	return slices.Insert(rows, i, row)
}

// Read implements Store.
func (m *memoryStore) Read(ctx context.Context, q Query) (Rows, error) {
	if err := ctx.Err(); err != nil {
		return Rows{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	var rows Rows
	for _, h := range m.hosts {
		h.UpFor, h.Detail = now.Sub(h.startedAt), bytes.Clone(h.Detail)
		rows.Hosts = append(rows.Hosts, HostRow{Heartbeat: h.Heartbeat, SeenAgo: now.Sub(h.seenAt)})
	}
	for _, l := range m.leases {
		l.HeldFor, l.RenewedAgo, l.ExpiresIn = now.Sub(l.acquiredAt), now.Sub(l.renewedAt), l.expiresAt.Sub(now)
		rows.Leases = append(rows.Leases, l.LeaseRecord)
	}
	for i := range min(max(q.Events, 0), len(m.events)) {
		e := m.events[len(m.events)-1-i]
		e.Ago = now.Sub(e.at)
		rows.Events = append(rows.Events, e.Event)
	}
	if q.Runs > 0 {
		var all []memRun
		for _, runs := range m.runs {
			all = append(all, runs...)
		}
		rows.Runs = newestRuns(all, q.Runs, now)
	}
	return rows, nil
}

// Runs implements Store.
func (m *memoryStore) Runs(ctx context.Context, timer string) ([]Run, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return newestRuns(slices.Clone(m.runs[timer]), RunsPerTimer, time.Now()), nil
}

func newestRuns(runs []memRun, limit int, now time.Time) []Run {
	slices.SortStableFunc(runs, func(a, b memRun) int { return a.endedAt.Compare(b.endedAt) })
	var newest []Run
	for i := range min(limit, len(runs)) {
		r := runs[len(runs)-1-i]
		r.EndedAgo = now.Sub(r.endedAt)
		newest = append(newest, r.Run)
	}
	return newest
}

// Sweep implements Store.
func (m *memoryStore) Sweep(ctx context.Context, r Retention, limit int) (deleted int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	deleted += deleteSome(m.hosts, limit, func(h memHost) bool {
		return now.Sub(h.seenAt) > max(r.Hosts, 3*h.TTL)
	})
	deleted += deleteSome(m.leases, limit, func(l memLease) bool {
		last := l.renewedAt
		if !l.Released && l.expiresAt.After(last) {
			last = l.expiresAt
		}
		return now.Sub(last) > r.Leases
	})
	n := old(m.events, limit, func(e memEvent) bool { return now.Sub(e.at) > r.Events })
	m.dropEvents(n)
	deleted += n
	left := limit
	for timer, runs := range m.runs {
		n := old(runs, left, func(run memRun) bool { return now.Sub(run.endedAt) > r.Runs })
		m.dropRuns(timer, n)
		deleted, left = deleted+n, left-n
	}
	return deleted, nil
}

// deleteSome deletes at most limit rows and returns how many.
func deleteSome[K comparable, V any](rows map[K]V, limit int, gone func(V) bool) (deleted int) {
	for key, row := range rows {
		if deleted < limit && gone(row) {
			delete(rows, key)
			deleted++
		}
	}
	return deleted
}

// old returns how many of the first rows are to be deleted, at most limit.
func old[T any](rows []T, limit int, gone func(T) bool) int {
	n := slices.IndexFunc(rows, func(row T) bool { return !gone(row) })
	if n < 0 {
		n = len(rows)
	}
	return min(n, max(limit, 0))
}
