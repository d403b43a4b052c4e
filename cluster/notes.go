package cluster

import (
	"strconv"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// How much waits at most to be written. Of leases the newest state of each waits, so that it takes
// that many of them at once to drop one; of events and runs the oldest are dropped.
const (
	maxNotedLeases = 10_000
	maxNotedEvents = MaxEvents
	maxNotedRuns   = 5_000
)

// notes are what this process has to tell, until the writer has written it. Whoever holds a lock
// adds to them; so they run no user code, call nobody, and hold their mutex for moments only.
type notes struct {
	wake chan struct{} // has a value if something should be written soon

	mu      sync.Mutex
	leases  map[rowKey]*leaseNote
	events  []eventNote // oldest first
	runs    []runNote   // likewise
	seq     uint64      // of the newest event or run
	round   uint64      // of writing leases: each is taken once per round
	dropped struct{ leases, events, runs uint64 }
}

// A rowKey is the row of a lease.
type rowKey struct {
	name  string
	mutex bool
	slot  int
}

func keyOf(name string, slots, slot int) rowKey { return rowKey{name, slots == 0, slot} }

// A leaseNote is what is known of a lease that this process holds, or held last. Instants are of
// this host's clock.
type leaseNote struct {
	stamp      LeaseStamp // without its durations
	acquiredAt time.Time
	renewedAt  time.Time // or released
	expiresAt  time.Time
	listed     bool // if the store of locks lists its leases, this one is among them
	over       bool // released, or lost: of no use once it is written
	changes    uint64
	written    uint64 // so many of the changes
	round      uint64 // in which it was taken last
}

type eventNote struct {
	Event
	at  time.Time
	seq uint64
}

type runNote struct {
	Run
	at  time.Time
	seq uint64
}

func newNotes() *notes {
	return &notes{wake: make(chan struct{}, 1), leases: map[rowKey]*leaseNote{}}
}

// soon has the writer write soon.
func (n *notes) soon() {
	select {
	case n.wake <- struct{}{}:
	default: // it was told already
	}
}

// lease notes the newest state of a lease. A state of another grant than the one that is noted
// replaces that, unless it tells that the grant is over, or is older.
func (n *notes) lease(l leaseNote, soon bool) {
	key := keyOf(l.stamp.Name, l.stamp.Slots, l.stamp.Slot)
	n.mu.Lock()
	defer n.mu.Unlock()
	old := n.leases[key]
	switch {
	case old == nil && len(n.leases) >= maxNotedLeases:
		if !l.listed {
			n.dropped.leases++
		}
		return
	case old == nil:
		n.leases[key] = &l
	case old.stamp.Grant == l.stamp.Grant && old.stamp.Holder == l.stamp.Holder:
		l.written, l.changes, l.round = old.written, old.changes, old.round
		l.acquiredAt = old.acquiredAt
		l.over = l.over || old.over
		l.stamp.Released = l.stamp.Released || old.stamp.Released
		*old = l
	case l.acquiredAt.Before(old.acquiredAt):
		return
	default:
		*old = l
	}
	n.leases[key].changes++
	if soon {
		n.soon()
	}
}

// A leaseState is what has become of a grant.
type leaseState uint8

const (
	leaseRenewed leaseState = iota
	leaseReleased
	leaseLost
)

// update notes what has become of a grant at an instant, and returns who has it. news is false if
// it was known to be over.
func (n *notes) update(
	key rowKey, grant string, to leaseState, at, expiresAt time.Time,
) (holder dlock.Holder, news bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.leases[key]
	if l == nil || l.stamp.Grant != grant {
		return dlock.Holder{}, true
	}
	if l.over {
		return l.stamp.Holder, false
	}
	l.changes++
	l.expiresAt = expiresAt
	if to != leaseLost {
		l.renewedAt = at
	}
	l.stamp.Released = to == leaseReleased
	l.over = to != leaseRenewed
	return l.stamp.Holder, true
}

// event notes an event that happened at an instant. One that is noted already is not noted twice.
func (n *notes) event(e Event, at time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := len(n.events) - 1; i >= 0 && i >= len(n.events)-10; i-- { // a request that is repeated comes soon
		if n.events[i].ID == e.ID {
			return
		}
	}
	if len(n.events) >= maxNotedEvents {
		n.events = n.events[1:]
		n.dropped.events++
	}
	n.seq++
	n.events = append(n.events, eventNote{e, at, n.seq})
	n.soon()
}

// run notes a run that ended at an instant.
func (n *notes) run(r Run, at time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.runs) >= maxNotedRuns {
		n.runs = n.runs[1:]
		n.dropped.runs++
	}
	n.seq++
	n.runs = append(n.runs, runNote{r, at, n.seq})
	if len(n.runs) >= MaxBatch { // more would take several batches
		n.soon()
	}
}

// A taken part of the notes, to be written.
type taken struct {
	leases  []takenLease
	events  []eventNote
	runs    []runNote
	lastSeq struct{ events, runs uint64 }
	more    bool // there is more than a batch
}

type takenLease struct {
	key rowKey
	leaseNote
}

// take returns what to write next, up to MaxBatch of each sort. It stays until it is written.
// listed says whether to write leases that the store of locks would list.
func (n *notes) take(listed bool) (t taken) {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.wake: // what it was about is taken now
	default:
	}
	now := time.Now()
	next := n.round + 1
	var again []rowKey // were taken in this round already
	for key, l := range n.leases {
		switch {
		case (l.changes == l.written || l.listed && !listed) && (l.over || now.After(l.expiresAt)):
			delete(n.leases, key) // its holder may never have released it
		case l.changes == l.written || l.listed && !listed:
		case l.round == next:
			again = append(again, key)
		case len(t.leases) == MaxBatch:
			t.more = true
		default:
			l.round = next
			t.leases = append(t.leases, takenLease{key, *l})
		}
	}
	if !t.more { // the round is over, and what changed again begins the next one
		n.round = next
		room := min(len(again), MaxBatch-len(t.leases))
		for _, key := range again[:room] {
			l := n.leases[key]
			l.round = next + 1
			t.leases = append(t.leases, takenLease{key, *l})
		}
		t.more = room < len(again)
	}
	t.events = append(t.events, n.events[:min(MaxBatch, len(n.events))]...)
	t.runs = append(t.runs, n.runs[:min(MaxBatch, len(n.runs))]...)
	t.more = t.more || len(t.events) < len(n.events) || len(t.runs) < len(n.runs)
	if k := len(t.events); k > 0 {
		t.lastSeq.events = t.events[k-1].seq
	}
	if k := len(t.runs); k > 0 {
		t.lastSeq.runs = t.runs[k-1].seq
	}
	return t
}

// done notes that what was taken is written.
func (n *notes) done(t taken) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range t.leases {
		l := n.leases[w.key]
		if l == nil || l.stamp.Grant != w.stamp.Grant || l.stamp.Holder != w.stamp.Holder {
			continue
		}
		l.written = w.changes
		if l.over && l.changes == l.written {
			delete(n.leases, w.key)
		}
	}
	for len(n.events) > 0 && n.events[0].seq <= t.lastSeq.events {
		n.events = n.events[1:]
	}
	for len(n.runs) > 0 && n.runs[0].seq <= t.lastSeq.runs {
		n.runs = n.runs[1:]
	}
	if len(n.events) == 0 {
		n.events = nil // what was sliced off is garbage
	}
	if len(n.runs) == 0 {
		n.runs = nil
	}
}

// writeAgain has all leases written that are held.
func (n *notes) writeAgain() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.leases {
		if !l.over {
			l.changes++
		}
	}
}

// waiting reports whether anything waits to be written.
func (n *notes) waiting(listed bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.events) > 0 || len(n.runs) > 0 {
		return true
	}
	for _, l := range n.leases {
		if l.changes != l.written && (listed || !l.listed) {
			return true
		}
	}
	return false
}

// anyListed reports whether there are leases that the store of locks may list.
func (n *notes) anyListed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.leases {
		if l.listed {
			return true
		}
	}
	return false
}

// drops returns how much was dropped.
func (n *notes) drops() (leases, events, runs uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dropped.leases, n.dropped.events, n.dropped.runs
}

// stampOf returns what is written of a lease at an instant.
func (l leaseNote) stampOf(now time.Time) LeaseStamp {
	s := l.stamp
	s.HeldFor = max(0, now.Sub(l.acquiredAt))
	s.RenewedAgo = max(0, now.Sub(l.renewedAt))
	s.ExpiresIn = l.expiresAt.Sub(now)
	return s
}

// noteOf is the opposite of stampOf.
func noteOf(s LeaseStamp, now time.Time) leaseNote {
	l := leaseNote{stamp: s, acquiredAt: now.Add(-max(0, s.HeldFor)), renewedAt: now.Add(-max(0, s.RenewedAgo)),
		expiresAt: now.Add(s.ExpiresIn), over: s.Released || s.ExpiresIn < 0}
	l.stamp.HeldFor, l.stamp.RenewedAgo, l.stamp.ExpiresIn = 0, 0, 0
	return l
}

// eventOf returns an event of a lease. The same event of the same grant has the same ID, so that a
// request that is repeated tells nothing twice.
func eventOf(kind EventKind, holder dlock.Holder, g dlock.Grant, text string) Event {
	return Event{ID: idOf(string(kind), g.Name, strconv.Itoa(g.Slot), grantOf(g.Token)), Kind: kind,
		Name: g.Name, Slot: g.Slot, Fence: g.Fence, Holder: holder, Text: clean(text, maxTextLen)}
}
