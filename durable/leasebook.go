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
func (l *leaseBook) trust() time.Duration { return l.ttl - min(l.ttl/10, time.Second) }

// room returns how many places are free.
func (l *leaseBook) room() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.places-len(l.attempts))
}

// add adds an attempt. The database has given away its run, so an earlier attempt of a run with
// that ID is lost: its lease has ended, or the database is an older copy and the run is another
// one.
func (l *leaseBook) add(a *attempt) {
	var lost []*attempt
	l.mu.Lock()
	if before := l.latest[a.row.ID]; before != nil && !before.lost {
		lost = l.lose(before, lost)
	}
	l.attempts[a.key()], l.latest[a.row.ID] = a, a
	l.watch(a, now())
	l.mu.Unlock()
	l.tellLost(lost)
}

// watch has expire run when the trust in the lease of an attempt ends, or before that to see
// whether the machine was asleep. Called with mu held, at an instant.
func (l *leaseBook) watch(a *attempt, t instant) {
	wait := max(0, min(l.trust()-t.since(a.trustedFrom), sleepCheck))
	at := t.awake.Add(wait)
	if !l.expiryAt.IsZero() && !at.Before(l.expiryAt) {
		return
	}
	l.expiryAt = at
	if l.expiry == nil {
		l.expiry = time.AfterFunc(wait, l.expire)
	} else {
		l.expiry.Reset(wait)
	}
}

// expire ends the leases that are no longer trusted. It has a timer of its own, so that no call to
// the database can delay it. A renewal does not move the timer: when it fires, it is set again.
func (l *leaseBook) expire() {
	var lost []*attempt
	l.mu.Lock()
	t, before := now(), l.renewalInDoubt
	l.expiryAt = time.Time{}
	for _, a := range l.attempts {
		switch {
		case a.lost:
		case t.since(a.trustedFrom) >= l.trust():
			l.renewalInDoubt = l.renewalInDoubt || l.overdue(a, t)
			lost = l.lose(a, lost)
		default:
			l.watch(a, t)
		}
	}
	newDoubt := l.renewalInDoubt && !before
	l.mu.Unlock()
	l.tellLost(lost)
	if newDoubt {
		l.renewNow()
	}
}

// lose records that a lease is lost. Called with mu held.
func (l *leaseBook) lose(a *attempt, lost []*attempt) []*attempt {
	a.lost = true
	if a.returned {
		return lost // whether its result counts, the database decides
	}
	return append(lost, a)
}

func (l *leaseBook) tellLost(lost []*attempt) {
	for _, a := range lost { // first of all
		a.cancel(ErrLeaseLost)
	}
	for _, a := range lost {
		l.ended(a)
	}
}

// valid reports whether the lease of an attempt is trusted at this instant.
func (l *leaseBook) valid(a *attempt) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !a.lost && !a.returned && now().since(a.trustedFrom) < l.trust()
}

// late reports whether so much of a lease is over that its run must not start: it could hardly be
// renewed before it ends.
func (l *leaseBook) late(from instant) bool { return now().since(from) > l.ttl/2 }

// renewedLately reports whether renewals work, as far as this worker knows: no lease is overdue,
// and none was overdue when it ended, unless a renewal has succeeded since.
func (l *leaseBook) renewedLately() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.renewalInDoubt {
		return false
	}
	t := now()
	for _, a := range l.attempts {
		if l.overdue(a, t) {
			return false
		}
	}
	return true
}

// overdue reports whether a lease should have been renewed, but no renewal of any lease has
// succeeded for two thirds of its length. If only the row of this lease is locked, it is not
// overdue, because the other leases are renewed. Called with mu held.
func (l *leaseBook) overdue(a *attempt, t instant) bool {
	last := a.trustedFrom
	if l.renewedAt.after(last) {
		last = l.renewedAt
	}
	return !a.lost && !a.ignores && t.since(last) > l.ttl*2/3
}

// noRun is the key of no run. It is renewed when there is no lease, to find out whether renewals
// work.
var noRun = store.RunKey{}

// toRenew returns the attempts whose leases are to be renewed: all whose leases are still trusted,
// except those whose handlers ignore that their context has ended.
func (l *leaseBook) toRenew() (keys []store.RunKey, ignoring []*attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, a := range l.attempts {
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
	if len(keys) == 0 && l.renewalInDoubt {
		keys = append(keys, noRun)
	}
	return keys, ignoring
}

// renewed takes the answer to a renewal of leases that was sent at an instant: those that are
// missing are lost.
func (l *leaseBook) renewed(sent instant, asked []store.RunKey, answer []store.Renewed) {
	kept := make(map[store.RunKey]bool, len(answer))
	for _, n := range answer {
		kept[n.RunKey] = true
	}
	var lost []*attempt
	l.mu.Lock()
	wasInDoubt := l.renewalInDoubt
	l.renewalInDoubt = false
	if sent.after(l.renewedAt) {
		l.renewedAt = sent
	}
	for _, key := range asked {
		a := l.attempts[key]
		switch {
		case a == nil || a.lost: // its result was written meanwhile, or the trust has ended
		case kept[key]:
			if sent.after(a.trustedFrom) {
				a.trustedFrom = sent
			}
		default:
			lost = l.lose(a, lost)
		}
	}
	l.mu.Unlock()
	l.tellLost(lost)
	if wasInDoubt {
		l.freed()
	}
}

// find returns an attempt; nil: it has ended.
func (l *leaseBook) find(key store.RunKey) *attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attempts[key]
}

// markReturned records that the handler of an attempt has returned, or will not be called.
func (l *leaseBook) markReturned(a *attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.returned = true
}

// remove gives back the places of attempts whose results are in the database.
func (l *leaseBook) remove(attempts []*attempt) {
	l.mu.Lock()
	t, before := now(), l.renewalInDoubt
	for _, a := range attempts {
		l.renewalInDoubt = l.renewalInDoubt || l.overdue(a, t)
		delete(l.attempts, a.key())
		if l.latest[a.row.ID] == a {
			delete(l.latest, a.row.ID)
		}
	}
	newDoubt := l.renewalInDoubt && !before
	if len(l.attempts) == 0 {
		l.stopExpiry()
		if l.empty != nil {
			close(l.empty)
			l.empty = nil
		}
	}
	l.mu.Unlock()
	l.freed()
	if newDoubt {
		l.renewNow()
	}
}

// stopExpiry is called with mu held.
func (l *leaseBook) stopExpiry() {
	if l.expiry != nil {
		l.expiry.Stop()
		l.expiryAt = time.Time{}
	}
}

// whenEmpty returns a channel that is closed when there is no attempt.
func (l *leaseBook) whenEmpty() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.empty == nil {
		l.empty = make(chan struct{})
	}
	empty := l.empty
	if len(l.attempts) == 0 {
		close(l.empty)
		l.empty = nil
	}
	return empty
}

// giveUp returns the handlers that have not returned, once per run, and how many results were not
// written. Their leases are left to expire.
func (l *leaseBook) giveUp() (stuck []string, unwritten int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopExpiry()
	for _, a := range l.attempts {
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
func (l *leaseBook) list() []*attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*attempt
	for _, a := range l.attempts {
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
