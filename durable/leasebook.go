package durable

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
)

// An attempt is a run that this worker has claimed. Its upper fields do not change.
type attempt struct {
	run       *Run
	row       store.Run
	handler   *handler
	startedAt time.Time
	ctx       context.Context
	cancel    context.CancelCauseFunc
	stop      context.CancelFunc

	// Guarded by the book's mutex.
	trustedFrom instant   // before the latest request was sent that extended the lease
	lost        bool      // the lease is not trusted any more, and not renewed
	returned    bool      // the handler has returned, or was not called
	overAt      time.Time // when a renewal first found that the context had ended; zero: it has not
	ignores     bool      // the handler ignores that, and the lease is not renewed any more
}

func (a *attempt) key() store.RunKey { return a.row.RunKey }

// A leaseBook holds the attempts of this worker, each from its claim until its result is in the
// database. Until then it takes one of the MaxRuns places, even if its lease is lost and its
// handler goes on. The book decides how long a lease is trusted.
type leaseBook struct {
	places int
	ttl    time.Duration
	// They are called, without the mutex held:
	ended    func(*attempt) // when a lease is lost while the handler is running
	freed    func()         // when a place is free again, or claims are allowed again
	renewNow func()         // when renewalInDoubt is set: only a renewal can reset it

	mu       sync.Mutex // of all parts
	attempts map[store.RunKey]*attempt
	latest   map[int64]*attempt // of each run: the one that was claimed last
	// renewedAt is just before the latest successful renewal was sent. renewalInDoubt is set
	// when an attempt ends, or loses its lease, after its renewal was overdue, and is reset by the
	// next renewal that succeeds. Without it, a worker whose claims succeed but whose renewals fail
	// would claim more runs as soon as it has lost all its leases.
	renewedAt      instant
	renewalInDoubt bool
	expiry         *time.Timer   // runs expire; nil: there never was a lease
	expiryAt       time.Time     // when it fires; zero: it is stopped
	empty          chan struct{} // closed when there is no attempt; nil: nobody waits for it
}

func newLeaseBook(places int, ttl time.Duration) *leaseBook {
	return &leaseBook{places: places, ttl: ttl, attempts: map[store.RunKey]*attempt{},
		latest: map[int64]*attempt{}}
}

// trust is how long a lease is trusted, from before its request was sent. The rest is for clocks
// that run at slightly different speeds, and for the time it takes to tell the handler.
func (b *leaseBook) trust() time.Duration { return b.ttl - min(b.ttl/10, time.Second) }

// room returns how many places are free.
func (b *leaseBook) room() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, b.places-len(b.attempts))
}

// add adds an attempt. The database has given away its run, so an earlier attempt of a run with
// that ID is lost: its lease has ended, or the database is an older copy and the run is another
// one.
func (b *leaseBook) add(a *attempt) {
	var lost []*attempt
	b.mu.Lock()
	if before := b.latest[a.row.ID]; before != nil && !before.lost {
		lost = b.lose(before, lost)
	}
	b.attempts[a.key()], b.latest[a.row.ID] = a, a
	b.watch(a, now())
	b.mu.Unlock()
	b.tellLost(lost)
}

// watch has expire run when the trust in the lease of an attempt ends, or before that to see
// whether the machine was asleep. Called with mu held, at an instant.
func (b *leaseBook) watch(a *attempt, t instant) {
	wait := max(0, min(b.trust()-t.since(a.trustedFrom), sleepCheck))
	at := t.awake.Add(wait)
	if !b.expiryAt.IsZero() && !at.Before(b.expiryAt) {
		return
	}
	b.expiryAt = at
	if b.expiry == nil {
		b.expiry = time.AfterFunc(wait, b.expire)
	} else {
		b.expiry.Reset(wait)
	}
}

// expire ends the leases that are no longer trusted. It has a timer of its own, so that no call to
// the database can delay it. A renewal does not move the timer: when it fires, it is set again.
func (b *leaseBook) expire() {
	var lost []*attempt
	b.mu.Lock()
	t, before := now(), b.renewalInDoubt
	b.expiryAt = time.Time{}
	for _, a := range b.attempts {
		switch {
		case a.lost:
		case t.since(a.trustedFrom) >= b.trust():
			b.renewalInDoubt = b.renewalInDoubt || b.overdue(a, t)
			lost = b.lose(a, lost)
		default:
			b.watch(a, t)
		}
	}
	newDoubt := b.renewalInDoubt && !before
	b.mu.Unlock()
	b.tellLost(lost)
	if newDoubt {
		b.renewNow()
	}
}

// lose records that a lease is lost. Called with mu held.
func (b *leaseBook) lose(a *attempt, lost []*attempt) []*attempt {
	a.lost = true
	if a.returned {
		return lost // whether its result counts, the database decides
	}
	return append(lost, a)
}

func (b *leaseBook) tellLost(lost []*attempt) {
	for _, a := range lost { // first of all
		a.cancel(ErrLeaseLost)
	}
	for _, a := range lost {
		b.ended(a)
	}
}

// valid reports whether the lease of an attempt is trusted at this instant.
func (b *leaseBook) valid(a *attempt) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !a.lost && !a.returned && now().since(a.trustedFrom) < b.trust()
}

// late reports whether so much of a lease is over that its run must not start: it could hardly be
// renewed before it ends.
func (b *leaseBook) late(from instant) bool { return now().since(from) > b.ttl/2 }

// renewedLately reports whether renewals work, as far as this worker knows: no lease is overdue,
// and none was overdue when it ended, unless a renewal has succeeded since.
func (b *leaseBook) renewedLately() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.renewalInDoubt {
		return false
	}
	t := now()
	for _, a := range b.attempts {
		if b.overdue(a, t) {
			return false
		}
	}
	return true
}

// overdue reports whether a lease should have been renewed, but no renewal of any lease has
// succeeded for two thirds of its length. If only the row of this lease is locked, it is not
// overdue, because the other leases are renewed. Called with mu held.
func (b *leaseBook) overdue(a *attempt, t instant) bool {
	last := a.trustedFrom
	if b.renewedAt.after(last) {
		last = b.renewedAt
	}
	return !a.lost && !a.ignores && t.since(last) > b.ttl*2/3
}

// noRun is the key of no run. It is renewed when there is no lease, to find out whether renewals
// work.
var noRun = store.RunKey{}

// toRenew returns the attempts whose leases are to be renewed: all whose leases are still trusted,
// except those whose handlers ignore that their context has ended.
func (b *leaseBook) toRenew() (keys []store.RunKey, ignoring []*attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, a := range b.attempts {
		switch {
		case a.lost:
			continue
		case a.returned || a.ctx.Err() == nil:
		case a.overAt.IsZero():
			a.overAt = time.Now()
		case time.Since(a.overAt) > CancelGrace:
			a.ignores = true
			ignoring = append(ignoring, a)
			continue
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 && b.renewalInDoubt {
		keys = append(keys, noRun)
	}
	return keys, ignoring
}

// renewed takes the answer to a renewal of leases that was sent at an instant: those that are
// missing are lost.
func (b *leaseBook) renewed(sent instant, asked []store.RunKey, answer []store.Renewed) {
	kept := make(map[store.RunKey]bool, len(answer))
	for _, n := range answer {
		kept[n.RunKey] = true
	}
	var lost []*attempt
	b.mu.Lock()
	wasInDoubt := b.renewalInDoubt
	b.renewalInDoubt = false
	if sent.after(b.renewedAt) {
		b.renewedAt = sent
	}
	for _, key := range asked {
		a := b.attempts[key]
		switch {
		case a == nil || a.lost: // its result was written meanwhile, or the trust has ended
		case kept[key]:
			if sent.after(a.trustedFrom) {
				a.trustedFrom = sent
			}
		default:
			lost = b.lose(a, lost)
		}
	}
	b.mu.Unlock()
	b.tellLost(lost)
	if wasInDoubt {
		b.freed()
	}
}

// find returns an attempt; nil: it has ended.
func (b *leaseBook) find(key store.RunKey) *attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.attempts[key]
}

// markReturned records that the handler of an attempt has returned, or will not be called.
func (b *leaseBook) markReturned(a *attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a.returned = true
}

// remove gives back the places of attempts whose results are in the database.
func (b *leaseBook) remove(attempts []*attempt) {
	b.mu.Lock()
	t, before := now(), b.renewalInDoubt
	for _, a := range attempts {
		b.renewalInDoubt = b.renewalInDoubt || b.overdue(a, t)
		delete(b.attempts, a.key())
		if b.latest[a.row.ID] == a {
			delete(b.latest, a.row.ID)
		}
	}
	newDoubt := b.renewalInDoubt && !before
	if len(b.attempts) == 0 {
		b.stopExpiry()
		if b.empty != nil {
			close(b.empty)
			b.empty = nil
		}
	}
	b.mu.Unlock()
	b.freed()
	if newDoubt {
		b.renewNow()
	}
}

// stopExpiry is called with mu held.
func (b *leaseBook) stopExpiry() {
	if b.expiry != nil {
		b.expiry.Stop()
		b.expiryAt = time.Time{}
	}
}

// whenEmpty returns a channel that is closed when there is no attempt.
func (b *leaseBook) whenEmpty() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.empty == nil {
		b.empty = make(chan struct{})
	}
	empty := b.empty
	if len(b.attempts) == 0 {
		close(b.empty)
		b.empty = nil
	}
	return empty
}

// giveUp returns the handlers that have not returned, once per run, and how many results were not
// written. Their leases are left to expire.
func (b *leaseBook) giveUp() (stuck []string, unwritten int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopExpiry()
	for _, a := range b.attempts {
		if a.returned {
			unwritten++
		} else {
			stuck = append(stuck, a.run.Handler)
		}
	}
	slices.Sort(stuck)
	return stuck, unwritten
}

// list returns the attempts that go on, by their start.
func (b *leaseBook) list() []*attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []*attempt
	for _, a := range b.attempts {
		if !a.returned {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(x, y *attempt) int {
		if c := x.startedAt.Compare(y.startedAt); c != 0 {
			return c
		}
		return strings.Compare(x.run.Key, y.run.Key)
	})
	return all
}
