package cluster

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// NewMemoryStore returns a registry in the memory of this process, for tests and single-process
// programs. Its clock is time.Now, so it works under testing/synctest. It is safe for concurrent
// use. It keeps at most MaxEvents events and RunsPerTimer runs per timer. The number of hosts,
// leases, timers and buckets is not bounded: rows that are no longer written remain until a Sweep.
func NewMemoryStore() Store {
	return &memoryStore{
		hosts:    map[dlock.Holder]memHost{},
		leases:   map[leaseKey]memLease{},
		eventIDs: map[string]bool{},
		runs:     map[string][]memRun{},
		runIDs:   map[string]bool{},
		timers:   map[string]memTimer{},
		buckets:  map[bucketKey]Bucket{},
	}
}

// A memoryStore implements Store in memory: see NewMemoryStore.
type memoryStore struct {
	mu       sync.Mutex
	hosts    map[dlock.Holder]memHost
	leases   map[leaseKey]memLease
	events   []memEvent // oldest first
	eventIDs map[string]bool
	runs     map[string][]memRun // by timer, oldest first
	runIDs   map[string]bool
	timers   map[string]memTimer
	buckets  map[bucketKey]Bucket
}

type (
	memHost struct {
		Heartbeat
		seenAt, startedAt time.Time
		counted           int64 // the Number of the last counted batch
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
	memTimer struct {
		TimerRecord
		at time.Time // the instant to which its ages refer
	}
	bucketKey struct {
		timer string
		width time.Duration
		start int64 // µs since 1970
		bin   int
	}
)

// A leaseKey is the key of a lease row.
type leaseKey struct {
	name string
	slot int // noSlot for a mutex
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
	var known, later bool
	if b.Host != nil {
		known, later = m.writeHost(*b.Host, now)
	}
	for _, l := range b.Leases {
		m.writeLease(l, now)
	}
	for _, e := range b.Events {
		m.writeEvent(e, now)
	}
	for _, r := range b.Runs {
		m.writeRun(r, now)
	}
	if later && b.Number > m.hosts[b.Host.Holder].counted {
		m.count(b, now)
	}
	return Written{At: now, HostUnknown: b.Host != nil && !known && b.Host.Detail == nil}, nil
}

// writeHost reports whether the host had a row, and whether that row is from a later heartbeat.
func (m *memoryStore) writeHost(h Heartbeat, now time.Time) (known, later bool) {
	row, known := m.hosts[h.Holder]
	switch {
	case !known && h.Detail == nil:
		return false, false
	case known && h.UpFor < row.UpFor: // a later heartbeat has overtaken it
		return true, false
	case h.Detail == nil:
		h.Detail = row.Detail
	default:
		h.Detail = bytes.Clone(h.Detail)
	}
	m.hosts[h.Holder] = memHost{Heartbeat: h, seenAt: now, startedAt: now.Add(-h.UpFor), counted: row.counted}
	return known, known
}

// count adds the Timers and Buckets of a batch.
func (m *memoryStore) count(b Batch, now time.Time) {
	h := m.hosts[b.Host.Holder]
	h.counted = b.Number
	m.hosts[b.Host.Holder] = h
	for _, t := range b.Timers {
		if old, ok := m.timers[t.Last.Timer]; ok {
			t = Merge(old.after(now.Sub(old.at)), t)
		}
		m.timers[t.Last.Timer] = memTimer{t, now}
	}
	for _, added := range b.Buckets {
		width := added.Interval.Microseconds()
		start := now.Add(-added.Ago).UnixMicro() / width * width
		key := bucketKey{added.Timer, added.Interval, start, added.Bin}
		old := m.buckets[key]
		m.buckets[key] = Bucket{Runs: old.Runs + added.Runs, Failed: old.Failed + added.Failed,
			Took: old.Took + added.Took, LongestTook: max(old.LongestTook, added.LongestTook)}
	}
}

// after returns the record with every age increased by the given time.
func (t TimerRecord) after(by time.Duration) TimerRecord {
	t.Last.EndedAgo += by
	if t.SucceededAgo != nil {
		ago := *t.SucceededAgo + by
		t.SucceededAgo = &ago
	}
	if t.Failures > 0 {
		t.FailingFor += by
		t.FailedAgo += by
	}
	return t
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

// insert inserts a row in order of time, after rows of the same time.
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
	for _, t := range m.timers {
		rows.Timers = append(rows.Timers, t.after(now.Sub(t.at)))
	}
	slices.SortFunc(rows.Timers, func(a, b TimerRecord) int {
		return cmp.Or(cmp.Compare(min(1, b.Failures), min(1, a.Failures)),
			cmp.Compare(a.Last.EndedAgo, b.Last.EndedAgo))
	})
	rows.Timers = rows.Timers[:min(max(q.Timers, 0), len(rows.Timers))]
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

// Buckets implements Store.
func (m *memoryStore) Buckets(ctx context.Context, timer string) (list []Bucket, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for key, b := range m.buckets {
		if key.timer == timer {
			b.Timer, b.Interval, b.Bin, b.Ago = timer, key.width, key.bin, now.Sub(time.UnixMicro(key.start))
			list = append(list, b)
		}
	}
	return list, nil
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
	deleted += deleteSome(m.hosts, limit, func(_ dlock.Holder, h memHost) bool {
		return now.Sub(h.seenAt) > max(r.Hosts, 3*h.TTL)
	})
	deleted += deleteSome(m.leases, limit, func(_ leaseKey, l memLease) bool {
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
	deleted += deleteSome(m.timers, limit, func(_ string, t memTimer) bool {
		return now.Sub(t.at)+t.Last.EndedAgo > r.Runs
	})
	deleted += deleteSome(m.buckets, limit, func(key bucketKey, _ Bucket) bool {
		keep := CoarseRetention
		if key.width == FineBucket {
			keep = FineRetention
		}
		return now.Sub(time.UnixMicro(key.start).Add(key.width)) > keep
	})
	return deleted, nil
}

// deleteSome deletes at most limit rows and returns how many.
func deleteSome[K comparable, V any](rows map[K]V, limit int, gone func(K, V) bool) (deleted int) {
	for key, row := range rows {
		if deleted < limit && gone(key, row) {
			delete(rows, key)
			deleted++
		}
	}
	return deleted
}

// old returns how many rows at the beginning are to be deleted, at most limit.
func old[T any](rows []T, limit int, gone func(T) bool) int {
	n := slices.IndexFunc(rows, func(row T) bool { return !gone(row) })
	if n < 0 {
		n = len(rows)
	}
	return min(n, max(limit, 0))
}
