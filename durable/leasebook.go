package durable

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
)

// An attempt is a run that this worker has claimed. The fields that the mutex does not guard never
// change.
type attempt struct {
	run       *Run
	row       store.Run
	handler   *handler
	startedAt time.Time
	ctx       context.Context
	cancel    context.CancelCauseFunc
	stop      context.CancelFunc

	// Guarded by the book's mutex.
	trustedFrom instant   // just before the latest request that extended the lease
	lost        bool      // the lease is neither trusted nor renewed any more
	returned    bool      // the handler has returned, or was not called
	overAt      time.Time // when a renewal first saw that the context had ended; zero if it has not
	ignores     bool      // the handler ignores the end of its context, so the lease is no longer renewed
}

func (a *attempt) key() store.RunKey { return a.row.RunKey }

// A leaseBook holds the attempts of this worker, each from its claim until its result is in the
// database. Until then the attempt takes one of the MaxRuns places, even if its lease is lost and
// its handler keeps running. The leaseBook decides how long a lease is trusted.
type leaseBook struct {
	places int
	ttl    time.Duration
	// Called without the mutex held:
	ended    func(*attempt) // when a lease is lost while the handler is running
	freed    func()         // when a place becomes free, or claims are allowed again
	renewNow func()         // when renewalInDoubt is set, which only a renewal can reset

	mu       sync.Mutex // used by all parts
	attempts map[store.RunKey]*attempt
	latest   map[int64]*attempt // the latest attempt of each run
	// renewedAt is just before the latest successful renewal was sent. renewalInDoubt is set when
	// an attempt whose renewal is overdue ends or loses its lease; the next successful renewal
	// resets it. Without it, a worker whose claims succeed but whose renewals fail would claim more
	// runs as soon as it has lost all its leases.
	renewedAt      instant
	renewalInDoubt bool
	expiry         *time.Timer   // calls expire; nil before the first lease
	expiryAt       time.Time     // when expiry fires; zero if it is stopped
	empty          chan struct{} // closed when there is no attempt; nil if no caller waits
}

func newLeaseBook(places int, ttl time.Duration) *leaseBook {
	return &leaseBook{places: places, ttl: ttl, attempts: map[store.RunKey]*attempt{},
		latest: map[int64]*attempt{}}
}

// trust returns how long a lease is trusted, counted from just before its request was sent. The
// rest of the TTL allows for clocks that run at slightly different speeds and for the time that it
// takes to end the handler's context.
func (l *leaseBook) trust() time.Duration { return l.ttl - min(l.ttl/10, time.Second) }

// room returns how many places are free.
func (l *leaseBook) room() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.places-len(l.attempts))
}

// add adds an attempt. An earlier attempt of a run with the same ID is lost, because the database
// has granted the run again: the earlier lease has ended, or the database is an older copy in which
// the ID belongs to another run.
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

// watch sets the timer of expire to the instant at which the lease of a stops being trusted, or to
// an earlier instant to check whether the machine was asleep. t is now. Called with mu held.
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

// expire ends the leases that are no longer trusted. It has its own timer, so that no call to the
// database can delay it. A renewal does not move the timer. When the timer fires, expire sets it
// again.
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

// lose records that the lease of a is lost, and adds a to lost if its handler is running. Called
// with mu held.
func (l *leaseBook) lose(a *attempt, lost []*attempt) []*attempt {
	a.lost = true
	if a.returned {
		return lost // the database decides whether its result counts
	}
	return append(lost, a)
}

func (l *leaseBook) tellLost(lost []*attempt) {
	for _, a := range lost { // end the contexts before doing anything slow
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

// late reports whether more than half of a lease has passed. A run with a late lease must not
// start, because the lease could hardly be renewed before it ends.
func (l *leaseBook) late(from instant) bool { return now().since(from) > l.ttl/2 }

// renewedLately reports whether renewals work, as far as this worker knows. They do not work if a
// lease is overdue, or if a lease was overdue when it ended and no renewal has succeeded since.
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

// noRun is a key that no run has. The renewer renews it when there is no lease, to find out whether
// renewals work.
var noRun = store.RunKey{}

// toRenew returns the keys of the attempts to renew: those whose leases are still trusted. It
// separately returns the attempts whose handlers ignore the end of their context, which are not
// renewed.
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

// renewed applies the answer to a renewal. Leases that were requested but are missing in the answer
// are lost.
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
		case a == nil || a.lost: // its result was written in the meantime, or its lease is no longer trusted
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

// find returns an attempt, or nil if it has ended.
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

// remove frees the places of attempts whose results are in the database.
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

// whenEmpty returns a channel that is closed once there is no attempt.
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

// giveUp returns the handlers that have not returned, once per run, and the number of unwritten
// results. The leases of these runs are left to expire.
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

// list returns the attempts whose handlers are running, in the order of their start.
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
