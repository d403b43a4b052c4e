package cluster

import (
	"strconv"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
)

// These limits bound the queue for the writer. The newest state of each lease is kept while the
// lease is held, and until its end is written. A held lease is never dropped, because its renewals
// could not restore it: they lack some of its fields. About maxEndedLeases ended leases are kept.
// If too many events or runs wait, the oldest are dropped.
const (
	maxEndedLeases   = 10_000
	maxPendingEvents = MaxEvents
	maxPendingRuns   = 5_000
)

// pending holds the leases, events and runs that the writer has not written yet. Its methods are
// called while locks are acquired and released. So they run no user code, make no calls, and hold
// the mutex only briefly.
type pending struct {
	wake chan struct{} // has a value if something should be written soon

	mu      sync.Mutex
	leases  map[rowKey]*pendingLease
	room    int            // number of leases at which shed is called
	listed  bool           // the argument of the last call of take
	events  []pendingEvent // oldest first
	runs    []pendingRun   // oldest first
	seq     uint64         // number of the newest event or run
	sent    int            // how many of the first runs are in an unanswered batch, which no run may join
	round   uint64         // current round of writing leases; each lease is taken once per round
	dropped struct{ leases, events, runs uint64 }
}

// A rowKey identifies the row of a lease.
type rowKey struct {
	name  string
	mutex bool
	slot  int
}

func keyOf(name string, slots, slot int) rowKey { return rowKey{name, slots == 0, slot} }

// A pendingLease is the newest state of a lease that this process holds or held last. It stays
// until the end of the lease is written, even while there is nothing new to write. Instants are by
// this host's clock.
type pendingLease struct {
	record     LeaseRecord // without its durations
	acquiredAt time.Time
	renewedAt  time.Time // or released
	expiresAt  time.Time
	listed     bool // the store of locks lists this lease, if it can list
	over       bool // released or lost; deleted once that is written
	changes    uint64
	written    uint64 // the value of changes at the last write; if it is lower, there is something to write
	round      uint64 // round in which it was last taken
}

type pendingEvent struct {
	Event
	at  time.Time
	seq uint64
}

type pendingRun struct {
	Run
	at  time.Time
	seq uint64
}

func newPending() *pending {
	return &pending{wake: make(chan struct{}, 1), leases: map[rowKey]*pendingLease{}, room: maxEndedLeases}
}

// wakeWriter makes the writer write soon.
func (p *pending) wakeWriter() {
	select {
	case p.wake <- struct{}{}:
	default: // already woken
	}
}

// addLease stores the newest state of a lease. It replaces an older grant, and ignores the state if
// a newer grant is stored. If soon is false, the state is written with the next heartbeat.
func (p *pending) addLease(l pendingLease, soon bool) {
	key := keyOf(l.record.Name, l.record.Slots, l.record.Slot)
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.leases[key]
	switch {
	case old == nil:
		if len(p.leases) >= p.room {
			p.shed()
		}
		p.leases[key] = &l
	case old.record.Grant == l.record.Grant && old.record.Holder == l.record.Holder:
		l.written, l.changes, l.round = old.written, old.changes, old.round
		l.acquiredAt = old.acquiredAt
		l.over = l.over || old.over
		l.record.Released = l.record.Released || old.record.Released
		*old = l
	case l.acquiredAt.Before(old.acquiredAt):
		return
	default:
		*old = l
	}
	p.leases[key].changes++
	if soon {
		p.wakeWriter()
	}
}

// shed drops ended leases if there are too many. It drops more than necessary, so that it need not
// scan all leases each time one is added.
func (p *pending) shed() {
	const spare = maxEndedLeases / 10
	now, ended := time.Now(), 0
	for key, l := range p.leases {
		switch {
		case l.held(now):
		case !l.toWrite(p.listed):
			delete(p.leases, key)
		case ended == maxEndedLeases-spare:
			delete(p.leases, key)
			p.dropped.leases++
		default:
			ended++
		}
	}
	p.room = len(p.leases) + spare
}

// held reports whether the lease is neither over nor expired. The holder of an expired lease may
// never release it.
func (p *pendingLease) held(now time.Time) bool { return !p.over && !now.After(p.expiresAt) }

// toWrite reports whether the lease has changes to write. listed says whether leases that the store
// of locks can list are written too.
func (p *pendingLease) toWrite(listed bool) bool {
	return p.changes != p.written && (listed || !p.listed)
}

// A leaseState is the change of a grant that update applies.
type leaseState uint8

const (
	leaseRenewed leaseState = iota
	leaseReleased
	leaseLost
)

// update changes the state of a grant at an instant and returns its holder, if known. changed is
// false if the grant was already over.
func (p *pending) update(
	key rowKey, grant string, to leaseState, at, expiresAt time.Time,
) (holder dlock.Holder, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.leases[key]
	if l == nil || l.record.Grant != grant {
		return dlock.Holder{}, true
	}
	if l.over {
		return l.record.Holder, false
	}
	l.changes++
	l.expiresAt = expiresAt
	if to != leaseLost {
		l.renewedAt = at
	}
	l.record.Released = to == leaseReleased
	l.over = to != leaseRenewed
	return l.record.Holder, true
}

// addEvent adds an event that happened at the given instant, unless the same event was added a
// moment ago.
func (p *pending) addEvent(e Event, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.events) - 1; i >= 0 && i >= len(p.events)-10; i-- { // a duplicate arrives soon after the original
		if p.events[i].ID == e.ID {
			return
		}
	}
	if len(p.events) >= maxPendingEvents {
		p.events = p.events[1:]
		p.dropped.events++
	}
	p.seq++
	p.events = append(p.events, pendingEvent{e, at, p.seq})
	p.wakeWriter()
}

// addRun adds a run that ended at the given instant.
func (p *pending) addRun(r Run, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.runs) >= maxPendingRuns {
		p.runs = p.runs[1:]
		p.sent = max(0, p.sent-1)
		p.dropped.runs++
	}
	if len(p.runs) >= MaxBatch {
		r.Stack = "" // so that runs that wait during an outage stay small
	}
	p.seq++
	p.runs = append(p.runs, pendingRun{r, at, p.seq})
	if len(p.runs) >= MaxBatch { // more would take several batches
		p.wakeWriter()
	}
}

// taken is the part of pending that one batch writes.
type taken struct {
	leases  []takenLease
	events  []pendingEvent
	runs    []pendingRun
	lastSeq struct{ events, runs uint64 }
	more    bool // more rows wait than fit into the batch
}

type takenLease struct {
	key rowKey
	pendingLease
}

// take returns what to write next, up to MaxBatch rows of each sort. The rows stay pending until
// done is called. listed says whether to write leases that the store of locks could list.
func (p *pending) take(listed bool) (t taken) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.wake: // everything that woke the writer is taken now
	default:
	}
	p.listed = listed
	now := time.Now()
	next := p.round + 1
	var again []rowKey // already taken in this round
	p.room = maxEndedLeases
	for key, l := range p.leases {
		held := l.held(now)
		if held {
			p.room++
		}
		switch {
		case !l.toWrite(listed) && !held:
			delete(p.leases, key)
		case !l.toWrite(listed):
		case l.round == next:
			again = append(again, key)
		case len(t.leases) == MaxBatch:
			t.more = true
		default:
			l.round = next
			t.leases = append(t.leases, takenLease{key, *l})
		}
	}
	if !t.more { // the round is over; leases that changed again begin the next one
		p.round = next
		room := min(len(again), MaxBatch-len(t.leases))
		for _, key := range again[:room] {
			l := p.leases[key]
			l.round = next + 1
			t.leases = append(t.leases, takenLease{key, *l})
		}
		t.more = room < len(again)
	}
	t.events = append(t.events, p.events[:min(MaxBatch, len(p.events))]...)
	if p.sent == 0 {
		p.sent = min(MaxBatch, len(p.runs))
	}
	t.runs = append(t.runs, p.runs[:p.sent]...)
	t.more = t.more || len(t.events) < len(p.events) || len(t.runs) < len(p.runs)
	if k := len(t.events); k > 0 {
		t.lastSeq.events = t.events[k-1].seq
	}
	if k := len(t.runs); k > 0 {
		t.lastSeq.runs = t.runs[k-1].seq
	}
	return t
}

// done removes the written rows from pending. Runs that were not counted stay.
func (p *pending) done(t taken, counted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range t.leases {
		l := p.leases[w.key]
		if l == nil || l.record.Grant != w.record.Grant || l.record.Holder != w.record.Holder {
			continue
		}
		l.written = w.changes
		if l.over && l.changes == l.written {
			delete(p.leases, w.key)
		}
	}
	for len(p.events) > 0 && p.events[0].seq <= t.lastSeq.events {
		p.events = p.events[1:]
	}
	if counted {
		for len(p.runs) > 0 && p.runs[0].seq <= t.lastSeq.runs {
			p.runs = p.runs[1:]
		}
		p.sent = 0
	}
	if len(p.events) == 0 {
		p.events = nil // frees the memory of the removed events
	}
	if len(p.runs) == 0 {
		p.runs = nil
	}
}

// writeAgain schedules all held leases to be written again.
func (p *pending) writeAgain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.leases {
		if !l.over {
			l.changes++
		}
	}
}

// waiting reports whether anything waits to be written.
func (p *pending) waiting(listed bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.events) > 0 || len(p.runs) > 0 {
		return true
	}
	for _, l := range p.leases {
		if l.toWrite(listed) {
			return true
		}
	}
	return false
}

// anyListed reports whether there are leases that the store of locks might list.
func (p *pending) anyListed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.leases {
		if l.listed {
			return true
		}
	}
	return false
}

// drops returns the numbers of dropped rows.
func (p *pending) drops() (leases, events, runs uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped.leases, p.dropped.events, p.dropped.runs
}

// recordAt returns the record of a lease, with its durations as of now.
func (p pendingLease) recordAt(now time.Time) LeaseRecord {
	s := p.record
	s.HeldFor = max(0, now.Sub(p.acquiredAt))
	s.RenewedAgo = max(0, now.Sub(p.renewedAt))
	s.ExpiresIn = p.expiresAt.Sub(now)
	return s
}

// pendingOf is the inverse of recordAt.
func pendingOf(s LeaseRecord, now time.Time) pendingLease {
	l := pendingLease{record: s, acquiredAt: now.Add(-max(0, s.HeldFor)), renewedAt: now.Add(-max(0, s.RenewedAgo)),
		expiresAt: now.Add(s.ExpiresIn), over: s.Released || s.ExpiresIn < 0}
	l.record.HeldFor, l.record.RenewedAgo, l.record.ExpiresIn = 0, 0, 0
	return l
}

// eventOf returns an event of a lease. The same event of the same grant always has the same ID, so
// a repeated request is recorded once.
func eventOf(kind EventKind, holder dlock.Holder, g driver.Grant, text string) Event {
	return Event{ID: idOf(string(kind), g.Name, strconv.Itoa(g.Slot), grantOf(g.Token)), Kind: kind,
		Name: g.Name, Slot: g.Slot, Fence: g.Fence, Holder: holder, Text: clean(text, maxTextLen)}
}
