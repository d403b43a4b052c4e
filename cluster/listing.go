package cluster

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
)

// Limits for one listing of all leases. A store may return short pages: Redis examines two thousand
// keys for each.
const (
	maxListed   = 40_000 // leases
	pageSize    = driver.MaxPage
	maxPages    = 100
	listingTime = 4 // multiplied by Config.StoreTimeout, for all pages together
)

var errMoreLeases = errors.New("cluster: the store of locks has more leases than a snapshot shows, so some are missing")

// A listing lists the leases of Config.Locks. A store may implement the method and still be unable
// to list: a Redis Cluster without a hash tag finds that out only when the method is called.
type listing struct {
	locks      dlock.DistributedLock // without wrappers; nil if there is none
	enumerator driver.Enumerator     // nil if the store cannot list leases
	state      atomic.Int32
}

const (
	listingUnknown int32 = iota // the store was not asked yet
	listingWorks
	listingUnsupported
)

func newListing(locks dlock.DistributedLock) *listing {
	l := &listing{}
	if locks == nil {
		l.state.Store(listingUnsupported)
		return l
	}
	l.locks, l.enumerator = unwrapped(locks), driver.CapabilitiesOf(locks).Enumerator
	if l.enumerator == nil {
		l.state.Store(listingUnsupported)
	}
	return l
}

// lists reports whether lock is the store whose leases are listed, or might be.
func (l *listing) lists(lock dlock.DistributedLock) bool {
	if lock = unwrapped(lock); l.enumerator == nil || !reflect.ValueOf(lock).Comparable() {
		return false
	}
	return reflect.ValueOf(l.locks).Comparable() && lock == l.locks
}

func (l *listing) works() bool { return l.state.Load() == listingWorks }

// unknown reports whether the store must still be asked if it can list leases.
func (l *listing) unknown() bool { return l.state.Load() == listingUnknown }

// unsupported reports whether the store cannot list its leases, so that a decorated store must
// record them.
func (l *listing) unsupported() bool { return l.state.Load() == listingUnsupported }

// record remembers from the result of a call whether the store can list its leases.
func (l *listing) record(err error) {
	switch {
	case err == nil:
		l.state.Store(listingWorks)
	case errors.Is(err, errors.ErrUnsupported):
		l.state.Store(listingUnsupported)
	}
}

// probe asks the store whether it can list its leases.
func (l *listing) probe(ctx context.Context, f *faults) {
	_, _ = l.page(ctx, f, "", 1)
}

// page reads one page of leases.
func (l *listing) page(ctx context.Context, f *faults, after string, limit int) (driver.LeasePage, error) {
	return call(ctx, f, opEnumerate, func(ctx context.Context) (driver.LeasePage, error) {
		page, err := l.enumerator.Enumerate(ctx, after, limit)
		if l.record(err); errors.Is(err, errors.ErrUnsupported) {
			return driver.LeasePage{}, nil // being unable to list is an answer, not a failure
		}
		return page, err
	})
}

// all lists the leases. more is true if further leases exist.
func (l *listing) all(ctx context.Context, f *faults) (leases []driver.LeaseInfo, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, listingTime*f.Timeout())
	defer cancel()
	after := ""
	for range maxPages {
		page, err := l.page(ctx, f, after, min(pageSize, maxListed-len(leases)))
		switch {
		case err != nil && ctx.Err() != nil && after != "":
			return leases, true, nil // the time for all pages is up
		case err != nil:
			return nil, false, err
		}
		leases = append(leases, page.Leases...)
		switch {
		case page.Next == "":
			return leases, false, nil
		case page.Next == after:
			return nil, false, errors.New("cluster: enumerate: the store answered the same page twice")
		case len(leases) >= maxListed:
			return leases, true, nil
		}
		after = page.Next
	}
	return leases, true, nil
}

// unwrapped removes all wrappers from a store.
func unwrapped(lock dlock.DistributedLock) dlock.DistributedLock {
	for range 100 { // prevents an endless loop if a wrapper wraps itself
		w, ok := lock.(interface{ Unwrap() dlock.DistributedLock })
		if !ok {
			return lock
		}
		inner := w.Unwrap()
		if inner == nil {
			return lock
		}
		lock = inner
	}
	return lock
}
