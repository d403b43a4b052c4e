package timertest

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
)

// A link is one host's connection to the store. It can be made to fail, and records its calls.
type link struct {
	*dlocktest.Faulty
	store dlock.DistributedLock
	lag   time.Duration // delay before an acquire is sent

	mu       sync.Mutex
	calls    int
	failures []time.Time   // calls with an error that is not a refusal
	audits   int           // completed audits
	longest  time.Duration // longest time given to a call
	slowest  time.Duration // longest delay of a call after its deadline
	leases   []*record     // by grant
	released map[string]bool
	extends  int                  // calls that renewed something
	full     map[string]time.Time // by name: when the last acquire that found all slots held was sent
}

// A record is a lease as seen by the link.
type record struct {
	driver.Grant
	sent     time.Time // just before its last renewal was sent; the store's lease began after that
	answered time.Time // just after that was answered; the store's lease began before that
}

func newLink(store dlock.DistributedLock) *link {
	return &link{Faulty: dlocktest.NewFaulty(store), store: store, released: map[string]bool{},
		full: map[string]time.Time{}}
}

// TryAcquire implements dlock.DistributedLock.
func (l *link) TryAcquire(ctx context.Context, req driver.Request) (g driver.Grant, err error) {
	defer l.watch(ctx, &err, req.Name)()
	if l.lag > 0 {
		select {
		case <-ctx.Done():
			return g, ctx.Err()
		case <-time.After(l.lag):
		}
	}
	sent := time.Now()
	g, err = l.Faulty.TryAcquire(ctx, req)
	l.mu.Lock()
	defer l.mu.Unlock()
	if no, ok := errors.AsType[*dlock.NotAcquiredError](err); ok && no.Reason == dlock.ReasonFull &&
		sent.After(l.full[req.Name]) {
		l.full[req.Name] = sent
	}
	if err == nil {
		l.leases = append(l.leases, &record{g, sent, time.Now()})
	}
	return g, err
}

// Extend implements dlock.DistributedLock.
func (l *link) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) (results []driver.Result,
	err error) {
	defer l.watch(ctx, &err, names(grants)...)()
	sent := time.Now()
	results, err = l.Faulty.Extend(ctx, ttl, grants...)
	l.mu.Lock()
	defer l.mu.Unlock()
	renewed := 0
	for i, r := range results {
		if rec := l.record(grants[i].Token); rec != nil && r.Outcome == driver.GrantOK {
			rec.sent, rec.answered = sent, time.Now()
			renewed = 1
		}
	}
	l.extends += renewed
	return results, err
}

// Release implements dlock.DistributedLock.
func (l *link) Release(ctx context.Context, grants ...driver.Grant) (results []driver.Result, err error) {
	defer l.watch(ctx, &err, names(grants)...)()
	l.mu.Lock()
	for _, g := range grants {
		l.released[g.Token] = true
	}
	l.mu.Unlock()
	return l.Faulty.Release(ctx, grants...)
}

// List implements driver.Lister.
func (l *link) List(ctx context.Context, name string, slots int) (held []driver.LeaseInfo, err error) {
	defer l.watch(ctx, &err, name)()
	return l.Faulty.List(ctx, name, slots)
}

// Enumerate implements driver.Enumerator.
func (l *link) Enumerate(ctx context.Context, after string, limit int) (page driver.LeasePage, err error) {
	defer l.watch(ctx, &err)()
	return l.Faulty.Enumerate(ctx, after, limit)
}

// Audit implements driver.Auditor.
func (l *link) Audit(ctx context.Context) (warnings []string, err error) {
	defer l.watch(ctx, &err)()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.audits++
	}()
	if a := driver.CapabilitiesOf(l.store).Auditor; a != nil {
		return a.Audit(ctx)
	}
	return nil, nil
}

// Check implements driver.Checker.
func (l *link) Check() error {
	if c := driver.CapabilitiesOf(l.store).Checker; c != nil {
		return c.Check()
	}
	return nil
}

// names returns the names of the grants.
func names(grants []driver.Grant) (list []string) {
	for _, g := range grants {
		list = append(list, g.Name)
	}
	return list
}

// watch counts a call for a timer. Other calls of a host, about itself and the store, happen at any
// time.
func (l *link) watch(ctx context.Context, err *error, names ...string) func() {
	deadline, bounded := ctx.Deadline()
	l.mu.Lock()
	if len(names) == 0 || slices.ContainsFunc(names, func(name string) bool {
		return !strings.HasPrefix(name,
			"tickslot:")
	}) {
		l.calls++
	}
	if bounded {
		l.longest = max(l.longest, time.Until(deadline))
	} else {
		l.longest = math.MaxInt64
	}
	l.mu.Unlock()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if bounded {
			l.slowest = max(l.slowest, time.Since(deadline))
		}
		// A caller that gives up says nothing about the store.
		if *err != nil && !errors.Is(*err, dlock.ErrNotAcquired) && !errors.Is(ctx.Err(), context.Canceled) {
			l.failures = append(l.failures, time.Now())
		}
	}
}

// record is called with mu held.
func (l *link) record(token string) *record {
	for _, rec := range l.leases {
		if rec.Token == token {
			return rec
		}
	}
	return nil
}

// last returns the latest lease of a name in a slot, or in any.
func (l *link) last(name string, slot int) record {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.leases) - 1; i >= 0; i-- {
		if rec := l.leases[i]; rec.Name == name && (rec.Slot == slot || slot == driver.AnySlot) {
			return *rec
		}
	}
	return record{}
}

// lastFull returns when the last acquire of a name that found all slots held was sent.
func (l *link) lastFull(name string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.full[name]
}

// counts returns how many calls were made, and how many of them renewed something.
func (l *link) counts() (calls, extends int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls, l.extends
}

// failed returns how many calls have failed since then.
func (l *link) failed(since time.Time) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.failures {
		if at.After(since) {
			n++
		}
	}
	return n
}

// beat returns a condition that holds once the host's heartbeat has renewed something after this
// call.
func (l *link) beat() func() bool {
	_, before := l.counts()
	return func() bool {
		_, extends := l.counts()
		return extends > before
	}
}

// times returns the longest time given to a call, and the longest delay after a deadline.
func (l *link) times() (longest, slowest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.longest, l.slowest
}

// audited reports whether the store was audited, which happens during the first call.
func (l *link) audited() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.audits > 0
}

// gaveBack reports whether a release of this token was ever sent.
func (l *link) gaveBack(token string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.released[token]
}
